"""The front door: training from Python; `trained.py` reads what a training has left on the disk.

    run = train("minatar_rcrl", game="Breakout", seeds=range(4), workdir="runs/first")
    run.scores()                                   # columns, one row per run
    pandas.DataFrame(run.curves())                 # one row per evaluation of a run
    run.evaluate(episodes=10)                      # plays now; one row per episode
    player = run.player(seed=0)
    player.act(frames), player.embed(frames, action)

The training programs make their plans here, too. All errors are exceptions whose message is one
line.
"""

import functools
import importlib.util
import itertools
import math
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from rcrl_jax import compilation, words
from rcrl_jax.config import base, choices, fields, presets
from rcrl_jax.config.presets import Config
from rcrl_jax.envs import gymnasium_games, protocol
from rcrl_jax.runs import paths, tracking
from rcrl_jax.runs.paths import RunId
from rcrl_jax.trained import Columns, Run
from rcrl_jax.training import (
    build,
    experiment,
    gain,
    host_memory,
    initial,
    prediction,
    video,
)
from rcrl_jax.training.environments import ENVIRONMENTS, OWN, Environment, environment_of
from rcrl_jax.training.evaluation import EnvironmentMaker
from rcrl_jax.training.plan import Plan

if TYPE_CHECKING:
    import pandas as pd


def train(
    preset: str,
    game: str | Sequence[str] = (),
    *,
    environment: str | None = None,
    seeds: Sequence[int] = (0,),
    steps: int | None = None,
    workdir: str | os.PathLike | None = None,
    eval_episodes: int | None = None,
    settings: Mapping[str, Any] | None = None,
    backend: str | None = None,
    film: bool = False,
    nulls: bool = False,
    batching: str = "auto",
    devices: int | None = None,
    frame_store: str = "auto",
    init_from: Run | str | os.PathLike | None = None,
    init_part: str = "all",
    arm: str | None = None,
    track: bool = False,
    say: Callable[[str], None] = words.say,
    **fields_of_config: Any,
) -> Run:
    """Trains a preset on every game with every seed, in one fleet; the same call resumes.

    Args:
      preset: its name; `docs/contents.md` describes each.
      game: a game or task, or several.
      environment: instead of `game`, your own environment: `gymnasium:CartPole-v1`, or
        `mymodule:make` for a function that returns it; see `envs/gymnasium_games.py`.
      seeds: of each game.
      steps: agent steps of a run; by default those of the benchmark.
      workdir: where everything is written; by default `runs/<preset>-<games>-<seeds>`.
      eval_episodes: episodes of the final evaluation; by default those of the benchmark.
      settings: fields of the configuration by name, those of groups with dotted names:
        `{"return_contrast.batch_size": 32}`.
      backend: the simulator; by default the benchmark's first.
      film: whether to film the first episode of the final evaluation.
      nulls: whether to play these games without learning, too, and to report the gain.
      batching: 'map', 'vmap' or 'auto'; see `Fleet`.
      devices: how many devices share the runs; by default all, at most one for each run.
      frame_store: 'host', 'device' or 'auto': where the replay keeps frames.
      init_from: another training, from whose newest parameters these agents start. A single source
        run starts all runs; of several, each starts the run of the same seed and, if they have
        several games, of the same game.
      init_part: 'all' parameters of the source, or those of its 'encoder'. Auxiliary tasks
        always start anew.
      arm: what tables call these runs; by default the preset with the changed fields.
      track: whether to send records to Weights & Biases.
      say: prints a line for the user.
      **fields_of_config: fields without a group, such as `learning_rate=2e-4`.

    Raises:
      ValueError: an unknown preset, game, environment or field, or a value out of range.
      Exception: as `experiment.run` raises, such as `Interrupted` after a stop signal.
    """
    games = (game,) if isinstance(game, str) else tuple(game)
    if environment is not None:
        if games:
            raise ValueError("game beside environment: give one of them")
        games = (gymnasium_games.name_of(environment),)
    benchmark = OWN if environment is not None else _benchmark_of(preset, games)
    if preset not in (known := benchmark.presets_of(games[0])):
        raise ValueError(f"unknown preset {preset!r}: {protocol.nearest(preset, known)}")
    changes = {**(settings or {}), **fields_of_config}
    kinds = {field.name: field.type for field in fields.named_fields(known[preset])}
    if unknown := changes.keys() - kinds.keys():
        name = min(unknown)
        raise ValueError(f"{preset} has no field {name!r}: {protocol.nearest(name, [*kinds])}")
    changes = {name: fields.value_of(name, value, kinds[name]) for name, value in changes.items()}
    config = benchmark.configure_fleet(preset, games, changes, "game")
    seeds = _checked_seeds(seeds)
    if steps is not None:
        steps = fields.value_of("steps", steps, int, fields.at_least(1))
    if eval_episodes is not None:
        eval_episodes = fields.value_of("eval_episodes", eval_episodes, int, fields.at_least(1))
    if _prepare_memory(config.needs_large_blocks):
        say(
            "JAX was used before: settings of the host's memory come too late, which can cost "
            "speed on a CPU; start with this training in a fresh process"
        )
    if steps is None:
        steps = benchmark.steps(config) // benchmark.action_repeat(games[0], config)
    usual = paths.default_workdir(preset, games, seeds, benchmark.games)
    plan = make_plan(
        preset,
        config,
        games,
        seeds,
        steps,
        eval_episodes or benchmark.eval_episodes,
        backend or benchmark.backends[0],
        pathlib.Path(workdir or usual),
        film=film,
        batching=batching,
        devices=devices,
        frame_store=frame_store,
        init_from=init_from.directory if isinstance(init_from, Run) else init_from,
        init_part=init_part,
        arm=arm,
        track=track,
    )
    check_effects(plan, changes)
    carry_out(plan, benchmark.spec(config, games), say, nulls=nulls)
    return Run(plan.workdir)


def load(directory: str | os.PathLike) -> Run:
    """The runs of a work directory, or of a directory of one run with its final parameters.

    Needs no emulator.

    Raises:
      Unusable: the directory holds no run.
      OSError: a file cannot be read.
    """
    return Run(directory)


def scores(*directories: str | os.PathLike, steps: int | None = None) -> Columns:
    """The final scores of all finished runs below some directories, one row per run.

    Needs the extra `tables`.

    Args:
      *directories: of runs, at any depth.
      steps: agent steps; runs of other lengths are left out.

    Returns:
      `arm` (the name that the run was given, else the preset with the fields in which it differs),
      `game`, `seed`, `agent_steps` and `score`, the mean return.

    Raises:
      ValueError: a path is no directory.
      ImportError: the extra is not installed.
    """
    found = _finished(directories, steps)
    from rcrl_jax.tables import runs  # after the check that it can be imported

    return {name: column.to_numpy() for name, column in runs.scores(found).items()}


def score_matrices(
    *directories: str | os.PathLike, steps: int | None = None
) -> dict[str, np.ndarray]:
    """The scores of `scores` by arm, `[runs, games]`, as the library rliable takes them.

    Columns are the games that all arms have, in the paper's order. Rows are the seeds that have all
    these games. Only runs under equal conditions, such as their steps, share a matrix: the most
    runs count, and one line names each set of others.

    Raises:
      ValueError: a path is no directory, or the runs are of several benchmarks.
      ImportError: the extra is not installed.
    """
    found = _finished(directories, steps)
    from rcrl_jax.tables import pools, runs

    pool = pools.largest_of_one_benchmark(found, "runs")
    for line in pool.left_out:
        words.say(f"warning: {line}")
    matrices = runs.matrices(pool.runs)
    if any(not one.shape[1] for one in matrices.values()):
        words.say(
            f"warning: no game is common to {', '.join(matrices)}: name one benchmark's folder"
        )
    return matrices


def _finished(directories: Sequence[str | os.PathLike], steps: int | None) -> "pd.DataFrame":
    for name in ("jinja2", "pandas"):  # without them, importing the tables ends the program
        if importlib.util.find_spec(name) is None:
            raise ImportError(f"no {name}: pip install 'rcrl-jax[tables]'")
    from rcrl_jax.tables import runs

    frame, problems = runs.read(*directories)
    for line in problems:
        words.say(f"warning: {line}")
    return frame if steps is None else frame[frame.agent_steps == steps]


def make_plan(
    preset: str,
    config: Config,
    games: Sequence[str],
    seeds: Sequence[int],
    steps: int,
    eval_episodes: int,
    backend: str,
    workdir: pathlib.Path,
    *,
    film: bool = False,
    batching: str = "auto",
    devices: int | None = None,
    frame_store: str = "auto",
    arm: str | None = None,
    make_environment: EnvironmentMaker | None = None,
    init_from: str | os.PathLike | None = None,
    init_part: str = "all",
    track: bool = False,
) -> Plan:
    """The plan of one preset on every game with every seed; arguments as of `train`.

    `make_environment` is for games without a benchmark.

    Raises:
      ValueError: a value is out of range, or W&B is wanted and not installed.
    """
    if track:
        tracking.check_installed()
    for name, value, known in (
        ("init_part", init_part, initial.PARTS),
        ("batching", batching, choices.BATCHINGS),
        ("frame_store", frame_store, choices.FRAME_STORES),
    ):
        if value not in known:
            raise ValueError(f"{name}: expected {' or '.join(known)}, got {value!r}")
    if init_part != initial.PARTS[0] and init_from is None:
        raise ValueError("init_part: has no effect without init_from")
    source = None if init_from is None else initial.Source(pathlib.Path(init_from), init_part)
    if arm is not None and not presets.is_arm_name(arm):
        raise ValueError(f"arm {arm!r}: {presets.ARM_NAMES}")
    benchmark = environment_of(config, games[0])
    base.check_run(config, steps, benchmark.games, benchmark.action_repeat(games[0], config))
    runs = tuple(RunId(*run) for run in itertools.product(games, seeds))
    return Plan(
        preset=preset,
        config=config,
        runs=runs,
        total_steps=steps,
        workdir=workdir,
        eval_episodes=eval_episodes,
        film=film,
        make_environment=make_environment or build.environment_maker(config, runs, backend),
        # `auto` is no name of a simulator: the environments know which one it chose.
        backend=None if make_environment or backend == "auto" else backend,
        batching=batching,
        num_devices=_devices_of(len(runs), devices),
        frame_store=build.choose_frame_store(frame_store, pixels=config.observation == "pixels"),
        init_from=source,
        arm=arm,
        track=track,
    )


def check_effects(plan: Plan, changed: Iterable[str], flag: str = "") -> None:
    """Raises ValueError if a new run sets a field that has no effect.

    Args:
      plan: the experiment.
      changed: names of the fields that the user sets.
      flag: what precedes a name in the message.
    """
    unused = fields.without_effect(plan.config)
    vain = [name for name in changed if name in unused]
    if vain and not any(paths.manifest.exists() for paths in plan.paths):
        raise ValueError(f"{flag}{vain[0]}: has no effect unless {unused[vain[0]]}")


def check(plan: Plan, spec: protocol.EnvironmentSpec) -> None:
    """Checks that a plan can be carried out, before anything is made or written.

    Args:
      plan: the experiment.
      spec: of the environments, with the largest action set that they may have.

    Raises:
      DoesNotFit: too little memory.
      Incompatible: the configuration, its tasks and the environments do not work together.
      VideoFailed: it asks for a video, but there are no frames or no ffmpeg.
      WorkdirMismatch, Damaged: the work directory holds other runs, or is damaged.
      OSError: too little space on the disk.
    """
    experiment.check_workdir(plan)
    if plan.film:
        video.check(plan.config, plan.runs[0].game)
    if plan.init_from is not None and not plan.paths[0].manifest.exists():
        initial.find(plan.init_from, plan.config, plan.runs)
    prediction.check_resources(plan, spec)


def carry_out(
    plan: Plan,
    spec: protocol.EnvironmentSpec,
    say: Callable[[str], None] = words.say,
    *,
    nulls: bool = False,
) -> None:
    """Carries out a plan, if it fits; see `check`, `experiment.run` and, with `nulls`, `gain`."""
    game = plan.runs[0].game
    if not environment_of(plan.config, game).repeats(game):
        say(
            f"warning: {game} is not the same game with equal seeds and actions: no run can be "
            "repeated or resumed exactly; a resumed one begins new episodes"
        )
    if not plan.has_scores():
        check(plan, spec)
    compilation.keep_programs()
    experiment.run(plan, say)
    if nulls:
        gain.report(plan, say)


def _benchmark_of(preset: str, games: Sequence[str]) -> Environment:
    """The benchmark that has the preset; its games are checked.

    Raises:
      ValueError: there is no such preset or game.
    """
    found = [one for one in ENVIRONMENTS.values() if preset in one.presets_of(one.games[0])]
    if not found:
        known = itertools.chain(*(one.presets_of(one.games[0]) for one in ENVIRONMENTS.values()))
        raise ValueError(f"unknown preset {preset!r}: {protocol.nearest(preset, [*known])}")
    if not games:
        raise ValueError("game: expected a game, or several")
    benchmark = next((one for one in found if games[0] in one.games), found[0])
    if len(set(games)) < len(games):
        raise ValueError(f"game: one is there twice in {', '.join(games)}")
    for name in games:
        benchmark.check_game(name)
    return benchmark


@functools.cache  # later calls return the first answer, since the first training starts JAX
def _prepare_memory(large_blocks: bool) -> bool:
    """Sets up the host's memory; returns True if it is too late, because JAX was used before."""
    is_late = host_memory.is_late()
    host_memory.keep_freed_memory(large_blocks=large_blocks)
    return is_late


def _checked_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """The seeds as integers.

    Raises:
      ValueError: there are none, they are no seeds, or one is there twice.
    """
    found = tuple(seeds) if isinstance(seeds, Iterable) else ()
    valid = all(isinstance(seed, int | np.integer) for seed in found)
    if not (found and valid and all(0 <= seed <= fields.LARGEST_INT for seed in found)) or (
        len(set(found)) < len(found)
    ):
        got = [*found] or seeds
        raise ValueError(
            f"seeds: expected different seeds from 0 to {fields.LARGEST_INT}, got {got}"
        )
    return tuple(map(int, found))


def _devices_of(runs: int, wanted: int | None) -> int:
    """The fewest devices that keep the number of runs on each as small as possible.

    Further devices would only compute copies.

    Raises:
      ValueError: JAX finds fewer.
    """
    available = jax.device_count()
    if wanted is not None and not 1 <= wanted <= available:
        raise ValueError(f"devices: expected a number from 1 to {available}, got {wanted}")
    return math.ceil(runs / math.ceil(runs / (wanted or available)))
