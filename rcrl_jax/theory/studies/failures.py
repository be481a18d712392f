"""The table of counterexamples, and Proposition B.1 without its condition."""

import numpy as np

from rcrl_jax.theory import abstractions, bounds, counterexamples, pairs, return_distributions
from rcrl_jax.theory import z_learning as zl
from rcrl_jax.theory.studies import abstraction, problems


def counterexample_table(scale: problems.Scale) -> dict:
    """Measures the cases of `counterexamples.py` that have no study of their own."""
    del scale  # nothing here is drawn
    results = {}
    case = counterexamples.lowest_return()
    law = _law(case)
    results["lowest_return_mass_without_bin"] = float(law.pmf[0, law.lattice == 0].sum())

    law = _law(counterexamples.more_bins_fewer_classes())
    results["classes_by_bins"] = {
        str(k): abstractions.size(
            abstractions.coarsest_irrelevance(return_distributions.bin_returns(law, k).probability)
        )
        for k in (2, 3)
    }

    law = _law(counterexamples.tight_bin())
    binned = return_distributions.bin_returns(law, 2)
    spread, _, _ = abstraction.class_spread(law, law.mean, 2)
    results["tight_bin_error_over_width"] = float(spread)
    results["tight_bin_width"] = binned.width

    case = counterexamples.equal_expected_rewards()
    for matching in ("expectation", "distribution"):
        labels = abstractions.bisimulation(case.mdp, matching)
        results[f"expected_rewards_{matching}"] = {
            "classes": abstractions.size(labels),
            "equal_returns": abstractions.is_irrelevance(labels, _law(case).pmf),
        }

    for name in ("equal_expected_actions", "equal_marginals"):
        case = getattr(counterexamples, name)()
        by_state = return_distributions.state_returns(_law(case).pmf, case.policy)
        results[name] = {}
        for matching in ("expectation", "marginal", "joint"):
            labels = abstractions.pi_bisimulation(case.mdp, case.policy, matching)
            results[name][matching] = {
                "merges_states_0_and_1": bool(labels[0] == labels[1]),
                "largest_difference_of_returns": float(np.abs(by_state[0] - by_state[1]).max()),
            }

    case = counterexamples.policy_outside_bisimulation(5)
    classes = abstractions.bisimulation(case.mdp, "distribution")
    means = return_distributions.action_values(case.mdp, case.policy, 100)[:, None]
    results["policy_outside_bisimulation"] = {
        "different_means": abstractions.size(abstractions.group_rows(means)),
        "bisimulation_times_actions": abstractions.size(classes) * 2,
    }

    case = counterexamples.never_itself()
    law = pairs.distinct_pairs(pairs.independent_pairs(case.weights, case.probability))
    counts = pairs.stacked(pairs.population(law))
    wrong, right = np.array([0, 0, 1, 2]), np.array([0, 1, 2, 2])
    best = zl.enumerate_encoders(counts, case.blocks).loss[0]
    results["never_itself"] = {
        "loss_of_wrong_encoder": zl.encoder_loss(pairs.population(law), wrong),
        "loss_of_right_encoder": zl.encoder_loss(pairs.population(law), right),
        "minimum": float(best),
        "wrong_is_irrelevance": abstractions.is_irrelevance(wrong, case.probability),
    }
    results["cover"] = _cover(0.4)
    return results


def _law(case: counterexamples.Case) -> return_distributions.ReturnDistribution:
    return return_distributions.return_distribution(case.mdp, case.policy, case.horizon)


def unrealisable(scale: problems.Scale) -> list[dict]:
    """Proposition B.1 with f* outside the class, for a fixed imbalance and one that falls with n.

    `outside` is the share of datasets whose error is above the bound, which must be at most delta.
    """
    rows = []
    for falls in (False, True):
        rng = np.random.default_rng(12)
        for n in (10**6, 10**8, 10**10, 10**12, 10**14):
            imbalance = 0.01 / n**0.5 if falls else 1e-6
            case = counterexamples.unrealisable(imbalance)
            law = pairs.independent_pairs(case.weights, case.probability)
            counts = pairs.stacked(pairs.population(law))
            best = zl.predictor(counts, zl.enumerate_encoders(counts, case.blocks).labels)[0]
            drawn = pairs.draw_counts(rng, law, n, 4 * scale.seeds)
            fitted = zl.predictor(drawn, zl.enumerate_encoders(drawn, case.blocks).labels)
            error = np.sum((fitted - best) ** 2 * law.joint, axis=(1, 2))
            log_encoders = bounds.log_encoders(case.weights.size, case.blocks)
            bound = bounds.regression_bound(n, case.blocks, log_encoders, problems.DELTA)
            rows.append(
                {
                    "imbalance": "0.01/√n" if falls else "1e-6",
                    "samples": float(n),
                    "datasets": len(error),
                    "bound": bound,
                    "mean_error": float(error.mean()),
                    "outside": float(np.mean(error > bound)),
                }
            )
    return rows


def _cover(epsilon) -> dict:
    """Lemma B.1's grid {eps, ..., ceil(1/eps) eps}: its size and largest distance to [0, 1]."""
    grid_points = epsilon * np.arange(1, int(np.ceil(1 / epsilon)) + 1)
    values = np.linspace(0.0, 1.0, 1001)
    distance = np.abs(values[:, None] - grid_points).min(1).max()
    return {
        "epsilon": epsilon,
        "points": grid_points.size,
        "claimed_at_most": 1 / epsilon,
        "largest_distance": float(distance),
    }
