"""The training program; for Atari, DMControl and MinAtar only benchmark and defaults differ."""

import contextlib
import errno
import pathlib
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import app, flags

from rcrl_jax import files, signals, words
from rcrl_jax.config import choices, fields
from rcrl_jax.config.presets import Config
from rcrl_jax.envs.protocol import EnvironmentSpec, SimulatorFailed
from rcrl_jax.programs import command_line
from rcrl_jax.runs import paths
from rcrl_jax.training import host_memory
from rcrl_jax.training.environments import Environment

if TYPE_CHECKING:
    from rcrl_jax.training.evaluation import EnvironmentMaker
    from rcrl_jax.training.plan import Plan

_ALL = "all"  # instead of names of games

# A disk, a network file system or its server fails; another try may succeed.
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN}

_SEED = flags.DEFINE_integer(
    "seed", 0, "seed of the run", lower_bound=0, upper_bound=fields.LARGEST_INT
)
_SEEDS = flags.DEFINE_string(
    "seeds",
    None,
    "seeds of a fleet, for every game or task: 0,1 or 0:5 (0 to 4); 5 is seed 5 alone",
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "where everything is written [default: runs/<preset>-<games>-<seeds>]"
)
_FROM = flags.DEFINE_string(
    "from", None,
    "manifest.json of a run to train again, alone, into runs/<preset>-<game>-<seed>-again or "
    "--workdir; no other flag may say what is trained",
)  # fmt: skip
VIDEO = flags.DEFINE_bool("video", False, "write an MP4 of one final evaluation episode")
_TRACK = flags.DEFINE_bool("track", False, "send records to Weights & Biases")
_ARM = flags.DEFINE_string(
    "arm", None, "what tables call these runs [default: the preset with the changed fields]"
)
_NULLS = flags.DEFINE_bool(
    "nulls", False,
    "in the end also play without learning (uniform actions, the best constant action, the "
    "untrained agent), draw these levels beside the mean over seeds, and report the gain",
)  # fmt: skip
_DRY_RUN = flags.DEFINE_bool(
    "dry_run",
    False,
    "check flags, work directory, memory and disk, train nothing; needs no renderer",
)
_BATCHING = flags.DEFINE_enum(
    "batching", "auto", choices.BATCHINGS,
    "map: one run after the other; vmap: all in batched products; auto: map on a CPU, and for SAC "
    "from pixels, world models and encoder=impala; else vmap",
)  # fmt: skip
_DEVICES = flags.DEFINE_string(
    "devices", "all", "devices that share the runs: a number, or all; no more than there are runs"
)
_FRAME_STORE = flags.DEFINE_enum(
    "frame_store", "auto", choices.FRAME_STORES,
    "where the replay stores frames; auto: host on a CPU and for states, else device",
)  # fmt: skip
_INIT_FROM = flags.DEFINE_string(
    "init_from", None, "directory of another training; start from its agents' parameters"
)
_INIT_PART = flags.DEFINE_enum(
    "init_part", "all", ["all", "encoder"], "part that --init_from takes; tasks always start anew"
)


class Program(NamedTuple):
    """A training program.

    Attributes:
        benchmark: what it trains on.
        preset: the default.
        game: the default; None if one must be named.
        games_help: help of --game or --task.
        steps_help: help of --steps.
        backend_help: help of --backend, if there are several.
        read_name: a name on the command line -> the game.
    """

    benchmark: Environment
    preset: str
    game: str | None
    games_help: str = ""
    steps_help: str = "agent steps to train for"
    backend_help: str = ""
    read_name: Callable[[str], str] = str


def define(program: Program) -> Program:
    """Defines the flags that say what a program trains on, and returns the program."""
    benchmark, kind = program.benchmark, program.benchmark.kind
    known = f": {', '.join(benchmark.games)}" if benchmark.games else ""
    flags.DEFINE_string(kind, program.game, program.games_help or f"{kind} to train on{known}")
    if benchmark.games:
        flags.DEFINE_list(f"{kind}s", None, f"{kind}s of a fleet, with commas between them, or all")
    usual = benchmark.steps(benchmark.presets_of(program.game or "")[program.preset])
    flags.DEFINE_integer(
        "steps", None, f"{program.steps_help} [default: {usual}]",
        lower_bound=1, upper_bound=fields.LARGEST_INT,
    )  # fmt: skip
    flags.DEFINE_integer(
        "eval_episodes", benchmark.eval_episodes, "episodes of the final evaluation",
        lower_bound=1, upper_bound=command_line.MOST_EPISODES,
    )  # fmt: skip
    if len(benchmark.backends) > 1:
        flags.DEFINE_enum(
            "backend", benchmark.backends[0], benchmark.backends, program.backend_help
        )
    return program


def start(program: Program) -> None:
    """Runs a program on the command line."""
    presets = program.benchmark.presets_of(program.game or "")
    command_line.define_config(presets, program.preset, sys.argv)

    def main(argv: list[str]) -> None:
        del argv
        try:
            plan = _plan_again(program, _FROM.value) if _FROM.present else _plan_of_flags(program)
        except (ValueError, OSError, SimulatorFailed) as error:
            command_line.refuse(str(error))
        games = list(dict.fromkeys(run.game for run in plan.runs))
        with ending_cleanly():
            run(plan, program.benchmark.spec(plan.config, games))

    app.run(main, flags_parser=command_line.parse)


def _plan_of_flags(program: Program) -> "Plan":
    games, seeds = read_games(program), read_seeds()
    preset = flags.FLAGS.preset
    changes, named = command_line.changed_fields(), f"--{program.benchmark.kind}s"
    settings = program.benchmark.configure_fleet(preset, games, changes, named)
    host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
    place = workdir(preset, games, seeds, program.benchmark.games)
    plan = make_plan(program, preset, settings, games, seeds, place)
    check_effects(plan)
    return plan


def _plan_again(program: Program, path: str) -> "Plan":
    """The plan of the run that a manifest describes; warns if versions differ from then.

    Raises:
      ValueError: another flag says what is trained, or this program does not train such runs.
      OSError: the manifest cannot be read.
    """
    from rcrl_jax import api  # late, as in `make_plan`
    from rcrl_jax.runs import manifest, workdir
    from rcrl_jax.training.environments import ENVIRONMENTS, environment_of

    kind, given = program.benchmark.kind, flags.FLAGS
    said = (
        "preset", kind, f"{kind}s", "seed", "seeds", "steps", "eval_episodes", "backend",
        "init_from", "init_part",
    )  # fmt: skip
    fields_set = [f"config.{name}" for name in command_line.changed_fields()]
    beside = [*(name for name in said if name in given and given[name].present), *fields_set]
    if beside:
        raise ValueError(f"--from beside --{beside[0]}: the manifest says it")
    described = manifest.read(path)
    with files.reading(path, passing=workdir.Unusable):
        was, config = described["run"], workdir.read_config(path, described["run"])
        preset, game, seed, steps = (was[name] for name in ("preset", "game", "seed", "steps"))
        episodes, algorithm = described["protocol"]["final_episodes"], was.get("algorithm")
    if "init_from" in was:
        raise ValueError(f"--from: {path} started from other agents: repeat its launch.command")
    host_memory.keep_freed_memory(large_blocks=config.needs_large_blocks)
    benchmark = environment_of(config, game)
    if benchmark is not program.benchmark:
        known = (name for name, one in ENVIRONMENTS.items() if one is benchmark)
        other = next(known, "train")
        raise ValueError(f"--from: {path} is of {game}: experiments.{other} trains it")
    if algorithm != (ours := manifest.algorithm(preset)):
        raise ValueError(
            f"--from: {path} has algorithm number {algorithm}, this code {ours}: use its commit, "
            f"{described['versions'].get('git_commit')}"
        )
    options = fleet_options()
    now = manifest.circumstances()["versions"]
    if changes := manifest.describe_differences(described["versions"], now):
        words.say(f"warning: other versions than then: {changes}")
    place = pathlib.Path(WORKDIR.value or f"runs/{preset}-{game}-{seed}-again")
    return api.make_plan(
        preset, config, (game,), (seed,), steps, episodes, was["backend"], place,
        film=VIDEO.value, arm=_ARM.value, track=_TRACK.value, **options,
    )  # fmt: skip


def read_games(program: Program) -> tuple[str, ...]:
    """The games or tasks that the flags name.

    Raises:
      ValueError: a name is missing, unknown or given twice, or both flags are given.
    """
    known, kind = program.benchmark.games, program.benchmark.kind
    one = flags.FLAGS[kind]
    if not known:
        if one.value is None:
            raise ValueError(f"--{kind} is missing: for example {program.games_help}")
        return (program.read_name(one.value),)
    several = flags.FLAGS[f"{kind}s"]
    _check_one_of(one, several)
    if "," in one.value:
        raise ValueError(f"--{kind}={one.value}: names one; several are --{kind}s=...")
    games = tuple(map(program.read_name, several.value or [one.value]))
    if several.present and games == (_ALL,):
        return known
    if len(set(games)) != len(games):
        raise ValueError(f"--{kind}s: a {kind} is named twice in {','.join(games)}")
    for game in games:
        program.benchmark.check_game(game)
    return games


def read_seeds() -> tuple[int, ...]:
    """The seeds that the flags name.

    Raises:
      ValueError: they are not different seeds, or both flags are given.
    """
    _check_one_of(flags.FLAGS["seed"], flags.FLAGS["seeds"])
    if _SEEDS.value is None:
        return (_SEED.value,)
    seeds = command_line.parse_seeds(_SEEDS.value)
    command_line.say_if_one_seed(_SEEDS.value)
    return seeds


def workdir(
    preset: str, games: Sequence[str], seeds: Sequence[int], every_game: Collection[str] = ()
) -> pathlib.Path:
    """The work directory: what --workdir says, or else `paths.default_workdir`."""
    return pathlib.Path(WORKDIR.value or paths.default_workdir(preset, games, seeds, every_game))


def make_plan(
    program: Program,
    preset: str,
    settings: Config,
    games: Sequence[str],
    seeds: Sequence[int],
    directory: pathlib.Path,
    make_environment: "EnvironmentMaker | None" = None,
) -> "Plan":
    """The plan of one preset on every game with every seed; flags give the rest.

    `define` has made the program's flags. For the other arguments, see `api.make_plan`.

    Raises:
      ValueError: a value is out of range.
    """
    from rcrl_jax import api  # late: a program sets up the host's memory before JAX starts

    benchmark, given = program.benchmark, flags.FLAGS
    repeat = benchmark.action_repeat(games[0], settings)
    steps = given.steps or benchmark.steps(settings)
    if steps < repeat:
        raise ValueError(f"--steps: must be at least the action repeat, {repeat}")
    return api.make_plan(
        preset,
        settings,
        games,
        seeds,
        steps // repeat,
        given.eval_episodes,
        given.backend if "backend" in given else benchmark.backends[0],
        directory,
        film=VIDEO.value,
        arm=_ARM.value,
        make_environment=make_environment,
        init_from=_INIT_FROM.value,
        init_part=_INIT_PART.value,
        track=_TRACK.value,
        **fleet_options(),
    )


def fleet_options() -> dict[str, Any]:
    """How a fleet computes, as `api.make_plan` takes it; warns of a GPU that JAX leaves idle.

    Raises:
      ValueError: --devices is out of range, or JAX finds no device.
    """
    available = command_line.count_devices()
    import jax  # late, as in `count_devices`

    if idle := command_line.idle_gpu(jax.default_backend()):
        words.say(f"warning: {idle}")
    number = None if _DEVICES.value == "all" else _DEVICES.value
    if number and not (number.isdecimal() and 1 <= int(number) <= available):
        raise ValueError(f"--devices: expected all or a number from 1 to {available}, got {number}")
    return {
        "batching": _BATCHING.value,
        "devices": number and int(number),
        "frame_store": _FRAME_STORE.value,
    }


def _check_one_of(
    one: flags.Flag | flags.FlagHolder, several: flags.Flag | flags.FlagHolder
) -> None:
    if one.present and several.present:
        raise ValueError(f"--{one.name} beside --{several.name}: give one of them")


def run(plan: "Plan", spec: EnvironmentSpec) -> None:
    """Carries out a plan, if it fits; see `api.check`. A dry run says that it fits, and ends."""
    from rcrl_jax import api

    if _DRY_RUN.value:
        api.check(plan, spec)
        end_dry_run([plan], plan.workdir)
    api.carry_out(plan, spec, nulls=_NULLS.value)


def check_effects(plan: "Plan") -> None:
    """Raises ValueError if the command line of a new run sets a field that has no effect."""
    from rcrl_jax import api

    api.check_effects(plan, command_line.changed_fields(), "--config.")


def end_dry_run(plans: Sequence["Plan"], workdir: pathlib.Path) -> None:
    """In a dry run, says that these plans fit, and ends the program."""
    if _DRY_RUN.value:
        number = words.count("run", sum(len(plan.runs) for plan in plans))
        print(f"this can run: {number} of {plans[0].total_steps:,} agent steps, {workdir}")
        sys.exit(0)


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """If a run cannot continue, ends the program with one line and an exit code that says why.

    While there is nothing to save, a stop signal ends the program at once.
    """
    from rcrl_jax import types  # late: DMControl's workers do not need JAX
    from rcrl_jax.runs import manifest, tracking
    from rcrl_jax.training import experiment, prediction, video

    fewer = "train fewer runs at a time"
    memory = command_line.refusing_lack_of_memory(
        fewer,
        f"{fewer}, end other programs on the device, or give JAX more of it: "
        "XLA_PYTHON_CLIENT_MEM_FRACTION=0.95",
    )
    try:
        with signals.ending_at_once(), memory:
            yield
    except OSError as error:
        if error.errno in _PASSING:
            command_line.fail(f"{error}: the same command resumes", 1)
        command_line.refuse(str(error))
    except (
        files.InUse,
        manifest.WorkdirMismatch,
        prediction.DoesNotFit,
        types.Incompatible,
        experiment.NotReproduced,
        tracking.NotTracked,
        video.VideoFailed,
        ImportError,
    ) as error:
        command_line.refuse(str(error))
    except files.Damaged as error:
        command_line.refuse(
            f"{error}; restore it, or move it away: the same command then goes on without it"
        )
    except experiment.Interrupted as stop:
        with contextlib.suppress(OSError):  # after SIGHUP, the terminal may be gone
            print(f"{stop}: the same command resumes", file=sys.stderr, flush=True)
        sys.exit(128 + stop.signum)
    except experiment.Diverged as error:
        command_line.fail(str(error), 1)
    except SimulatorFailed as error:
        command_line.fail(
            f"{error}: the same command goes on from the last checkpoint, and ends here again "
            "unless the reason has passed",
            1,
        )
