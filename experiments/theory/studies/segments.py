"""What the paper's theory omits: RCRL draws positives from segments."""

import jax
import numpy as np

from experiments.theory import abstractions, bounds, pairs, problems
from experiments.theory import mdp as mdps
from experiments.theory import z_learning as zl


def segment_sampling(scale: problems.Scale) -> dict:
    """Segment sampling against i.i.d. pairs, on sparse episodes with one distractor bit.

    `sizes` holds the number of blocks that the Bayes predictor of each law needs, and whether the
    pairs that it merges have equal return distributions. `rows` holds the errors of encoders with
    N = N_{pi,infinity} blocks, learned from 10^6 and from infinitely many samples (None).
    """
    rng = np.random.default_rng(9)
    count, datasets, n = max(2, scale.mdps // 5), max(2, scale.seeds // 10), 10**6
    sizes, errors, equal_negatives = {}, {}, []
    for index in range(count):
        problem = problems.episodic(rng, 1, mdps.sparse_episodes, 0.0)
        independent = pairs.independent_pairs(problem.weights, problem.probability)
        equal_negatives.append(np.sum(independent.joint * (1 - independent.label)))
        laws = {
            "independent": independent,
            "segment": problem.segment_pairs(problem.law),
            "segment, another step": problem.segment_pairs(problem.other_law),
        }
        for name, law in laws.items():
            # One encoder is used for both arguments of f. If the positive is never the anchor, f
            # is not symmetric, so pairs must agree in their rows and in their columns.
            needed = abstractions.group_rows(np.concatenate([law.label, law.label.T], axis=1))
            holds = abstractions.is_irrelevance(needed, problem.probability)
            sizes.setdefault(name, []).append([abstractions.size(needed), holds])
            drawn = pairs.draw_counts(rng, law, n, datasets)
            # The population is appended as another dataset, to use the same compiled function.
            both = [
                np.concatenate([sample / n, exact])
                for sample, exact in zip(drawn, pairs.population(law), strict=True)
            ]
            fit = zl.coordinate_descent(
                jax.random.key(index),
                pairs.PairCounts(*both),
                abstractions.size(problem.classes),
                5 * scale.restarts,  # a dozen blocks have more local minima than four
            )
            measured = _encoder_errors(fit, problem)
            errors.setdefault((name, n), []).extend(measured[:-1])
            errors.setdefault((name, None), []).append(measured[-1])
    return {
        "mdps": count,
        "sizes": [
            {
                "pairs": name,
                "blocks_needed": np.mean([size for size, _ in found]),
                "mdps_where_irrelevance": sum(holds for _, holds in found),
                "mdps": count,
            }
            for name, found in sizes.items()
        ],
        "visited_pairs": float(problem.visited.size),
        "negatives_with_equal_return": np.mean(equal_negatives),
        "rows": [
            {"pairs": name, "samples": samples, **_mean_rows(measured)}
            for (name, samples), measured in errors.items()
        ],
    }


def segment_returns(scale: problems.Scale) -> list[dict]:
    """How often and by how much the returns of anchor and positive differ, despite the label 0."""
    rows = []
    settings = (
        ("sparse, discount 1", mdps.sparse_episodes, 0.0, 1.0),
        ("sparse, discount 0.99", mdps.sparse_episodes, 0.0, 0.99),
        ("dense, threshold 1", mdps.dense_episodes, 1.0, 1.0),
    )
    for name, make, threshold, discount in settings:
        rng = np.random.default_rng(10)
        laws = [problems.episodic(rng, 0, make, threshold, discount).law for _ in range(scale.mdps)]
        rows.append(
            {
                "setting": name,
                "mdps": scale.mdps,
                "differs": np.mean([law.positive_differs for law in laws]),
                "gap": np.mean([law.return_gap for law in laws]),
                "itself": np.mean([np.trace(law.positive) for law in laws]),
            }
        )
    return rows


def _encoder_errors(labels, problem: problems.Episodic) -> list[dict]:
    weights, classes = problem.weights, problem.classes
    # Q in units of the resolution, up to a constant.
    values = problem.probability @ np.arange(problem.probability.shape[1])
    sides = bounds.merged_discrepancy(labels, problem.probability, weights)
    return [
        {
            "merged": bounds.wrongly_merged(own, classes, weights),
            "split": bounds.wrongly_merged(classes, own, weights),
            "left_average": side @ weights,
            "value_error": _value_error(own, values, weights),
        }
        for own, side in zip(labels, sides, strict=True)
    ]


def _value_error(labels, values, weights) -> float:
    """Root mean squared error of the best Q(phi(x)) over the standard deviation of Q."""
    one_hot = np.eye(int(labels.max()) + 1)[labels] * weights[:, None]
    mass = one_hot.sum(0)
    means = np.divide(one_hot.T @ values, mass, out=np.zeros_like(mass), where=mass > 0)
    error = np.sum(weights * (means[labels] - values) ** 2)
    overall = np.sum(weights * (values - np.sum(weights * values)) ** 2)
    return np.sqrt(error / overall)


def _mean_rows(rows: list[dict]) -> dict:
    return {key: np.mean([row[key] for row in rows]) for key in rows[0]}
