"""The figures of docs/theory.md, drawn from the results of `studies`."""

import pathlib

import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from rcrl_jax import files

matplotlib.use("Agg")

_DPI = 90


def draw_all(results: dict, folder: pathlib.Path) -> None:
    """Writes the six PNG files that docs/theory.md shows.

    Args:
      results: what the studies returned, by their names in `experiments/theory.py`.
      folder: an existing folder.
    """
    drawings = {
        "representation": _representation,
        "coarseness": _coarseness,
        "theorem": _theorem,
        "rare_probe": _rare_probe,
        "imbalance": _imbalance,
        "segments": _segments,
    }
    for name, draw in drawings.items():
        figure = draw(results)
        with files.replacing(folder / f"{name}.png") as partial:
            figure.savefig(partial, dpi=_DPI)
        plt.close(figure)


def _column(rows: list[dict], key: str) -> np.ndarray:
    return np.array([row[key] for row in rows])


def _representation(results):
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    rows = results["representation"]
    for name in ("deterministic", "deterministic, discounted", "sparse episodes", "dense episodes"):
        chosen = [row for row in rows if row["family"] == name]
        axes.plot(_column(chosen, "bins"), _column(chosen, "worst"), "o-", label=name, ms=4)
    axes.axhline(1, color="black", ls="--", label="Proposition 4.1")
    axes.axhline(0.5, color="grey", ls=":", label="if Q(z) is the middle of the class")
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="bins K",
        ylabel="largest error of Q(φ(x)) / bin width",
        title="Proposition 4.1, worst representative of each class",
        ylim=(-0.05, 1.5),
    )
    axes.legend(fontsize=8, ncols=2, loc="upper right")
    return figure


def _coarseness(results):
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    rows = [row for row in results["coarseness"] if not row["family"].startswith("grid")]
    places = np.arange(len(rows))
    kinds = {"bisimulation": "bisimulation × |A|", "N_inf": "N$_{π,∞}$", "N_16": "N$_{π,16}$"}
    kinds["N_4"] = "N$_{π,4}$"
    for offset, (key, label) in enumerate(kinds.items()):
        share = _column(rows, key) / _column(rows, "pairs")
        axes[0].bar(places + 0.2 * offset, share, 0.2, label=label)
    axes[0].set_xticks(places + 0.3, [row["family"] for row in rows], rotation=20, fontsize=8)
    axes[0].set(ylabel="classes / |X|", title="Size of the coarsest abstraction")
    axes[0].set_ylim(0, 1.3)
    axes[0].legend(fontsize=8, ncols=2)
    grids = [row for row in results["coarseness"] if row["family"].startswith("grid")]
    grids.sort(key=lambda row: row["pairs"])
    styles = iter(("o-", "o-", "s-", "o--", "x:"))  # keep coinciding curves of N visible
    bits = np.round(np.log2(_column(grids, "pairs") / grids[0]["pairs"]))
    for key, label in {"pairs": "|X|", **kinds}.items():
        axes[1].plot(bits, _column(grids, key), next(styles), label=label, ms=4)
    axes[1].set_yscale("log")
    axes[1].set_xticks(bits)
    axes[1].set(xlabel="distractor bits", ylabel="size", title="3 × 3 grid, uniform policy")
    axes[1].legend(fontsize=8)
    return figure


def _theorem(results):
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    theorem = results["theorem"]
    rows = theorem["rows"]
    n = _column(rows, "samples").astype(float)
    left = _column(rows, "left_mean")
    axes[0].loglog(n, _column(rows, "bound"), "k--", label="right side")
    axes[0].loglog(n, left, "o-", label=f"left side, slope {theorem['slope_left']:.2f}", ms=4)
    axes[0].loglog(n, _column(rows, "left_quantile"), "o:", label="95 % quantile", ms=3)
    axes[0].loglog(n, left[0] * np.sqrt(n[0] / n), color="grey", lw=0.8, label="1/√n")
    axes[0].set(xlabel="samples n", title="Theorem 4.1, fixed random MDPs")
    axes[1].loglog(n, _column(rows, "lemma"), "k--", label="Δ$_{reg}$ of Lemma B.2")
    axes[1].loglog(
        n,
        _column(rows, "error_mean"),
        "o-",
        label=f"E($\\hat f$ − f*)², slope {theorem['slope_error']:.2f}",
        ms=4,
    )
    axes[1].set(xlabel="samples n", title="Lemma B.2")
    for axis in axes:
        axis.legend(fontsize=8)
    return figure


def _rare_probe(results):
    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    probe = results["rare_probe"]
    n = _column(probe["rows"], "samples")
    axes.loglog(n, _column(probe["rows"], "bound"), "k--", label="right side of Theorem 4.1")
    for key, label in (("probe", "left side at the rare x'"), ("average", "left side, x' ~ d")):
        axes.loglog(
            n,
            _column(probe["rows"], f"{key}_mean"),
            "o-",
            label=f"{label}, slope {probe[f'slope_{key}']:.2f}",
            ms=4,
        )
    axes.set(xlabel="samples n", title="Theorem 4.1 “for any x'”: fails where x' is rare")
    axes.legend(fontsize=8)
    return figure


def _imbalance(results):
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    rows = results["imbalance"]
    samples = sorted({row["samples"] for row in rows})[:2]
    styles = {"independent": "-", "reweighted": ":", "balanced": "--"}
    for colour, n in enumerate(samples):
        chosen = [row for row in rows if row["samples"] == n]
        for key, style in styles.items():
            axes[0].plot(
                _column(chosen, "bins"),
                _column(chosen, f"merged_{key}"),
                style,
                color=f"C{colour}",
                label=f"{key}, n = {n}",
            )
    axes[0].set(xlabel="bins K", ylabel="wrongly merged share of d × d", title="Encoders learned")
    axes[0].legend(fontsize=8)
    chosen = [row for row in rows if row["samples"] == samples[0]]
    axes[1].loglog(_column(chosen, "bins"), _column(chosen, "share_of_zero_labels"), "o-")
    axes[1].set(xlabel="bins K", ylabel="share of y = 0", title="Balance of i.i.d. labels")
    for axis in axes:
        axis.set_xscale("log", base=2)
    return figure


def _segments(results):
    figure, axes = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    segment = results["segment_sampling"]
    needed = segment["sizes"]
    axes[0].bar([row["pairs"] for row in needed], [row["blocks_needed"] for row in needed])
    axes[0].axhline(segment["visited_pairs"], color="black", ls="--", label="visited pairs")
    axes[0].tick_params(axis="x", labelsize=8)
    axes[0].set(ylabel="blocks", title="Needed to hold the Bayes predictor")
    axes[0].set_ylim(0, 1.3 * segment["visited_pairs"])
    axes[0].legend(fontsize=8)
    rows = [row for row in segment["rows"] if row["samples"] is not None]
    places = np.arange(3)
    keys = ("merged", "split", "value_error")
    for offset, row in enumerate(rows):
        axes[1].bar(places + 0.25 * offset, [row[k] for k in keys], 0.25, label=row["pairs"])
    labels = ["wrongly merged", "wrongly split", "error of Q(φ(x))\n/ spread of Q"]
    axes[1].set_xticks(places + 0.25, labels, fontsize=8)
    axes[1].set(title="Encoder with N$_{π,∞}$ blocks, n = 10$^6$")
    axes[1].legend(fontsize=8)
    return figure
