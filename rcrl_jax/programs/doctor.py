"""Checks what training needs on this machine, and says what to do about what is missing.

    python -m experiments.doctor

One line a check: ok or missing. Exit code 0 if Atari training can run, with or without a GPU, else
1. Lines that end with "(DMControl)", "(videos)" or "(speed)" name what only these need; they leave
the exit code alone.
"""

# The standard library alone: packages may be missing. Each check imports what it needs.
import argparse
import importlib.metadata
import sys
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from rcrl_jax.programs import commands

_INSTALL = "'make trial' makes an environment; or run 'pip install --no-deps -r requirements.txt'"


class Check(NamedTuple):
    """One line.

    Attributes:
        name: what is looked for.
        find: returns what is found; raises if it is missing.
        remedy: what to do then; '' where the error says it.
        only_for: the only use that needs it; '' for Atari training.
    """

    name: str
    find: Callable[[], str]
    remedy: str = ""
    only_for: str = ""


def find_python() -> str:
    """The version."""
    if not (3, 11) <= sys.version_info < (3, 14):
        raise ImportError(sys.version.split()[0])
    return sys.version.split()[0]


def find_jax() -> str:
    """Its version."""
    import jax

    return jax.__version__


def find_packages() -> str:
    """That what trains can be imported."""
    from rcrl_jax import api  # noqa: F401
    from rcrl_jax.agents.rainbow import agent  # noqa: F401

    return "training can be imported"


def find_device() -> str:
    """The devices that JAX uses."""
    from rcrl_jax.programs import command_line

    number = command_line.count_devices()
    import jax

    device = jax.devices()[0]
    found = f"{number} x {device.device_kind}"
    idle = command_line.idle_gpu(device.platform)
    return f"{found}; {idle}" if idle else found


def find_emulators() -> str:
    """Those of the two emulator packages that can be imported."""
    found, missing = [], []
    for package in ("envpool", "ale_py"):
        try:
            importlib.import_module(package)
            found.append(f"{package} {importlib.metadata.version(package)}")
        except (ImportError, OSError) as error:  # a shared library may be missing
            missing.append(f"{package} is missing: {error}")
    if not found:
        raise ImportError("; ".join(missing))
    return "; ".join([*found, *missing])


def find_games() -> str:
    """How many of the benchmark's games start."""
    from rcrl_jax.envs import atari

    for game in atari.ATARI_GAMES:
        try:
            atari.make_atari(game, [0]).close()
        except Exception as error:
            raise RuntimeError(f"{game} does not start: {error}") from error
    return f"all {len(atari.ATARI_GAMES)} games start"


def find_dm_control() -> str:
    """The version of dm_control."""
    from rcrl_jax.envs import dmc_rendering

    dmc_rendering.check_installed("dm_control")
    return importlib.metadata.version("dm_control")


def find_renderer() -> str:
    """What renders DMControl."""
    from rcrl_jax.envs import dmc_rendering

    return dmc_rendering.find_renderer()


def find_ffmpeg() -> str:
    """Where ffmpeg is."""
    from rcrl_jax.training import video

    return video.find_ffmpeg()


def find_kernels() -> str:
    """The parts of the package that a compiler has made faster."""
    from rcrl_jax.ops import native

    advice = native.advice()
    if advice:
        raise ImportError(advice)
    return ", ".join(f"{name}: {by}" for name, by in native.describe().items())


CHECKS = (
    Check("Python", find_python, "install Python 3.11, 3.12 or 3.13"),
    Check("JAX", find_jax, _INSTALL),
    Check("packages", find_packages, _INSTALL),
    Check("device", find_device),
    Check("emulators", find_emulators, _INSTALL),
    Check("ROMs", find_games, f"the emulator packages bring them; {_INSTALL}"),
    Check("kernels", find_kernels, only_for="speed"),
    Check("dm_control", find_dm_control, only_for="DMControl"),
    Check("renderer", find_renderer, only_for="DMControl"),
    Check("ffmpeg", find_ffmpeg, only_for="videos"),
)


def main(argv: list[str]) -> int:
    """Prints a line for every check; returns the exit code."""
    parser = argparse.ArgumentParser(
        commands.as_typed("python -m experiments.doctor"),
        description=commands.as_typed(__doc__),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.error = _refuse
    parser.parse_args(argv)
    can_train = True
    for check in CHECKS:
        is_found, line = describe(check)
        can_train = can_train and (is_found or bool(check.only_for))
        print(line, flush=True)
    print(f"Atari training {'can run' if can_train else 'cannot run: see what is missing'}")
    return 0 if can_train else 1


def describe(check: Check) -> tuple[bool, str]:
    """Whether what a check looks for is there, and the line that says so."""
    try:
        state, detail = "ok", check.find()
    except Exception as error:  # whatever is wrong with a package, the other checks go on
        remedy = _INSTALL if isinstance(error, ModuleNotFoundError) else check.remedy
        state, detail = "missing", str(error) or type(error).__name__
        detail += f": {remedy}" if remedy else ""
    only_for = f" ({check.only_for})" if check.only_for else ""
    return state == "ok", f"{check.name:<11} {state:<8} {' '.join(detail.split())}{only_for}"


def _refuse(message: str) -> NoReturn:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
