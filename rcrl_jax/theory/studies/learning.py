"""Theorem 4.1, Corollary 4.1.1, and the accuracy and speed of coordinate descent."""

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
    """Theorem 4.1 for a very rare x', on pairs whose difference falls like n^(-1/4)."""
    datasets, gap_constant, copies = 4 * scale.seeds, 0.4, 3
    rng = np.random.default_rng(5)
    rows = []
    for exponent in range(4, 18):
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
                "inside_corrected": float(
                    np.mean(np.all(sides <= bound / np.sqrt(case.weights), axis=1))
                ),
            }
        )
    samples = [row["samples"] for row in rows]
    return {
        "datasets": datasets,
        "rows": rows,
        "slope_probe": _slope(samples, [row["probe_mean"] for row in rows]),
        "slope_average": _slope(samples, [row["average_mean"] for row in rows]),
    }


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
    """Speed of Algorithm 1 from sampling to encoder, without compilation time, for X = 16."""
    probability, classes = problems.distracted(np.random.default_rng(13), 2, 3)
    weights = np.full(classes.size, 1 / classes.size)
    rows = []
    for n in (10_000, 1_000_000):
        for seed in (0, 1):  # the first run compiles
            start = time.perf_counter()
            sample = pairs.sample_pairs(jax.random.key(seed), weights, probability, n)
            counts = pairs.stacked(pairs.count_pairs(*sample, classes.size))
            sampled = time.perf_counter()
            zl.coordinate_descent(jax.random.key(seed), counts, 4, scale.restarts)
            end = time.perf_counter()
        rows.append(
            {
                "samples": n,
                "sampling_seconds": sampled - start,
                "descent_seconds": end - sampled,
                "samples_per_second": n / (end - start),
            }
        )
    return rows
