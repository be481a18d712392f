"""The figures of docs/theory.md, drawn from the results of the studies."""

import pathlib

import numpy as np
from matplotlib.figure import Figure

from rcrl_jax import files


def draw_all(results: dict, folder: pathlib.Path) -> None:
    """Writes the four PNG files that docs/theory.md shows into an existing folder."""
    drawings = {
        "representation": (_representation, 1),
        "coarseness": (_coarseness, 2),
        "theorem": (_theorem, 2),
        "rare_probe": (_rare_probe, 1),
    }
    for name, (draw, panels) in drawings.items():
        size = (6, 4) if panels == 1 else (9.5, 4)
        figure = Figure(figsize=size, dpi=90, layout="constrained")
        axes = figure.subplots(1, panels, squeeze=False)[0]
        draw(results, *axes)
        for axis in axes:
            if axis.get_legend_handles_labels()[0] and axis.get_legend() is None:
                axis.legend(fontsize=8)
        with files.replacing(folder / f"{name}.png") as partial:
            figure.savefig(partial)


def _column(rows: list[dict], key: str) -> np.ndarray:
    return np.array([row[key] for row in rows])


def _curves(axis, x: np.ndarray, rows: list[dict], curves: dict[str, tuple[str, str]]) -> None:
    """Draws the column `key` of `rows` over `x` for each key -> (style, label) of `curves`."""
    for key, (style, label) in curves.items():
        axis.plot(x, _column(rows, key), style, label=label, ms=4)


def _representation(results, axis):
    for name in ("deterministic", "deterministic, discounted", "sparse episodes", "dense episodes"):
        rows = [row for row in results["representation"] if row["family"] == name]
        _curves(axis, _column(rows, "bins"), rows, {"worst": ("o-", name)})
    axis.axhline(1, color="black", ls="--", label="Proposition 4.1")
    axis.axhline(0.5, color="grey", ls=":", label="if Q(z) is the middle of the class")
    axis.set_xscale("log", base=2)
    axis.set(
        xlabel="bins K",
        ylabel="largest error of Q(φ(x)) / bin width",
        title="Proposition 4.1, worst representative of each class",
        ylim=(-0.05, 1.5),
    )
    axis.legend(fontsize=8, ncols=2, loc="upper right")


def _coarseness(results, shares, sizes):
    kinds = {
        "bisimulation": ("o-", "bisimulation × |A|"),
        "N_inf": ("s-", "N$_{π,∞}$"),
        "N_16": ("o--", "N$_{π,16}$"),
        "N_4": ("x:", "N$_{π,4}$"),  # styles that keep coinciding curves of N visible
    }
    rows = [row for row in results["coarseness"] if not row["family"].startswith("grid")]
    places = np.arange(len(rows))
    for offset, (key, (_, label)) in enumerate(kinds.items()):
        share = _column(rows, key) / _column(rows, "pairs")
        shares.bar(places + 0.2 * offset, share, 0.2, label=label)
    shares.set_xticks(places + 0.3, [row["family"] for row in rows], rotation=20, fontsize=8)
    shares.set(ylabel="classes / |X|", title="Size of the coarsest abstraction", ylim=(0, 1.3))
    shares.legend(fontsize=8, ncols=2)
    grids = [row for row in results["coarseness"] if row["family"].startswith("grid")]
    grids.sort(key=lambda row: row["pairs"])
    bits = np.round(np.log2(_column(grids, "pairs") / grids[0]["pairs"]))
    _curves(sizes, bits, grids, {"pairs": ("o-", "|X|"), **kinds})
    sizes.set_yscale("log")
    sizes.set_xticks(bits)
    sizes.set(xlabel="distractor bits", ylabel="size", title="3 × 3 grid, uniform policy")


def _theorem(results, sides, errors):
    theorem = results["theorem"]
    rows = theorem["rows"]
    n = _column(rows, "samples").astype(float)
    curves = {
        "bound": ("k--", "right side"),
        "left_mean": ("o-", f"left side, slope {theorem['slope_left']:.2f}"),
        "left_quantile": ("o:", "95 % quantile"),
    }
    _curves(sides, n, rows, curves)
    first = rows[0]["left_mean"]
    sides.plot(n, first * np.sqrt(n[0] / n), color="grey", lw=0.8, label="1/√n")
    curves = {
        "lemma": ("k--", "Δ$_{reg}$ of Lemma B.2"),
        "error_mean": ("o-", f"E($\\hat f$ − f*)², slope {theorem['slope_error']:.2f}"),
    }
    _curves(errors, n, rows, curves)
    for axis, title in ((sides, "Theorem 4.1, fixed random MDPs"), (errors, "Lemma B.2")):
        axis.set(xlabel="samples n", title=title, xscale="log", yscale="log")


def _rare_probe(results, axis):
    probe = results["rare_probe"]
    curves = {
        "bound": ("k--", "right side of Theorem 4.1"),
        "probe_mean": ("o-", f"left side at the rare x', slope {probe['slope_probe']:.2f}"),
        "average_mean": ("o-", f"left side, x' ~ d, slope {probe['slope_average']:.2f}"),
    }
    _curves(axis, _column(probe["rows"], "samples"), probe["rows"], curves)
    title = "Theorem 4.1 “for any x'”: fails where x' is rare"
    axis.set(xlabel="samples n", title=title, xscale="log", yscale="log")
