"""Theorem 4.1, Corollary 4.1.1, the identity encoder, and the quality of coordinate descent."""

import itertools
import time

import jax
import numpy as np

from rcrl_jax.theory import abstractions, bounds, counterexamples, pairs
from rcrl_jax.theory import z_learning as zl
from rcrl_jax.theory.studies import problems


def theorem_fixed(scale: problems.Scale) -> dict:
    """Both sides of Theorem 4.1 and of Lemma B.2 on random MDPs, for growing n."""
    bits, bins, samples = 2, 3, [10**k for k in (2, 3, 4, 5, 6, 7)]
    count = max(2, scale.mdps // 5)
    rng = np.random.default_rng(4)
    drawn = [problems.distracted(rng, bits, bins) for _ in range(count)]
    rows = []
    for n in samples:
        left, average, error, bound, lemma = [], [], [], [], []
        for index, (probability, classes) in enumerate(drawn):
            blocks, size = abstractions.size(classes), classes.size
            weights = np.full(size, 1 / size)
            law = pairs.independent_pairs(weights, probability)
            counts = pairs.draw_counts(rng, law, n, scale.seeds)
            encoders = zl.coordinate_descent(jax.random.key(index), counts, blocks, scale.restarts)
            sides = np.array(
                [bounds.merged_discrepancy(e, probability, weights) for e in encoders.labels]
            )
            left.append(sides.max(1))
            average.append(sides @ weights)
            gap = (zl.predictor(counts, encoders.labels) - law.label) ** 2
            error.append(np.sum(gap * law.joint, axis=(1, 2)))
            log_encoders = bounds.log_encoders(size, blocks)
            bound.append(bounds.theorem_bound(n, blocks, log_encoders, problems.DELTA))
            lemma.append(bounds.regression_bound(n, blocks, log_encoders, problems.DELTA))
        left, error = np.array(left), np.array(error)
        rows.append(
            {
                "samples": n,
                "left_mean": float(left.mean()),
                "left_quantile": float(np.quantile(left, 1 - problems.DELTA)),
                "average_mean": float(np.mean(average)),
                "bound": float(np.mean(bound)),
                "inside": float(np.mean(left <= np.array(bound)[:, None])),
                "exact": float(np.mean(left < 1e-12)),
                "error_mean": float(error.mean()),
                "lemma": float(np.mean(lemma)),
                "inside_lemma": float(np.mean(error <= np.array(lemma)[:, None])),
            }
        )
    return {
        "mdps": count,
        "seeds": scale.seeds,
        "pairs": int(4 * 2**bits),
        "rows": rows,
        "slope_left": _slope(samples, [row["left_mean"] for row in rows]),
        "slope_error": _slope(samples, [row["error_mean"] for row in rows]),
        "slope_bound": _slope(samples, [row["bound"] for row in rows]),
        "nonvacuous_from": _nonvacuous_from(4, int(4 * 2**bits)),
    }


def _slope(samples, values) -> float:
    """Least-squares slope on log axes, without values that are 0 up to rounding."""
    samples, values = np.asarray(samples, np.float64), np.asarray(values)
    keep = values > 1e-12
    return float(np.polyfit(np.log(samples[keep]), np.log(values[keep]), 1)[0])


def _nonvacuous_from(blocks, size) -> int:
    """Smallest n, to 1 %, at which the bound is below 1, the maximum of the left side."""
    n = 2.0
    while bounds.theorem_bound(n, blocks, bounds.log_encoders(size, blocks), problems.DELTA) >= 1.0:
        n *= 1.01
    return int(n)


def theorem_rare_probe(scale: problems.Scale) -> dict:
    """Theorem 4.1 for a very rare x', on pairs whose difference falls like n^(-1/4).

    `rows` holds what Z-learning does, `proof` what docs/theory.md proves for every learner.
    """
    datasets, gap_constant, copies = 4 * scale.seeds, 0.4, 3
    rng = np.random.default_rng(5)
    rows = []
    for exponent in range(4, 19):
        n = 10**exponent
        case = counterexamples.rare_probe(gap_constant * n**-0.25, copies)
        counts = pairs.draw_counts(
            rng, pairs.independent_pairs(case.weights, case.probability), n, datasets
        )
        encoders = zl.enumerate_encoders(counts, case.blocks)
        sides = np.array(
            [bounds.merged_discrepancy(e, case.probability, case.weights) for e in encoders.labels]
        )
        log_encoders = bounds.log_encoders(case.weights.size, case.blocks)
        bound = bounds.theorem_bound(n, case.blocks, log_encoders, problems.DELTA)
        averaged = sides @ case.weights
        rows.append(
            {
                "samples": float(n),
                "probe_mean": float(sides[:, 0].mean()),
                "average_mean": float(averaged.mean()),
                "bound": bound,
                "inside": float(np.mean(sides[:, 0] <= bound)),
                "inside_average": float(np.mean(averaged <= bound)),
            }
        )
    samples = [row["samples"] for row in rows]
    return {
        "datasets": datasets,
        "rows": rows,
        "proof": [_proved_for_rare_probe(10**exponent) for exponent in (12, 16, 17, 18, 20)],
        "slope_probe": _slope(samples, [row["probe_mean"] for row in rows]),
        "slope_average": _slope(samples, [row["average_mean"] for row in rows]),
    }


def _proved_for_rare_probe(n: int) -> dict:
    """The lower bounds of docs/theory.md for gap h = 0.1 n^(-1/4) and three coins of each kind.

    Whatever the learner, for one of the ten ways to choose three of six coins as the first kind,
    it merges two kinds with the stated probability; then the left side is at least 2h / 18.
    """
    gap = 0.1 * n**-0.25
    coin = (1 - counterexamples.RARE) / 6
    # Pinsker's inequality: 16 h^4 bounds the divergence of a label from that of a fair coin.
    unlike_fair_coins = np.sqrt(n * 16 * gap**4 / 2)
    return {
        "samples": float(n),
        "gap": gap,
        "left_at_least": 2 * gap * 2 * coin**2,
        "probability_at_least": float(0.9 - unlike_fair_coins - 2 * n * counterexamples.RARE),
        "bound": bounds.theorem_bound(float(n), 3, bounds.log_encoders(7, 3), problems.DELTA),
    }


def identity_encoder(scale: problems.Scale) -> list[dict]:
    """N = |X| = 8: on how many datasets the identity is the only minimiser of the loss.

    There are four return distributions, of two pairs each. Deterministic returns: 0, 1, 2 and 3.
    """
    rows, datasets = [], 2 * scale.seeds
    rng = np.random.default_rng(14)
    random, _ = problems.distracted(rng, 1, 3)
    for returns, probability in (
        ("random", random),
        ("deterministic", np.repeat(np.eye(4), 2, axis=0)),
    ):
        law = pairs.independent_pairs(np.full(8, 1 / 8), probability)
        for n in (100, 10_000, 1_000_000):
            counts = pairs.draw_counts(rng, law, n, datasets)
            only = [not has_free_merge(*one) for one in zip(*counts, strict=True)]
            rows.append({"returns": returns, "samples": n, "datasets": datasets, "only": sum(only)})
    return rows


def has_free_merge(total: np.ndarray, signed: np.ndarray) -> bool:
    """Whether an encoder that merges two pairs has the loss of the identity, the smallest one.

    That is so if the cells that the merge joins have equal mean labels. Means are compared as
    products of integers, so the answer is exact below 2^26 samples in a cell.

    Args:
      total: count of samples of each cell, `[X, X]`.
      signed: sum of y - 1/2 in each cell, `[X, X]`.
    """

    def equal_means(first, second):  # also true if one of the cells is empty
        return total[first] * signed[second] == total[second] * signed[first]

    for a, b in itertools.combinations(range(len(total)), 2):
        inner = list(itertools.product((a, b), repeat=2))
        rest = [x for x in range(len(total)) if x not in (a, b)]
        if all(equal_means((a, x), (b, x)) and equal_means((x, a), (x, b)) for x in rest) and all(
            itertools.starmap(equal_means, itertools.combinations(inner, 2))
        ):
            return True
    return False


def corollary(scale: problems.Scale) -> list[dict]:
    """Corollary 4.1.1: how often the minimiser of the population loss is a Z^pi-irrelevance."""
    rows = []
    for bits, oracle in ((1, True), (2, False)):
        rng = np.random.default_rng([6, bits])
        drawn = [problems.distracted(rng, bits, 3) for _ in range(scale.mdps)]
        size = drawn[0][1].size
        for extra in (-1, 0, 1):
            held, coarsest = 0, 0
            for index, (probability, classes) in enumerate(drawn):
                law = pairs.independent_pairs(np.full(size, 1 / size), probability)
                counts = pairs.stacked(pairs.population(law))
                blocks = abstractions.size(classes) + extra
                fit = (
                    zl.enumerate_encoders(counts, blocks)
                    if oracle
                    else zl.coordinate_descent(
                        jax.random.key(index), counts, blocks, scale.restarts
                    )
                )
                held += abstractions.is_irrelevance(fit.labels[0], probability)
                found = abstractions.canonical(fit.labels[0])
                coarsest += bool(np.array_equal(found, abstractions.canonical(classes)))
            rows.append(
                {
                    "pairs": int(size),
                    "method": "oracle" if oracle else "coordinate descent",
                    "extra_blocks": extra,
                    "mdps": scale.mdps,
                    "irrelevance": held / scale.mdps,
                    "coarsest": coarsest / scale.mdps,
                }
            )
    return rows


def descent_against_oracle(scale: problems.Scale) -> list[dict]:
    """How often coordinate descent reaches the global minimum, for X = 8."""
    rows = []
    for blocks in (2, 3, 4):
        for n in (100, 1000, 10_000, 100_000):
            rng = np.random.default_rng([7, blocks, n])
            hits = []
            for index in range(scale.mdps):
                probability, _ = problems.distracted(rng, 1, 3)
                law = pairs.independent_pairs(np.full(8, 1 / 8), probability)
                counts = pairs.draw_counts(rng, law, n, scale.seeds)
                best = zl.enumerate_encoders(counts, blocks).loss
                # Each restart is fitted as a separate dataset, to evaluate fewer restarts as well.
                repeated = pairs.PairCounts(
                    *(np.repeat(array, scale.restarts, axis=0) for array in counts)
                )
                fit = zl.coordinate_descent(jax.random.key(index), repeated, blocks, 1)
                reached = np.minimum.accumulate(fit.loss.reshape(scale.seeds, -1), axis=1)
                hits.append(reached <= best[:, None] + 1e-12)
            share = np.concatenate(hits).mean(0)
            rows.append(
                {
                    "blocks": blocks,
                    "samples": n,
                    "problems": scale.mdps * scale.seeds,
                    **{f"restarts_{k}": float(share[k - 1]) for k in (1, 5, scale.restarts)},
                }
            )
    return rows


def throughput(scale: problems.Scale) -> list[dict]:
    """Speed of Algorithm 1 from sampling to encoder, for X = 16; the fastest of five runs."""
    probability, classes = problems.distracted(np.random.default_rng(13), 2, 3)
    weights = np.full(classes.size, 1 / classes.size)
    rows = []
    for n in (10_000, 1_000_000):
        runs = []
        for seed in range(6):  # the first run compiles, so it is never the fastest
            start = time.perf_counter()
            sample = pairs.sample_pairs(jax.random.key(seed), weights, probability, n)
            counts = pairs.stacked(pairs.count_pairs(*sample, classes.size))
            sampled = time.perf_counter()
            zl.coordinate_descent(jax.random.key(seed), counts, 4, scale.restarts)
            end = time.perf_counter()
            runs.append((end - start, sampled - start, end - sampled))
        total, sampling, descent = min(runs)
        rows.append(
            {
                "samples": n,
                "sampling_seconds": sampling,
                "descent_seconds": descent,
                "samples_per_second": n / total,
            }
        )
    return rows
