"""Scores and films trained agents; writes to a separate directory."""

import dataclasses
import functools
import os
import pathlib
import signal
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax

from rcrl_jax import files, reference, types, words
from rcrl_jax.envs import pools
from rcrl_jax.runs import checkpoints, manifest, parameters, recorder, workdir
from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.runs.workdir import Kept, Trained, Unusable
from rcrl_jax.signals import SAME_STOP_S, stop_signals
from rcrl_jax.training import build, evaluation, loop, nulls, video
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan
from rcrl_jax.training.progress import Progress

Say = Callable[[str], None]

SCORES, VIDEO = "evaluation.json", "video.mp4"

_ATTEMPTS = 3  # training may replace a checkpoint while it is read


class Stopped(Exception):
    """A signal ended the evaluation; nothing was written."""

    def __init__(self, signum: int) -> None:
        """Remembers which signal it was."""
        super().__init__(f"stopped by {signal.Signals(signum).name}: nothing was written")
        self.signum = signum


class Request(NamedTuple):
    """What to score.

    Attributes:
      workdir: the work directory of a training command, or the directory of one run that holds its
        final parameters.
      games: games of the runs to score; None means all.
      seeds: seeds of the runs to score; None means all.
      step: agent steps of the checkpoint; None means the newest.
      backend: the simulator; None means the backend of training.
      episodes: games per run; None means as many as in the final evaluation of training.
      first_episode: number of the first game, see `evaluation.evaluate`.
      film: whether to film the first game of each run.
      nulls: whether to play without learning, too, see `nulls`.
      output: where results go; None means `runs/evaluate-<name>-<step>`. `<name>` is the work
        directory's name or, for final parameters, `<preset>-<game>-<seed>`.
    """

    workdir: pathlib.Path
    games: Sequence[str] | None = None
    seeds: Sequence[int] | None = None
    step: int | None = None
    backend: str | None = None
    episodes: int | None = None
    first_episode: int = 0
    film: bool = False
    nulls: bool = False
    output: pathlib.Path | None = None


def score(request: Request, say: Say = words.say) -> list[RunPaths]:
    """Plays games with the agents of a checkpoint; writes scores and films.

    Nothing below the work directory changes. Training may go on there.

    Args:
      request: what to score.
      say: prints a line for the user.

    Returns:
      Where the results of each run are.

    Raises:
      Unusable: the work directory has no such checkpoint or runs, the backend does not fit, the
        output is taken, or an agent has diverged.
      ImportError: the backend is not installed, or does not render.
      VideoFailed: there are no frames to film or no ffmpeg, or it failed.
      SimulatorFailed: a simulator has ended or hangs.
      Stopped: SIGTERM, SIGINT or SIGHUP came.
      OSError: a file cannot be read or written.
    """
    found = workdir.read(request.workdir)
    rows = _select(found, request)
    backend = request.backend or found.backend
    plan = _plan_of(found, backend)
    if request.film:
        video.check(found.config, found.runs[0].game)
    num_episodes = request.episodes or plan.eval_episodes
    environment, fleet = build.make_fleet(plan, rows)
    environment.close()
    kept, params = _load(found, fleet, rows, request.step)
    outputs = _claim_output(found, rows, kept, request.output)
    say(
        f"{found.preset} after {kept.step:,} of {found.total_steps:,} agent steps, from "
        f"{kept.path}: {words.count('episode', num_episodes)} a run; runs: {len(rows)}"
    )
    environments = [pools.describe_one(environment.description, row) for row in rows]
    if kept.is_parameters:
        say("parameters rounded to half precision: games may end otherwise than in training")
    changes = _changes(found.manifests[rows[0]], environments[0])
    if changes:
        say(f"warning: not as in training: {changes}")
    runs = [found.runs[row] for row in rows]
    together = found.runs + found.trained_with
    make_environment = build.environment_maker(found.config, runs, backend, together)
    numbers = range(request.first_episode, request.first_episode + num_episodes)
    games = evaluation.Games(
        make_environment, kept.step, numbers, film=len(runs) if request.film else 0
    )
    result, without_learning = _play(params, fleet, games, request.nulls)

    _check_free(outputs)  # another program may have written meanwhile
    for paths in outputs:
        paths.directory.mkdir(parents=True, exist_ok=True)
    spec = environment.spec
    counters = recorder.Counters(
        kept.step, spec.action_repeat * kept.step, spec.frames_per_step * kept.step
    )
    common = {
        "first_episode": request.first_episode,
        "checkpoint": kept.path,
        "protocol": {
            **fleet.agent.evaluation.protocol,
            "environment_seeds": "those of training's evaluations, from (seed, purpose, "
            "agent_steps); episodes are numbered, and training plays those from 0 on",
        },
        **manifest.circumstances(),
    }
    if request.film:  # before the scores: if filming fails, the same command can run again
        for paths, film in zip(outputs, result.films, strict=True):
            video.write_video(paths.directory / VIDEO, film)
    for r, (row, paths) in enumerate(zip(rows, outputs, strict=True)):
        returns = result.returns[r]
        film = {"file": VIDEO, "episode": request.first_episode, "return": returns[0]}
        described = {
            "measured": "evaluation of a checkpoint",
            **recorder.describe_scores(paths, counters, returns, episodes_cut=result.cut[r]),
            "standard_error": nulls.with_error(returns)["standard_error"],
            "physics_errors": result.failed[r],
            "nulls": without_learning[r],
            "video": film if request.film else None,
            "run": found.manifests[row]["run"],
            "environment": environments[r],
            **common,
        }
        files.write_json_atomically(paths.directory / SCORES, described)
        say(_report(paths, described))
    return outputs


def load(
    directory: str | os.PathLike, step: int | None = None, rows: Sequence[int] | None = None
) -> tuple[Plan, Fleet, types.Params]:
    """Trained agents, to play with or to analyse.

    Args:
      directory: the work directory of a training command, or the directory of one run that holds
        its final parameters.
      step: agent steps of the checkpoint; None means the newest.
      rows: places of the runs in the work directory's order; None means all.

    Returns:
      The plan of these runs, which can make their environments; the fleet; and the agents'
      parameters, leading axis R, on the devices.

    Raises:
      Unusable: there is no such checkpoint, its backend is unknown, or an agent has diverged.
      ImportError: the backend is not installed, or does not render.
      OSError: a file cannot be read.
    """
    found = workdir.read(pathlib.Path(directory))
    plan, rows = _plan_of(found, found.backend), range(len(found.runs)) if rows is None else rows
    environment, fleet = build.make_fleet(plan, rows)
    environment.close()
    _, params = _load(found, fleet, rows, step)
    # Makes environments for these runs only, with the shapes of the fleet that trained together.
    runs = tuple(found.runs[row] for row in rows)
    make_environment = build.environment_maker(found.config, runs, found.backend, plan.runs)
    plan = dataclasses.replace(plan, runs=runs, make_environment=make_environment)
    return plan, fleet, params


def _plan_of(found: Trained, backend: str) -> Plan:
    """The plan of a work directory's training, maybe on another backend.

    The runs of the directory come first, then the runs that trained with them.

    Raises:
      Unusable: unknown game or backend, or a backend without this observation.
    """
    runs = found.runs + found.trained_with
    return Plan(
        preset=found.preset,
        config=found.config,
        runs=runs,
        total_steps=found.total_steps,
        workdir=found.workdir,
        eval_episodes=found.final_episodes,
        make_environment=build.environment_maker(found.config, runs, backend),
    )


def _select(found: Trained, request: Request) -> list[int]:
    """Indices of the chosen runs in `found.runs`."""
    for flag, wanted, there in (
        ("games", request.games, list(dict.fromkeys(run.game for run in found.runs))),
        ("seeds", request.seeds, list(dict.fromkeys(run.seed for run in found.runs))),
    ):
        for one in wanted or ():
            if one not in there:
                those = ", ".join(map(str, there))
                raise Unusable(f"--{flag}: {found.workdir} has no run of {one}; it has {those}")
    return [
        row
        for row, run in enumerate(found.runs)
        if run.game in (request.games or (run.game,)) and run.seed in (request.seeds or (run.seed,))
    ]


def _load(
    found: Trained, fleet: Fleet, rows: Sequence[int], step: int | None
) -> tuple[Kept, types.Params]:
    """A checkpoint (the newest if `step` is None), and the parameters of the fleet's agents."""
    shapes = jax.eval_shape(fleet.init).params.agent
    for attempt in range(_ATTEMPTS):
        kept = workdir.find_checkpoint(found, step)
        try:
            arrays = checkpoints.read_agents(kept.path, len(found.runs))
            with files.reading(kept.path):
                params = parameters.fit(arrays, rows, shapes)
            break
        except FileNotFoundError:
            if attempt == _ATTEMPTS - 1:
                raise
        except ValueError as error:
            raise Unusable(str(error)) from error
    for r in loop.not_finite(jax.tree.leaves(params)):
        run = found.runs[rows[r]]
        raise Unusable(
            f"the agent of {run.game}, seed {run.seed}, has diverged: its parameters in "
            f"{kept.path} are not finite; choose other runs or another --step"
        )
    return kept, fleet.to_devices(params)


def _claim_output(
    found: Trained, rows: Sequence[int], kept: Kept, output: pathlib.Path | None
) -> list[RunPaths]:
    """Places for the results of each run; refuses those that hold scores or cannot be written."""
    run = found.runs[rows[0]]
    name = found.workdir.resolve().name
    if kept.is_parameters:
        name = f"{found.preset}-{run.game}-{run.seed}"
    output = output or pathlib.Path("runs") / f"evaluate-{name}-{kept.step}"
    outputs = [RunPaths(output, found.preset, *found.runs[row]) for row in rows]
    own = found.workdir.resolve()
    if any(paths.directory.resolve().is_relative_to(own) for paths in outputs):
        raise Unusable(f"--output: {output} is in the work directory, which stays as it is")
    _check_free(outputs)
    for paths in outputs:
        try:
            files.check_writable(paths.directory)
        except OSError as error:
            raise Unusable(
                f"--output: {paths.directory} cannot be written: {error.strerror}"
            ) from error
    return outputs


def _check_free(outputs: Sequence[RunPaths]) -> None:
    for paths in outputs:
        if (paths.directory / SCORES).exists():
            raise Unusable(f"{paths.directory / SCORES} is there already: choose another --output")


def _changes(described: dict[str, Any], environment: dict[str, Any]) -> str:
    """What differs from training and may change scores: code, versions, device, environment."""
    here = manifest.circumstances()
    here |= {"run": {"algorithm": manifest.algorithm(described["run"]["preset"])}}
    here |= {"environment": files.to_json_value(environment)}
    old, new = (
        {
            "algorithm": of["run"].get("algorithm"),
            **of["versions"],
            "git_commit": None,
            "device": of["device"].get("platform"),
            "environment": of["environment"],
        }
        for of in (described, here)
    )
    return manifest.describe_differences(old, new)


def _play(
    params: types.Params, fleet: Fleet, games: evaluation.Games, with_nulls: bool
) -> tuple[evaluation.Evaluation, list[dict[str, Any] | None]]:
    """Plays the games; with nulls, also compares each run with play without learning.

    Shows progress, and ends at a signal.
    """

    def stop_if_told() -> None:
        if received:
            raise Stopped(received[0])

    evaluate = functools.partial(
        evaluation.evaluate,
        before_step=stop_if_told,
        after_step=lambda *step: progress.advance(int(step[-1].sum())),
    )
    number = len(games.numbers)
    if with_nulls:
        number += nulls.count_games(fleet, number)
    with (
        stop_signals(ends_after_s=SAME_STOP_S) as received,
        Progress(fleet.num_runs * number, unit="episodes") as progress,
    ):
        try:
            result = evaluate(params, fleet, games)
        except FloatingPointError:
            raise Unusable(
                f"an agent has diverged: its action is not finite at step {games.agent_steps}; "
                "choose other runs or another --step"
            ) from None
        if not with_nulls:
            return result, [None] * fleet.num_runs
        play = nulls.play_of(fleet, games, evaluate)
        return result, nulls.measure(fleet, result.returns, play)


def _report(paths: RunPaths, described: dict[str, Any]) -> str:
    """The comparison with published scores, and further results of the evaluation."""
    error = described["standard_error"]
    spread = "" if error is None else f", standard error {error:.1f}"
    lines = [
        reference.comparison(
            paths.game, paths.preset, described["mean"], recorder.sample_size(described)
        ),
        f"seed {paths.seed}: mean of {words.count('episode', described['episodes'])} "
        f"{described['mean']:.1f}{spread}, median {described['median']:.1f}",
    ]
    if described["nulls"]:
        lines.append(nulls.describe(described["nulls"]))
    if described["video"]:
        lines.append(f"the film shows an episode of return {described['video']['return']:g}")
    return "\n".join([*lines, f"results in {paths.directory}"])
