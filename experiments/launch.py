"""What the training programs share: flags of a fleet, and how a run that ends early is reported."""

import contextlib
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments import command_line
from rcrl_jax import files, signals, words
from rcrl_jax.envs.protocol import EnvironmentSpec, SimulatorFailed

if TYPE_CHECKING:
    from rcrl_jax.training.plan import Plan

_SEED = flags.DEFINE_integer(
    "seed", 0, "seed of the run", lower_bound=0, upper_bound=command_line.LARGEST_SEED
)
_SEEDS = flags.DEFINE_string("seeds", None, "seeds of a fleet, for every game or task: 0,1 or 0:5")
WORKDIR = flags.DEFINE_string(
    "workdir", None, "where everything is written [default: runs/<preset>-<games>-<seeds>]"
)
VIDEO = flags.DEFINE_bool("video", False, "write an MP4 of one final evaluation episode")
_DRY_RUN = flags.DEFINE_bool(
    "dry_run", False, "check flags, memory and disk, and train nothing; needs no renderer"
)
_BATCHING = flags.DEFINE_enum(
    "batching", "auto", ["auto", "map", "vmap"],
    "one run after the other, or all in batched products; auto: map on a CPU, and for SAC from "
    "pixels and world models; else vmap",
)  # fmt: skip
_DEVICES = flags.DEFINE_string("devices", "1", "devices that share the runs: a number, or all")
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


def fleet_options(*, pixels: bool = True) -> dict[str, Any]:
    """The fields of a plan that say how its fleet computes.

    Args:
      pixels: whether frames are images. States stay on the host: a batch of them is 100 KB, and a
        TPU would copy the states of all steps in every update to gather it.

    Raises:
      ValueError: a flag's value is out of range, or would store states on the device; or JAX finds
        no device.
    """
    available = command_line.count_devices()
    import jax  # late, as in `count_devices`

    frame_store = _FRAME_STORE.value
    if frame_store == "device" and not pixels:
        raise ValueError("--frame_store=device: only pixels are stored on the device, not states")
    if frame_store == "auto":
        frame_store = "device" if pixels and jax.default_backend() != "cpu" else "host"
    return {
        "batching": _BATCHING.value,
        "num_devices": _read_devices(available),
        "frame_store": frame_store,
    }


def _read_devices(available: int) -> int:
    if _DEVICES.value == "all":
        return available
    if not _DEVICES.value.isdecimal() or not 1 <= int(_DEVICES.value) <= available:
        raise ValueError(
            f"--devices: expected all or a number from 1 to {available}, got {_DEVICES.value}"
        )
    return int(_DEVICES.value)


def read_names(one: flags.FlagHolder[str], several: flags.FlagHolder[list[str]]) -> tuple[str, ...]:
    """The games or tasks that the flag of one, or that of several, names.

    Raises:
      ValueError: both flags are given, or a name is given twice.
    """
    _check_one_of(one, several)
    names = several.value or [one.value]
    if len(set(names)) != len(names):
        raise ValueError(f"--{several.name}: a {one.name} is named twice in {','.join(names)}")
    return tuple(names)


def _check_one_of(one: flags.FlagHolder, several: flags.FlagHolder) -> None:
    if one.present and several.present:
        raise ValueError(f"--{one.name} beside --{several.name}: give one of them")


def run(plan: "Plan", spec: EnvironmentSpec) -> None:
    """Carries out a plan, if it fits; see `check`. A dry run says that it fits, and ends."""
    if _DRY_RUN.value:
        check(plan, spec)
    end_dry_run([plan], plan.workdir)
    from rcrl_jax import compilation
    from rcrl_jax.training import experiment

    compilation.keep_programs()
    if not plan.is_finished():
        check(plan, spec)
    experiment.run(plan)


def end_dry_run(plans: Sequence["Plan"], workdir: pathlib.Path) -> None:
    """In a dry run, says that these plans fit, and ends the program."""
    if _DRY_RUN.value:
        number = words.count("run", sum(len(plan.runs) for plan in plans))
        print(f"this can run: {number} of {plans[0].total_steps:,} agent steps, {workdir}")
        sys.exit(0)


def check(plan: "Plan", spec: EnvironmentSpec) -> None:
    """Checks that a plan can be carried out, before anything is made or written.

    Args:
      plan: the experiment.
      spec: of its environments; its actions are the largest action set that they may have.

    Raises:
      DoesNotFit: too little memory.
      Incompatible: the configuration, its tasks and the environments do not work together.
      VideoFailed: it wants a video, and there are no frames or no ffmpeg.
      OSError: too little space on the disk.
    """
    from rcrl_jax.training import prediction, video

    if plan.film:
        video.check(plan.config)
    prediction.check_resources(plan, prediction.fleet_of(plan, spec), spec)


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """If a run cannot continue, ends the program with one line and an exit code that says why.

    While there is nothing to save, a stop signal ends the program at once.
    """
    from rcrl_jax import types  # late: imports JAX, which DMControl's workers do without
    from rcrl_jax.runs import manifest
    from rcrl_jax.training import experiment, prediction, video

    try:
        with signals.ending_at_once():
            yield
    except (
        files.InUse,
        manifest.WorkdirMismatch,
        prediction.DoesNotFit,
        types.Incompatible,
        experiment.NotReproduced,
        video.VideoFailed,
        ImportError,
        OSError,
    ) as error:
        command_line.refuse(str(error))
    except MemoryError as error:
        command_line.refuse(f"too little memory: {error}; train fewer runs at a time")
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
        command_line.fail(f"{error}: the same command resumes", 1)
