"""Theorem 4.1 and Corollary 4.1.1."""

import jax
import numpy as np

from experiments.theory import abstractions, bounds, pairs, problems
from experiments.theory import z_learning as zl


def theorem_fixed(scale: problems.Scale) -> dict:
    """Both sides of Theorem 4.1 and of Lemma B.2 on random MDPs, for growing n."""
    size, blocks, samples = 16, 4, [10**k for k in (2, 3, 4, 5, 6, 7)]
    count = max(2, scale.mdps // 5)
    rng = np.random.default_rng(4)
    drawn = [problems.distracted(rng, 2)[0] for _ in range(count)]
    weights = np.full(size, 1 / size)
    rows = []
    for n in samples:
        left, error = [], []
        for index, probability in enumerate(drawn):
            law = pairs.independent_pairs(weights, probability)
            counts = pairs.draw_counts(rng, law, n, scale.seeds)
            key = jax.random.key(index)
            labels = zl.coordinate_descent(key, counts, blocks, scale.restarts)
            left.append(bounds.merged_discrepancy(labels, probability, weights))  # [D, X]
            error.append(
                bounds.squared_distance(zl.predictor(counts, labels), law.label, law.joint)
            )
        left, error = np.array(left), np.array(error)
        largest = left.max(-1)
        bound = bounds.theorem_bound(n, blocks, size, problems.DELTA)
        lemma = bounds.regression_bound(n, blocks, size, problems.DELTA)
        rows.append(
            {
                "samples": n,
                "left_mean": largest.mean(),
                "left_quantile": np.quantile(largest, 1 - problems.DELTA),
                "average_mean": np.mean(left @ weights),
                "bound": bound,
                "inside": np.mean(largest <= bound),
                "exact": np.mean(largest < 1e-12),
                "error_mean": error.mean(),
                "lemma": lemma,
                "inside_lemma": np.mean(error <= lemma),
            }
        )
    slopes = {"left": "left_mean", "error": "error_mean", "bound": "bound"}
    return {
        "mdps": count,
        "seeds": scale.seeds,
        "pairs": size,
        "rows": rows,
        **{f"slope_{name}": _slope(rows, key) for name, key in slopes.items()},
        "nonvacuous_from": _nonvacuous_from(blocks, size),
    }


def _slope(rows: list[dict], key: str) -> float:
    """Least-squares slope over `samples` on log axes, without values that are 0 up to rounding."""
    samples, values = (np.array([row[name] for row in rows], float) for name in ("samples", key))
    keep = values > 1e-12
    return np.polyfit(np.log(samples[keep]), np.log(values[keep]), 1)[0]


def _nonvacuous_from(blocks, size) -> int:
    """Smallest n, to 1 %, at which the bound is below 1/2, the maximum of the left side.

    E|g(x1) - g(x2)| of independent x1, x2 and g in [0, 1] is at most 1/2.
    """
    n = 2.0
    while bounds.theorem_bound(n, blocks, size, problems.DELTA) >= 0.5:
        n *= 1.01
    return int(n)


def theorem_rare_probe(scale: problems.Scale) -> dict:
    """Theorem 4.1 for a very rare x', on pairs whose difference falls like n^(-1/4).

    `rows` holds what Z-learning does, `proof` what docs/theory.md proves for every learner.
    """
    datasets = 4 * scale.seeds
    rng = np.random.default_rng(5)
    rows = []
    for exponent in range(4, 19):
        n = 10**exponent
        case = problems.rare_probe(0.4 * n**-0.25)
        law = pairs.independent_pairs(case.weights, case.probability)
        counts = pairs.draw_counts(rng, law, n, datasets)
        labels = zl.enumerate_encoders(counts, 3)
        sides = bounds.merged_discrepancy(labels, case.probability, case.weights)
        bound = bounds.theorem_bound(n, 3, 7, problems.DELTA)
        averaged = sides @ case.weights
        rows.append(
            {
                "samples": float(n),
                "probe_mean": sides[:, 0].mean(),
                "average_mean": averaged.mean(),
                "bound": bound,
                "inside": np.mean(sides[:, 0] <= bound),
                "inside_average": np.mean(averaged <= bound),
            }
        )
    return {
        "datasets": datasets,
        "rows": rows,
        "proof": [_proved_for_rare_probe(10**exponent) for exponent in (12, 16, 17, 18, 20)],
        "slope_probe": _slope(rows, "probe_mean"),
        "slope_average": _slope(rows, "average_mean"),
    }


def _proved_for_rare_probe(n: int) -> dict:
    """The lower bounds of docs/theory.md for gap h = 0.1 n^(-1/4) and three coins of each kind.

    Whatever the learner, for one of the ten ways to choose three of six coins as the first kind,
    it merges two kinds with the stated probability; then the left side is at least 2h / 18.
    """
    gap = 0.1 * n**-0.25
    coin = (1 - problems.RARE) / 6
    # Pinsker's inequality: 16 h^4 bounds the divergence of a label from that of a fair coin.
    unlike_fair_coins = np.sqrt(n * 16 * gap**4 / 2)
    return {
        "samples": float(n),
        "gap": gap,
        "left_at_least": 2 * gap * 2 * coin**2,
        "probability_at_least": 0.9 - unlike_fair_coins - 2 * n * problems.RARE,
        "bound": bounds.theorem_bound(float(n), 3, 7, problems.DELTA),
    }


def corollary(scale: problems.Scale) -> list[dict]:
    """Corollary 4.1.1: how often the minimiser of the population loss is a Z^pi-irrelevance."""
    rows = []
    for bits, method in ((1, "oracle"), (2, "coordinate descent")):
        rng = np.random.default_rng([6, bits])
        drawn = [problems.distracted(rng, bits) for _ in range(scale.mdps)]
        size = 4 * 2**bits
        for extra in (-1, 0, 1):
            held, coarsest = 0, 0
            for index, (probability, classes) in enumerate(drawn):
                law = pairs.independent_pairs(np.full(size, 1 / size), probability)
                counts = pairs.population(law)
                blocks = abstractions.size(classes) + extra
                if method == "oracle":
                    fit = zl.enumerate_encoders(counts, blocks)
                else:
                    key = jax.random.key(index)
                    fit = zl.coordinate_descent(key, counts, blocks, scale.restarts)
                labels = abstractions.canonical(fit[0])
                held += abstractions.is_irrelevance(labels, probability)
                coarsest += np.array_equal(labels, classes)
            rows.append(
                {
                    "pairs": size,
                    "method": method,
                    "extra_blocks": extra,
                    "mdps": scale.mdps,
                    "irrelevance": held / scale.mdps,
                    "coarsest": coarsest / scale.mdps,
                }
            )
    return rows
