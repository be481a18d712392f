"""A linear probe: how much of a target a linear function of the representation explains."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rcrl_jax.training import curves

# One hue per arm, repeated in a cycle, dark and light.
SHADES = (("#00695c", "#80cbc4"), ("#d84315", "#ffab91"), ("#283593", "#9fa8da"),
          ("#6a1b9a", "#ce93d8"), ("#424242", "#bdbdbd"))  # fmt: skip

_PENALTIES = np.logspace(-4, 4, 17)  # of the ridge regression, in units of the sample's size


def explained_variance(
    features: np.ndarray,
    target: np.ndarray,
    test_features: np.ndarray,
    test_target: np.ndarray,
) -> float:
    """R^2 of a ridge regression on data it has not seen.

    Features are centred and scaled to unit variance, so that the scale of a representation does not
    matter. The penalty has the smallest generalised cross-validation error on the fitted data
    (Golub, Heath and Wahba, 1979).

    Args:
      features: `[N, d]`, fitted.
      target: `[N]`.
      test_features: `[M, d]`, not seen.
      test_target: `[M]`.

    Returns:
      1 - (squared error / variance of the unseen target). At most 1; below 0 if the mean of the
      unseen target predicts better; NaN if the unseen target is constant, as in episodes without a
      reward.
    """
    if np.ptp(test_target) == 0:
        return float("nan")
    mean, scale = features.mean(axis=0), features.std(axis=0)
    scale[scale < 1e-8] = np.inf  # a constant feature explains nothing
    x, x_test = (features - mean) / scale, (test_features - mean) / scale
    y = target - target.mean()

    u, singular, vt = np.linalg.svd(x, full_matrices=False)
    projected = u.T @ y  # [k]
    rest = np.sum((y - u @ projected) ** 2)  # squared error that no weights can remove
    shrink = singular**2 / (singular**2 + len(y) * _PENALTIES[:, None])  # [penalties, k]
    errors = rest + np.sum(((1 - shrink) * projected) ** 2, axis=1)
    freedom = len(y) - 1 - shrink.sum(axis=1)  # the mean takes one degree
    best = np.argmin(errors / np.maximum(freedom, 1e-9) ** 2)

    inverse = np.divide(shrink[best], singular, out=np.zeros_like(singular), where=singular > 0)
    predicted = target.mean() + x_test @ (vt.T @ (inverse * projected))
    error = np.sum((test_target - predicted) ** 2)
    return float(1 - error / np.sum((test_target - test_target.mean()) ** 2))


def draw(path: pathlib.Path, lines: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draws what a linear probe explains, before and after training, seed by seed, with its nulls.

    Args:
      path: PNG to write.
      lines: `preset`, `seed`, `agent_steps`, `explained_variance` of phi, of the step number
        (`_clock`) and of a constant (`_constant`); two per seed. All lines have the same nulls.
      title: of the figure.
    """
    presets = list(dict.fromkeys(line["preset"] for line in lines))
    figure = Figure(figsize=(1.5 + 1.6 * len(presets), 4), dpi=100, layout="constrained")
    panel = figure.subplots()
    for place, (preset, (color, _)) in enumerate(
        zip(presets, itertools.cycle(SHADES), strict=False)
    ):
        own = [line for line in lines if line["preset"] == preset]
        for seed in dict.fromkeys(line["seed"] for line in own):
            pair = sorted(
                (line["agent_steps"], line["explained_variance"])
                for line in own
                if line["seed"] == seed
            )
            panel.plot(
                [place - 0.15, place + 0.15], [value for _, value in pair], "o-", color=color
            )
    for kind, words, dash in (("clock", "step number", ":"), ("constant", "constant", "--")):
        null = lines[0][f"explained_variance_{kind}"]
        panel.axhline(null, color="#000000", ls=dash, lw=1, label=f"probe on the {words}")
    panel.legend(fontsize=8, frameon=False)
    panel.axhline(0, color="#888888", linewidth=0.8)
    panel.set_xticks(range(len(presets)), presets)
    panel.set(ylabel="explained variance (R²), unseen episodes", title=title)
    panel.set_xlabel("each line: one seed, before and after training")
    panel.grid(color="#eeeeee", axis="y")
    curves.save_figure(figure, path)
