"""Finds what renders DMControl on this machine.

`python -m rcrl_jax.envs.dmc_rendering` prints the renderer, or fails and says what to install.
"""

import functools
import importlib.metadata
import os
import subprocess
import sys

RENDERERS = ("glfw",) if sys.platform == "darwin" else ("egl", "osmesa")
_TIMEOUT_S = 300.0


class RendererUnavailable(ImportError):
    """Nothing on this machine renders."""


def check_installed(backend: str) -> None:
    """Raises ImportError, with what to do, if the package of a backend is not installed."""
    try:
        importlib.metadata.version(backend)
    except importlib.metadata.PackageNotFoundError:
        advice = "run 'pip install --no-deps -r requirements.txt' in the repository"
        if backend == "dm_control":
            advice += " ('pip install .' leaves it out on Python 3.13), or take Python 3.11 or 3.12"
        raise ImportError(f"{backend} is not installed: {advice}") from None


@functools.cache
def find_renderer() -> str:
    """The renderer of dm_control: MUJOCO_GL if set, else the first of `RENDERERS` that works.

    Raises:
        RendererUnavailable: none works.
        ImportError: dm_control is not installed.
    """
    check_installed("dm_control")
    requested = os.environ.get("MUJOCO_GL", "").lower()
    reasons = []
    for renderer in (requested,) if requested else RENDERERS:
        reason = _failure(_CONTROL_PROBE, MUJOCO_GL=renderer)
        if reason is None:
            return renderer
        reasons.append(f"{renderer}: {reason}")
    raise RendererUnavailable(
        f"nothing renders DMControl here ({'; '.join(reasons)}): on Debian or Ubuntu run "
        "'apt-get install libegl1 libgl1 libgl1-mesa-dri' (EGL) or 'apt-get install libosmesa6' "
        "(OSMesa)"
    )


@functools.cache
def find_envpool_renderer() -> str:
    """The renderer of envpool: EGL, regardless of MUJOCO_GL.

    Raises:
        RendererUnavailable: EGL does not work.
        ImportError: envpool is not installed.
    """
    check_installed("envpool")
    # Workers inherit this path, so the probe must find the same modules.
    reason = _failure(_ENVPOOL_PROBE, PYTHONPATH=os.pathsep.join(sys.path))
    if reason is None:
        return "egl"
    raise RendererUnavailable(
        f"envpool does not render DMControl here ({reason}): on Debian or Ubuntu run "
        "'apt-get install libegl1 libgl1 libgl1-mesa-dri', or take the backend dm_control"
    )


_CONTROL_PROBE = """
from dm_control import suite
suite.load("pendulum", "swingup").physics.render(height=8, width=8, camera_id=0)
"""

_ENVPOOL_PROBE = """
from rcrl_jax.envs import dmc_worker
pool = dmc_worker.make_pool("pendulum", "swingup", 0, (8, 8, 3))
pool.reset()
pool.render()
"""


def _failure(probe: str, **variables: str) -> str | None:
    """One line that says why a program fails, or None if it succeeds.

    The program runs in a separate process, because a GL library that fails may end the process.
    """
    environment = {**os.environ, **variables}
    environment.pop("PYOPENGL_PLATFORM", None)  # MUJOCO_GL alone chooses, as in the workers
    try:
        ended = subprocess.run(
            [sys.executable, "-c", probe],
            env=environment, capture_output=True, text=True, timeout=_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs"
    if ended.returncode == 0:
        return None
    lines = ended.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit {ended.returncode}"


if __name__ == "__main__":
    try:
        print(f"DMControl renders with {find_renderer()}")
    except ImportError as error:
        sys.exit(f"error: {error}")
