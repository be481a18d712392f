"""The table of counterexamples, and Proposition B.1 without its condition."""

import numpy as np

from experiments.theory import (
    abstractions,
    bounds,
    counterexamples,
    pairs,
    problems,
    return_distributions,
)
from experiments.theory import z_learning as zl
from experiments.theory.studies import abstraction


def counterexample_table(scale: problems.Scale) -> dict:
    """Measures the cases of `counterexamples.py` that have no study of their own."""
    del scale  # nothing here is drawn
    results = {}
    law = counterexamples.lowest_return().returns()
    results["lowest_return_mass_without_bin"] = law.pmf[0, law.lattice == 0].sum()

    law = counterexamples.more_bins_fewer_classes().returns()
    results["classes_by_bins"] = {
        str(k): abstractions.size(
            abstractions.group_rows(return_distributions.bin_returns(law, k).probability)
        )
        for k in (2, 3)
    }

    law = counterexamples.tight_bin().returns()
    spread, _, _ = abstraction.class_spread(law, law.mean, 2)
    results["tight_bin_error_over_width"] = spread
    results["tight_bin_width"] = return_distributions.bin_returns(law, 2).width

    case = counterexamples.equal_expected_rewards()
    for matching in ("expectation", "distribution"):
        labels = abstractions.bisimulation(case.mdp, matching)
        results[f"expected_rewards_{matching}"] = {
            "classes": abstractions.size(labels),
            "equal_returns": abstractions.is_irrelevance(labels, case.returns().pmf),
        }

    for name in ("equal_expected_actions", "equal_marginals"):
        case = getattr(counterexamples, name)()
        first, second, *_ = case.state_returns()
        results[name] = {}
        for matching in ("expectation", "marginal", "joint"):
            labels = abstractions.pi_bisimulation(case.mdp, case.policy, matching)
            results[name][matching] = {
                "merges_states_0_and_1": labels[0] == labels[1],
                "largest_difference_of_returns": np.abs(first - second).max(),
            }

    case = counterexamples.policy_outside_bisimulation(5)
    classes = abstractions.bisimulation(case.mdp, "distribution")
    means = return_distributions.action_values(case.mdp, case.policy, case.horizon)[:, None]
    results["policy_outside_bisimulation"] = {
        "different_means": abstractions.size(abstractions.group_rows(means)),
        "bisimulation_times_actions": abstractions.size(classes) * 2,
    }

    case = counterexamples.never_itself()
    population = pairs.population(pairs.distinct_pairs(case.law))
    wrong, right = np.array([0, 0, 1, 2]), np.array([0, 1, 2, 2])
    best = zl.enumerate_encoders(pairs.stacked(population), case.blocks).loss[0]
    results["never_itself"] = {
        "loss_of_wrong_encoder": zl.encoder_loss(population, wrong),
        "loss_of_right_encoder": zl.encoder_loss(population, right),
        "minimum": best,
        "wrong_is_irrelevance": abstractions.is_irrelevance(wrong, case.probability),
    }
    results["cover"] = _cover(0.4)
    return results


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
            counts = pairs.stacked(pairs.population(case.law))
            best = zl.predictor(counts, zl.enumerate_encoders(counts, case.blocks).labels)[0]
            drawn = pairs.draw_counts(rng, case.law, n, 4 * scale.seeds)
            fitted = zl.predictor(drawn, zl.enumerate_encoders(drawn, case.blocks).labels)
            error = bounds.squared_distance(fitted, best, case.law.joint)
            bound = bounds.regression_bound(n, case.blocks, case.weights.size, problems.DELTA)
            rows.append(
                {
                    "imbalance": "0.01/√n" if falls else "1e-6",
                    "samples": float(n),
                    "datasets": len(error),
                    "bound": bound,
                    "mean_error": error.mean(),
                    "outside": np.mean(error > bound),
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
        "largest_distance": distance,
    }
