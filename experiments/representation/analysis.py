"""The analysis of finished runs, from their snapshots and a few episodes of their final agents."""

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.representation import draws, probe, similarity
from rcrl_jax import files, types
from rcrl_jax.return_contrast import episodes
from rcrl_jax.runs import records
from rcrl_jax.training import build, evaluation
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan

Line = dict[str, Any]  # an object of a JSONL file

_DRAW = 0  # seed of the draws from the episodes, the same for every preset and run


class Arm(NamedTuple):
    """One preset of the comparison: a fleet that has finished training."""

    plan: Plan
    fleet: Fleet
    snapshots: list[similarity.Snapshot]

    def pairs_at(self, recorded: Sequence[episodes.Episode], steps: episodes.Steps) -> types.Pairs:
        """State-action pairs `[R, N]`, the same for every run."""
        one = episodes.pairs_at(recorded, steps, self.fleet.agent.observations)
        return jax.tree.map(lambda x: np.broadcast_to(x, (len(self.plan.runs), *x.shape)), one)

    def lines(self, step: int, **columns: np.ndarray | str) -> list[Line]:
        """One line per run; columns `[R]` give each run its own value."""
        return [
            {"preset": self.plan.preset, **run._asdict(), "agent_steps": step}
            | {k: v if isinstance(v, str) else float(v[r]) for k, v in columns.items()}
            for r, run in enumerate(self.plan.runs)
        ]


def analyse(
    plans: Sequence[Plan],
    directory: pathlib.Path,
    *,
    num_pairs: int,
    probe_steps: int,
    num_episodes: int = 2,
) -> None:
    """Writes the lines of a comparison, and their figures.

    Held-out pairs come from episodes of the final agents of every arm, and are the same for every
    arm, run and snapshot. The probe is fitted on half of those episodes and tested on the others.

    Args:
      plans: finished experiments on one game, whose observer was `similarity.Observer`.
      directory: where everything is written.
      num_pairs: held-out anchors.
      probe_steps: number of steps of those episodes for the probe, fitted and tested together.
      num_episodes: episodes of each run, at least 2.

    Raises:
      FileNotFoundError: a run has no snapshots.
      OSError: a file cannot be written.
    """
    arms, recorded = [], []
    for plan in plans:
        fleet, params = build.restore_agents(plan)
        arms.append(Arm(plan, fleet, similarity.read_snapshots(plan)))
        agent = fleet.agent
        recorder = episodes.Recorder(
            len(plan.runs) * num_episodes, agent.replay.contrast_rule.tolerance, agent.protocol
        )
        games = evaluation.Games(plan.make_environment, plan.total_steps, range(num_episodes))
        evaluation.evaluate(params, fleet, games, after_step=recorder)
        recorded += recorder.episodes
    rng = np.random.default_rng(_DRAW)
    contrast = draws.draw_contrast(recorded, num_pairs, rng)
    probed = draws.draw_steps(recorded, probe_steps, rng)

    similarities = [line for arm in arms for line in _similarities(arm, recorded, contrast)]
    probes = [line for arm in arms for line in _probes(arm, recorded, probed)]

    directory.mkdir(parents=True, exist_ok=True)
    _write_lines(directory / "similarity.jsonl", similarities)
    _write_lines(directory / "probe.jsonl", probes)
    scores = [line for arm in arms for line in _scores(arm)]
    similarity.draw(directory / "similarity.png", similarities, scores, directory.name)
    title = f"{directory.name}: linear probe of the return"
    probe.draw(directory / "probe.png", probes, title)


def _similarities(
    arm: Arm,
    recorded: Sequence[episodes.Episode],
    contrast: tuple[episodes.Steps, episodes.Steps, episodes.Steps],
) -> list[Line]:
    held_out = types.ContrastBatch(*(arm.pairs_at(recorded, steps) for steps in contrast))
    lines = []
    for snapshot in arm.snapshots:
        of = {"held_out": similarity.measure(arm.fleet, arm.fleet.place(snapshot.params), held_out)}
        if snapshot.replay is not None:
            of["replay"] = snapshot.replay
        for pairs, (positive, negative) in of.items():
            lines += arm.lines(
                snapshot.step, pairs=pairs, cosine_positive=positive, cosine_negative=negative
            )
    return lines


def _scores(arm: Arm) -> list[Line]:
    """Mean returns of the evaluations of training."""
    return [
        {"preset": arm.plan.preset, "seed": run.seed}
        | {"agent_steps": line["agent_steps"], "score": line["mean"]}
        for run, paths in zip(arm.plan.runs, arm.plan.paths, strict=True)
        for line in records.read_evaluations(paths.evaluations)
    ]


def _probes(arm: Arm, recorded: Sequence[episodes.Episode], steps: episodes.Steps) -> list[Line]:
    """The linear probe before and after training; fitted on every other episode.

    The nulls are the same probe on the step number alone and on a constant. The step number
    predicts much of a return. What phi explains beyond it may still be time, which phi may hold in
    other than linear form.
    """
    discount = arm.fleet.agent.replay.discount
    returns = [draws.discounted_returns(episode, discount) for episode in recorded]
    target = np.array([returns[e][t] for e, t in zip(*steps, strict=True)])
    fit = steps.episode % 2 == 0

    def explained(features: np.ndarray) -> float:
        return probe.explained_variance(features[fit], target[fit], features[~fit], target[~fit])

    time = steps.time[:, None].astype(np.float64)
    runs = len(arm.plan.runs)
    nulls = {
        "explained_variance_clock": np.full(runs, explained(time)),
        "explained_variance_constant": np.full(runs, explained(np.zeros_like(time))),
    }
    pairs = arm.pairs_at(recorded, steps)
    lines = []
    for snapshot in (arm.snapshots[0], arm.snapshots[-1]):
        phi = arm.fleet.embed(arm.fleet.place(snapshot.params.agent), pairs).astype(np.float64)
        of_phi = np.array([explained(x) for x in phi])
        lines += arm.lines(snapshot.step, explained_variance=of_phi, **nulls)
    return lines


def _write_lines(path: pathlib.Path, lines: Sequence[Line]) -> None:
    with files.replacing(path) as partial:
        text = "".join(json.dumps(files.to_json_value(line)) + "\n" for line in lines)
        partial.write_text(text, encoding="utf-8")
