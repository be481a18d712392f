"""The six tasks of the DeepMind Control suite that RCRL trains on, in processes of their own."""

import difflib
import functools
import importlib.metadata
import multiprocessing
import os
import subprocess
import sys
import weakref
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax.envs import dmc_worker
from rcrl_jax.envs.protocol import (
    EnvironmentSpec,
    SimulatorFailed,
    TimeStep,
    VectorEnvironment,
    after_reset,
    validate_mask,
    validate_seeds,
)


class Task(NamedTuple):
    """A task of the suite."""

    domain: str
    task: str
    action_repeat: int
    """Environment steps of an agent step (CURL, table 3)."""
    num_actions: int
    """Components of an action."""
    state_size: int
    """Length of the state vector."""


DMC_TASKS = {
    "finger_spin": Task("finger", "spin", 2, 2, 9),
    "cartpole_swingup": Task("cartpole", "swingup", 8, 1, 5),
    "reacher_easy": Task("reacher", "easy", 4, 2, 6),
    "cheetah_run": Task("cheetah", "run", 4, 6, 17),
    "walker_walk": Task("walker", "walk", 2, 6, 24),
    "ball_in_cup_catch": Task("ball_in_cup", "catch", 4, 2, 8),
}

TIME_LIMIT = 1000
"""Environment steps of an episode; the suite's own limit, which truncates."""

# Every vector has room for the largest task, whatever its own tasks are: the shapes of a run's
# network, and with them its initial parameters, must not depend on the run's company.
ACTION_ROOM = max(task.num_actions for task in DMC_TASKS.values())
STATE_ROOM = max(task.state_size for task in DMC_TASKS.values())

DMC_BACKENDS = ("dm_control", "envpool")

RENDERERS = ("egl", "osmesa")
_ANSWER_S = 300.0  # a simulator or renderer that has not answered by then hangs


class RendererUnavailable(ImportError):  # noqa: N818 - says what is the matter
    """Nothing on this machine renders."""


def make_dmc(
    tasks: Sequence[str],
    seeds: Sequence[int],
    *,
    backend: str = "dm_control",
    observation: str = "pixels",
    render_size: int = 100,
    num_workers: int | None = None,
) -> VectorEnvironment:
    """Makes R = len(tasks) environments, which step together in worker processes.

    An action is repeated as often as the task has it, and the rewards of the repeats are summed.
    Actions are [R, A] float32 in [-1, 1] with A = `ACTION_ROOM`; a task reads its own first
    components. The suite's time limit of 1000 environment steps truncates.

    Args:
        tasks: one an environment, of `DMC_TASKS`.
        seeds: one an environment, in [0, 2**31).
        backend: 'dm_control', or 'envpool', which has its own MuJoCo and renders with EGL alone.
            The same seed starts different episodes on the two, and the floors of their frames look
            different. `description` of the environment says which it is, with versions.
        observation: 'pixels', frames `[render_size, render_size, 3] uint8` of camera 0; or
            'state', the parts of the suite's observation, then zeros, `[STATE_ROOM] float32`, of
            dm_control alone.
        render_size: height and width of a frame.
        num_workers: processes; None for one a core, at most one an environment.

    Raises:
        ValueError: unknown task, backend or observation, a backend without that observation, or a
            bad seed.
        ImportError: the backend is not installed.
        RendererUnavailable: the backend does not render; the message says what to install.
    """
    for task in tasks:
        check_task(task)
    if observation not in ("pixels", "state"):
        raise ValueError(f"observation must be pixels or state, got {observation!r}")
    check_backend(backend, observation)
    seeds = validate_seeds(seeds)
    if len(seeds) != len(tasks):
        raise ValueError(f"{len(seeds)} seeds for {len(tasks)} tasks")
    if observation == "pixels":
        renderer = find_renderer() if backend == "dm_control" else find_envpool_renderer()
        spec = EnvironmentSpec((render_size, render_size, 3), ACTION_ROOM)
    else:
        renderer = dmc_worker.NO_RENDERER
        spec = EnvironmentSpec((STATE_ROOM,), ACTION_ROOM, np.float32)
    workers = min(num_workers or os.cpu_count() or 1, len(tasks))
    return _ControlSuite(tasks, seeds, spec, backend, renderer, workers)


def check_task(task: str) -> None:
    """Raises ValueError, with the nearest names, unless `task` is one of `DMC_TASKS`."""
    if task in DMC_TASKS:
        return
    near = difflib.get_close_matches(task.lower().replace("-", "_"), DMC_TASKS, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"choose from {', '.join(DMC_TASKS)}"
    raise ValueError(f"unknown task '{task}': {hint}")


def check_backend(backend: str, observation: str) -> None:
    """Raises ValueError unless `backend` is one of `DMC_BACKENDS` and has the observation."""
    if backend not in DMC_BACKENDS:
        raise ValueError(f"unknown DMControl backend '{backend}': choose from {DMC_BACKENDS}")
    if backend == "envpool" and observation != "pixels":
        raise ValueError(
            f"the envpool backend has pixels alone: observation={observation!r} needs dm_control"
        )


@functools.cache
def find_renderer() -> str:
    """What dm_control renders with: the first of EGL and OSMesa, or what MUJOCO_GL asks for.

    Raises:
        RendererUnavailable: none does.
    """
    importlib.metadata.version("dm_control")  # its absence is no question of rendering
    asked = os.environ.get("MUJOCO_GL", "").lower()
    candidates = (asked,) if asked else RENDERERS
    reasons = []
    for renderer in candidates:
        reason = _failure(_CONTROL_PROBE, MUJOCO_GL=renderer)
        if reason is None:
            return renderer
        reasons.append(f"{renderer}: {reason}")
    raise RendererUnavailable(
        f"nothing renders DMControl here ({'; '.join(reasons)}): on Debian or Ubuntu run "
        "'apt-get install libegl1 libgl1-mesa-dri' (EGL) or 'apt-get install libosmesa6' (OSMesa)"
    )


@functools.cache
def find_envpool_renderer() -> str:
    """What envpool renders with: EGL, whatever MUJOCO_GL says.

    Raises:
        RendererUnavailable: it does not render.
    """
    importlib.metadata.version("envpool")
    # What the workers will run, found where they will find it: they inherit this path.
    reason = _failure(_ENVPOOL_PROBE, PYTHONPATH=os.pathsep.join(sys.path))
    if reason is None:
        return "egl"
    raise RendererUnavailable(
        f"envpool does not render DMControl here ({reason}): on Debian or Ubuntu run "
        "'apt-get install libgl1 libegl1 libgl1-mesa-dri', or take the backend dm_control"
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
    """Why a program fails, in a line, or None if it does not.

    It runs in a process of its own: a GL library that fails may take its process with it.
    """
    try:
        ended = subprocess.run(
            [sys.executable, "-c", probe],
            env={**os.environ, **variables}, capture_output=True, text=True, timeout=_ANSWER_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "hangs"
    if ended.returncode == 0:
        return None
    lines = ended.stderr.strip().splitlines()
    return lines[-1] if lines else f"exit {ended.returncode}"


class _ControlSuite(VectorEnvironment):
    """See `make_dmc`."""

    def __init__(
        self, tasks, seeds: np.ndarray, spec: EnvironmentSpec, backend, renderer, num_workers
    ):
        self.spec = spec
        self.num_envs = len(tasks)
        own = [DMC_TASKS[task] for task in tasks]
        self.num_actions_per_env = np.array([task.num_actions for task in own], np.int32)
        version = importlib.metadata.version(backend)
        if backend == "envpool":
            physics = f"MuJoCo as built into envpool {version}"
        else:
            physics = f"MuJoCo {importlib.metadata.version('mujoco')}"
        self.description = {
            "backend": backend,
            "backend_version": version,
            "physics": physics,
            "renderer": renderer,
            "camera": 0,
            "frame_shape": list(spec.frame_shape),
            "time_limit_env_steps": TIME_LIMIT,
            "time_limit": "truncates",
            "reward": "sum over the action repeat",
            "pools": [
                {"task": name, "action_repeat": task.action_repeat, "num_envs": 1}
                for name, task in zip(tasks, own, strict=True)
            ],
        }
        self._last: TimeStep | None = None

        context = multiprocessing.get_context("spawn")  # GL contexts do not survive a fork
        frame_bytes = int(np.prod(spec.frame_shape)) * np.dtype(spec.frame_dtype).itemsize
        runs = self.num_envs
        shared = dmc_worker.Shared(
            *(
                context.RawArray("B", runs * size)
                for size in (frame_bytes, 4 * spec.num_actions, 4, 1, 1, 1)
            )
        )
        shapes = (spec.frame_shape, np.dtype(spec.frame_dtype).str, spec.num_actions)
        self._arrays = shared.arrays(*shapes)
        self._rows, self._connections = [], []
        # From here on a process that is not asked to end any more ends with its connection.
        weakref.finalize(self, _close_all, self._connections)
        for rows in np.array_split(np.arange(runs), num_workers):
            mine, theirs = context.Pipe()
            simulations = [
                dmc_worker.Simulation(
                    own[r].domain, own[r].task, own[r].action_repeat, own[r].num_actions,
                    int(seeds[r]),
                )
                for r in rows
            ]  # fmt: skip
            context.Process(
                target=dmc_worker.work,
                args=(theirs, simulations, int(rows[0]), shared, shapes, backend, renderer),
                daemon=True,
            ).start()
            theirs.close()
            self._rows.append(rows)
            self._connections.append(mine)

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        first = self._last is None
        mask = validate_mask(mask, self.num_envs, first=first)
        self._arrays.restart[:] = mask
        concerned = [
            (rows, connection)
            for rows, connection in zip(self._rows, self._connections, strict=True)
            if mask[rows].any()
        ]
        for _, connection in concerned:
            _ask(connection, "reset")
        for rows, connection in concerned:
            # Before its first answer a worker makes its environments, one after the other.
            _wait(connection, _ANSWER_S * len(rows) if first else _ANSWER_S)
        frame = self._arrays.frame[mask]  # a copy
        self._last = after_reset(self._last, mask, frame, np.zeros(len(frame), np.int32))
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        actions = np.asarray(actions)
        if actions.shape != self._arrays.action.shape:
            raise ValueError(
                f"actions must have shape {self._arrays.action.shape}, got {actions.shape}"
            )
        if not np.all(np.abs(actions) <= 1.0):
            raise ValueError(f"actions must lie in [-1, 1], got {actions}")
        self._arrays.action[...] = actions
        for connection in self._connections:
            _ask(connection, "step")

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        for connection in self._connections:
            _wait(connection, _ANSWER_S)
        arrays = self._arrays
        self._last = TimeStep(
            frame=arrays.frame.copy(),
            reward=arrays.reward.copy(),
            lives=np.zeros(self.num_envs, np.int32),
            terminated=arrays.terminated.astype(bool),
            truncated=arrays.truncated.astype(bool),
        )
        return self._last

    def close(self) -> None:
        """Ends the worker processes."""
        _close_all(self._connections)


def _ask(connection, request: str) -> None:
    """Sends a worker a request.

    Raises:
        SimulatorFailed: it is gone.
    """
    try:
        connection.send(request)
    except ConnectionError:
        raise SimulatorFailed(_ENDED) from None


def _wait(connection, limit_s: float) -> None:
    """Waits for a worker's answer.

    Raises:
        SimulatorFailed: it failed, is gone, or does not answer within `limit_s`.
    """
    if not connection.poll(limit_s):
        raise SimulatorFailed(f"a simulator has not answered for {limit_s:g} s")
    try:
        failure = connection.recv()
    except (EOFError, ConnectionError):
        raise SimulatorFailed(_ENDED) from None
    if failure is not None:
        raise SimulatorFailed(f"a simulator failed: {failure}")


_ENDED = "a simulator's process has ended"


def _close_all(connections) -> None:
    for connection in connections:
        connection.close()


if __name__ == "__main__":  # `make` asks before it starts what renders
    try:
        print(f"DMControl renders with {find_renderer()}")
    except ImportError as error:
        sys.exit(f"error: {error}")
