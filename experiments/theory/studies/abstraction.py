"""Proposition 4.1, the sizes of abstractions, and the pi-bisimulation proposition (A.2)."""

import numpy as np

from experiments.theory import abstractions, problems, return_distributions
from experiments.theory import mdp as mdps


def proposition_representation(scale: problems.Scale) -> list[dict]:
    """Proposition 4.1 on every family: the error of Q(phi(x)) in units of (R_max - R_min) / K.

    `worst` is the largest error over pairs and MDPs if Q(z) is the worst member of the class; the
    middle of the class has half of it. `slack` bounds what truncation and rounding of the
    return distribution add; it is 0 if the distribution is exact.
    """
    rows = []
    for family, (name, make) in enumerate(problems.FAMILIES.items()):
        rng = np.random.default_rng([1, family])
        drawn = [make(rng) for _ in range(scale.mdps)]
        laws = [problem.returns() for problem in drawn]
        values = [
            return_distributions.action_values(problem.mdp, problem.policy, _converged(problem))
            for problem in drawn
        ]
        for bins in (2, 8, 32, 128):
            results = [class_spread(law, q, bins) for law, q in zip(laws, values, strict=True)]
            spread, slack = np.array(results).T
            rows.append(
                {
                    "family": name,
                    "bins": bins,
                    "mdps": scale.mdps,
                    "worst": spread.max(),
                    "slack": slack.max(),
                    "violations": np.sum(spread > 1 + slack + 1e-9),
                }
            )
    return rows


def _converged(problem: problems.Problem) -> int:
    """Horizon for Q^pi: the problem's own if undiscounted, else exact to about 1e-13."""
    return problem.horizon if problem.mdp.discount == 1.0 else 300


def class_spread(
    law: return_distributions.ReturnDistribution, values: np.ndarray, bins: int
) -> tuple[float, float]:
    """The spread of Q within the classes of the coarsest irrelevance.

    Args:
      law: return distributions of all pairs.
      values: Q, `[X]`.
      bins: K.

    Returns:
      The largest |Q(x1) - Q(x2)| over merged pairs in units of the bin width; what the error of
      `law` can add to it, in the same unit.
    """
    binned = return_distributions.bin_returns(law, bins)
    labels = abstractions.group_rows(binned.probability)
    merged = labels[:, None] == labels[None]
    spread = np.max(np.abs(values[:, None] - values[None]) * merged)
    slack = law.below + law.above  # each true Q is in an interval of this length
    return spread / binned.width, slack / binned.width


def coarseness(scale: problems.Scale) -> list[dict]:
    """Checks N_{pi,K} <= N_{pi,infinity} <= |phi_B(S)| |A| on every family and on larger grids."""
    families = dict(problems.FAMILIES)
    del families["deterministic, discounted"]  # N_{pi,infinity} needs the exact distribution
    for bits in (0, 2, 3, 4):
        families[f"grid, {bits} distractor bits"] = lambda rng, bits=bits: problems.grid(rng, bits)
    columns = ("pairs", "bisimulation", "N_inf", "N_16", "N_4")
    rows = []
    for family, (name, make) in enumerate(families.items()):
        rng = np.random.default_rng([2, family])
        sizes, ordered = [], 0
        for _ in range(scale.mdps):
            problem = make(rng)
            classes = abstractions.bisimulation(problem.mdp)
            # Proposition A.1 needs a policy that is constant on bisimulation classes.
            first = np.unique(classes, return_index=True)[1]
            problem = problem._replace(policy=problem.policy[first][classes])
            law = problem.returns()
            exact = abstractions.group_rows(law.pmf)
            bisimilar = abstractions.pair_labels(classes, problem.policy.shape[1])
            many, few = (
                abstractions.group_rows(return_distributions.bin_returns(law, bins).probability)
                for bins in (16, 4)
            )
            size = abstractions.size
            ordered += size(few) <= size(exact) and abstractions.is_coarser(exact, bisimilar)
            sizes.append([exact.size, size(bisimilar), size(exact), size(many), size(few)])
        means = dict(zip(columns, np.mean(sizes, axis=0), strict=True))
        rows.append({"family": name, "mdps": scale.mdps, **means, "ordered": ordered})
    return rows


def pi_bisimulation(scale: problems.Scale) -> list[dict]:
    """Proposition A.2 for three definitions of equal rewards, on small deterministic Garnets."""
    rng = np.random.default_rng(3)
    draws = 20 * scale.mdps
    readings = ("expectation", "marginal", "joint")
    merging, failing = (dict.fromkeys(readings, 0) for _ in range(2))
    for _ in range(draws):
        mdp = mdps.garnet(rng, 6, 2, 1, (0.0, 0.5, 1.0), True)
        problem = problems.under_uniform_policy(mdp, 6)
        by_state = problem.state_returns()
        for reading in readings:
            labels = abstractions.pi_bisimulation(mdp, problem.policy, reading)
            merging[reading] += abstractions.size(labels) < 6
            failing[reading] += not abstractions.is_irrelevance(labels, by_state)
    return [
        {
            "rewards equal in": reading,
            "MDPs": draws,
            "some states merge": merging[reading],
            "proposition fails": failing[reading],
        }
        for reading in readings
    ]
