"""What the training programs share: flags of a fleet, and how a run that ends early is reported."""

import contextlib
import errno
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from rcrl_jax import files, signals, words
from rcrl_jax.envs.protocol import EnvironmentSpec, SimulatorFailed
from rcrl_jax.programs import command_line

if TYPE_CHECKING:
    from rcrl_jax.training.evaluation import EnvironmentMaker
    from rcrl_jax.training.plan import Plan

# A disk, a network file system or its server fails; the next try may succeed.
_PASSING = {errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.EREMOTEIO, errno.ENOTCONN}

_SEED = flags.DEFINE_integer(
    "seed", 0, "seed of the run", lower_bound=0, upper_bound=command_line.LARGEST_SEED
)
_SEEDS = flags.DEFINE_string(
    "seeds",
    None,
    "seeds of a fleet, for every game or task: 0,1 or 0:5 (0 to 4); 5 is seed 5 alone",
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "where everything is written [default: runs/<preset>-<games>-<seeds>]"
)
VIDEO = flags.DEFINE_bool("video", False, "write an MP4 of one final evaluation episode")
_NULLS = flags.DEFINE_bool(
    "nulls", False,
    "in the end play without learning, too: uniform actions, the best constant one, the untrained "
    "agent; draw the mean over seeds above them, and say what was gained",
)  # fmt: skip
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "check flags, memory and disk, and train nothing; needs no renderer"
)
_BATCHING = flags.DEFINE_enum(
    "batching", "auto", ["auto", "map", "vmap"],
    "one run after the other, or all in batched products; auto: map on a CPU, and for SAC from "
    "pixels and world models; else vmap",
)  # fmt: skip
_DEVICES = flags.DEFINE_string(
    "devices", "all", "devices that share the runs: a number, or all; no more than there are runs"
)
_FRAME_STORE = flags.DEFINE_enum(
    "frame_store", "auto", ["auto", "host", "device"],
    "where the replay stores frames; auto: host on a CPU and for states, else device",
)  # fmt: skip


def read_seeds() -> tuple[int, ...]:
    """The seeds that the flags name.

    Raises:
      ValueError: they are not different seeds, or both flags are given.
    """
    _check_one_of(_SEED, _SEEDS)
    if _SEEDS.value is None:
        return (_SEED.value,)
    return command_line.parse_seeds(_SEEDS.value)


def workdir(what: str) -> pathlib.Path:
    """The work directory: what --workdir says, or else one named after `what` and the seeds."""
    name = f"{what}-{_SEEDS.value or _SEED.value}".replace(":", "to")
    return pathlib.Path(WORKDIR.value or f"runs/{name}")


def make_plan(*described: Any, make_environment: "EnvironmentMaker | None" = None) -> "Plan":
    """The plan of one preset on every game with every seed; flags say how its fleet computes.

    Args:
      *described: the positional arguments of `api.make_plan`.
      make_environment: for games that are no benchmark's.

    Raises:
      ValueError: a value is out of range.
    """
    from rcrl_jax import api  # late: a program sets up the host's memory before JAX starts

    return api.make_plan(
        *described, film=VIDEO.value, make_environment=make_environment, **fleet_options()
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


def read_names(one: flags.FlagHolder[str], several: flags.FlagHolder[list[str]]) -> tuple[str, ...]:
    """The games or tasks that the flag of one, or that of several, names.

    Raises:
      ValueError: both flags are given, or a name is given twice.
    """
    _check_one_of(one, several)
    if "," in one.value:
        raise ValueError(f"--{one.name}={one.value}: names one; several are --{several.name}=...")
    names = several.value or [one.value]
    if len(set(names)) != len(names):
        raise ValueError(f"--{several.name}: a {one.name} is named twice in {','.join(names)}")
    return tuple(names)


def _check_one_of(one: flags.FlagHolder, several: flags.FlagHolder) -> None:
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
    """Raises ValueError if the command line sets a field in vain, in a new run."""
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
    import jax  # late: DMControl's workers do without

    from rcrl_jax import types
    from rcrl_jax.runs import checkpoints, manifest
    from rcrl_jax.training import experiment, prediction, video

    try:
        with signals.ending_at_once():
            yield
    except OSError as error:
        if error.errno in _PASSING:
            command_line.fail(f"{error}: the same command resumes", 1)
        command_line.refuse(str(error))
    except (
        files.InUse,
        checkpoints.OlderVersion,
        manifest.WorkdirMismatch,
        prediction.DoesNotFit,
        types.Incompatible,
        experiment.NotReproduced,
        video.VideoFailed,
        ImportError,
    ) as error:
        command_line.refuse(str(error))
    except MemoryError as error:
        command_line.refuse(f"too little memory: {error}; train fewer runs at a time")
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        command_line.refuse(
            f"too little device memory: {error}; train fewer runs at a time, end other programs "
            "on the device, or give JAX more of it: XLA_PYTHON_CLIENT_MEM_FRACTION=0.95"
        )
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
