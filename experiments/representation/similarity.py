"""Similarities of representations during training, and snapshots for measuring them later."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import traverse_util
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from experiments.representation.probe import SHADES
from rcrl_jax import files, types
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.training import curves
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Moment, Plan

_EMBEDDING = ("encoder", "action_embedding")  # the parameters that phi(s, a) depends on
_DISCRIMINATOR = "return_contrast"  # the task whose parameters are the discriminator's
_REPLAY = "replay_"  # prefix of a snapshot's values for replay pairs


class Similarity(NamedTuple):
    """Mean cosine similarity to the anchor, of R runs."""

    positive: np.ndarray  # [R]
    negative: np.ndarray  # [R]


def measure(fleet: Fleet, params: types.TrainableParams, pairs: types.ContrastBatch) -> Similarity:
    """Similarities under the parameters of R runs.

    Args:
      fleet: compares the pairs.
      params: of the fleet, at least what `params_to_keep` returns.
      pairs: leading axes `[R, N]`.
    """
    positive, negative = (
        fleet.compare(params, pairs.anchor, other).cosine.mean(axis=1)
        for other in (pairs.positive, pairs.negative)
    )
    return Similarity(positive, negative)


def params_to_keep(params: types.TrainableParams) -> types.TrainableParams:
    """The parameters that phi depends on, and the discriminator's if there is one."""
    phi = {k: v for k, v in params.agent["params"].items() if k in _EMBEDDING}
    contrast = {k: v for k, v in params.auxiliary.items() if k == _DISCRIMINATOR}
    return types.TrainableParams({"params": phi}, contrast)


class Observer:
    """Watches a training run: writes snapshots of phi, with the similarities of replay pairs.

    Each snapshot is one file beside the run's other files. A resumed run writes the snapshots after
    its checkpoint again, with the same content.
    """

    def __init__(self, plan: Plan, pairs: int) -> None:
        """Watches the runs of `plan`; draws `pairs` replay pairs of each kind per snapshot."""
        self._directories = [snapshot_directory(paths) for paths in plan.paths]
        self._pairs = pairs

    def __call__(self, moment: Moment) -> None:
        """See `plan.Plan.observe`."""
        params = params_to_keep(moment.params)
        scalars = {}
        # Earlier, the replay may hold no anchor to draw.
        if moment.step >= moment.fleet.agent.schedule.learn_start:
            pairs = moment.replay.sample_to_measure(self._pairs)
            similarity = measure(moment.fleet, params, pairs)
            scalars = {_REPLAY + kind: value for kind, value in similarity._asdict().items()}
        kept = moment.fleet.to_host(params)._asdict() | scalars
        for run, directory in enumerate(self._directories):
            own = jax.tree.map(lambda x, run=run: x[run], kept)
            directory.mkdir(parents=True, exist_ok=True)
            with files.replacing(directory / f"{moment.step:09d}.npz") as partial:
                np.savez(partial, **traverse_util.flatten_dict(own, sep="/"))


class Snapshot(NamedTuple):
    """A moment of R runs."""

    step: int
    params: types.TrainableParams  # as `params_to_keep` returns them, leading axis R
    replay: Similarity | None  # None before learning has started


def snapshot_directory(paths: RunPaths) -> pathlib.Path:
    """The directory of one run's snapshots."""
    return paths.directory / "snapshots"


def read_snapshots(plan: Plan) -> list[Snapshot]:
    """The snapshots of all runs of a plan, in the order of their steps.

    Raises:
      FileNotFoundError: the first run has no snapshots, or another run lacks one.
    """
    directories = [snapshot_directory(paths) for paths in plan.paths]
    names = sorted(path.name for path in directories[0].glob("[0-9]*.npz"))
    if not names:
        raise FileNotFoundError(f"{directories[0]} holds no snapshots: the run had no observer")
    return [_read([directory / name for directory in directories]) for name in names]


def _read(paths: list[pathlib.Path]) -> Snapshot:
    arrays = []
    for path in paths:
        with np.load(path) as file:
            arrays.append(traverse_util.unflatten_dict(dict(file), sep="/"))
    together = jax.tree.map(lambda *runs: np.stack(runs), *arrays)
    replay = [together.pop(_REPLAY + kind, None) for kind in Similarity._fields]
    # A file has no entry for the empty dictionary of an agent without a discriminator.
    params = types.TrainableParams(together["agent"], together.get("auxiliary", {}))
    return Snapshot(int(paths[0].stem), params, None if replay[0] is None else Similarity(*replay))


def draw(
    path: pathlib.Path,
    similarities: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
    title: str,
) -> None:
    """Draws cosines and scores over training, as figures 3 and 4 of the paper.

    With several seeds, a thick curve is their mean, and thin curves are the seeds. A preset has one
    hue, dark for positives, light for negatives.

    Args:
      path: PNG to write.
      similarities: `preset`, `seed`, `agent_steps`, `pairs`, `cosine_positive`, `cosine_negative`;
        all seeds have the same steps.
      scores: `preset`, `seed`, `agent_steps`, `score`; likewise.
      title: of the figure.
    """
    figure = Figure(figsize=(13, 4), dpi=100, layout="constrained")
    panels = figure.subplots(ncols=3)
    presets = dict.fromkeys(line["preset"] for line in similarities)
    for preset, shades in zip(presets, itertools.cycle(SHADES), strict=False):
        cosines, own_scores = (
            [line for line in lines if line["preset"] == preset] for lines in (similarities, scores)
        )
        for panel, pairs in zip(panels, ("held_out", "replay"), strict=False):
            own = [line for line in cosines if line["pairs"] == pairs]
            for kind, color in zip(Similarity._fields, shades, strict=True):
                _draw_seeds(panel, own, f"cosine_{kind}", color, f"{preset}, {kind}")
        _draw_seeds(panels[2], own_scores, "score", shades[0], preset)
    for panel, name in zip(panels, ("evaluation episodes", "the replay"), strict=False):
        panel.set(title=f"pairs of {name}", ylabel="cosine similarity to the anchor")
        panel.set_ylim(top=1.02)
    panels[2].set(title="score", ylabel="mean return of an evaluation")
    for panel in panels:
        panel.set_xlabel("agent steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.legend(fontsize=8, frameon=False)
        panel.grid(color="#eeeeee")
    figure.suptitle(title)
    curves.save_figure(figure, path)


def _draw_seeds(
    panel: Axes, lines: Sequence[Mapping[str, Any]], value: str, color: str, label: str
) -> None:
    """Draws each seed of a preset, and their mean."""
    points: dict[int, dict[int, float]] = {}
    for line in lines:
        points.setdefault(line["seed"], {})[line["agent_steps"]] = line[value]
    seeds = [np.array(sorted(own.items()), np.float64).T for own in points.values()]
    if len(seeds) > 1:
        for steps, values in seeds:
            panel.plot(steps, values, color=color, lw=0.5, alpha=0.5)
    if seeds:
        panel.plot(*np.mean(seeds, axis=0), color=color, lw=1.8, label=label)
