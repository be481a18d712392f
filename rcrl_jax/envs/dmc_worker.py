"""Simulations of the DeepMind Control suite in a worker process.

This process imports NumPy, dm_env and the backend, and never JAX. Before it imports the backend, it
chooses how MuJoCo renders: by a variable for dm_control, by a library for envpool.
"""

import contextlib
import ctypes
import os
import sys
import traceback
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import dm_env
import numpy as np

from rcrl_jax.envs.protocol import EnvironmentSpec

_RESETS = 10  # tries to start an episode
NO_RENDERER = "disabled"  # MUJOCO_GL of simulations that never render


class Simulation(NamedTuple):
    """What one environment simulates."""

    domain: str
    task: str
    action_size: int
    """Components of an action."""
    seed: int


class Shared(NamedTuple):
    """Memory that the parent and its workers share, R rows each. Only one side uses it at a time.

    A row holds the dm_env time step of an environment and what the parent asks of it.
    """

    frame: Any
    """[R, *frame_shape]"""
    reward: Any
    """[R] float32, summed over the action repeat; not written by a reset."""
    discount: Any
    """[R] float32; not written by a reset."""
    step_type: Any
    """[R] uint8, a `dm_env.StepType`; not written by a reset."""
    failed: Any
    """[R] bool, the step had no valid next state, and the frame is the one before it."""
    action: Any
    """[R, A] float32"""
    restart: Any
    """[R] bool, the environments that a reset restarts."""


def allocate(context, num_envs: int, spec: EnvironmentSpec) -> Shared:
    """Zeroed memory for `num_envs` environments, from a multiprocessing `context`."""
    return Shared(
        *(
            context.RawArray("B", num_envs * int(np.prod(shape)) * np.dtype(dtype).itemsize)
            for shape, dtype in _row_layout(spec)
        )
    )


def as_arrays(shared: Shared, spec: EnvironmentSpec) -> Shared:
    """NumPy views of the same memory, shaped as the fields of `Shared` say."""
    return Shared(
        *(
            np.frombuffer(memory, dtype).reshape(-1, *shape)
            for memory, (shape, dtype) in zip(shared, _row_layout(spec), strict=True)
        )
    )


def _row_layout(spec: EnvironmentSpec) -> Shared:
    """Shape and type of one row of each field."""
    return Shared(
        frame=(spec.frame.shape, spec.frame.dtype),
        reward=((), np.float32),
        discount=((), np.float32),
        step_type=((), np.uint8),
        failed=((), np.bool_),
        action=(spec.action.shape, spec.action.dtype),
        restart=((), np.bool_),
    )


def work(
    connection: Connection,
    simulations: Sequence[Simulation],
    first_row: int,
    shared: Shared,
    spec: EnvironmentSpec,
    backend: str,
    renderer: str,
) -> None:
    """Serves requests until the connection closes.

    A request is `step` or `reset`, and whether to observe. If not, the frames stay as they are.

    Args:
      connection: answers every request with None, or with the text of an exception.
      simulations: the environments of this process.
      first_row: the row of the first of them in the shared memory.
      shared: memory of all environments.
      spec: frames, actions and action repeat.
      backend: 'dm_control' or 'envpool'.
      renderer: value of MUJOCO_GL; envpool ignores it and renders with EGL.
    """
    os.environ["MUJOCO_GL"] = renderer
    os.environ.pop("PYOPENGL_PLATFORM", None)  # dm_control refuses a value that is not its own
    # One thread per worker: other workers use the other cores.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    arrays = as_arrays(shared, spec)
    simulators = None
    with contextlib.suppress(EOFError, ConnectionError):  # the parent closed the connection
        while True:
            (request, observes), failure = connection.recv(), None
            try:
                if simulators is None:
                    simulators = [_make(backend, renderer, s, spec) for s in simulations]
                served = enumerate(zip(simulators, simulations, strict=True), first_row)
                for row, (simulator, simulation) in served:
                    if request == "step":
                        action = arrays.action[row, : simulation.action_size]
                        time_step, failed = _repeat(simulator, action, spec.action_repeat)
                        arrays.failed[row] = failed
                        arrays.reward[row] = time_step.reward
                        arrays.discount[row] = time_step.discount
                        arrays.step_type[row] = time_step.step_type
                    elif arrays.restart[row]:
                        time_step, arrays.failed[row] = _reset(simulator), False
                    else:
                        continue
                    if observes and not arrays.failed[row]:
                        simulator.observe(time_step, arrays.frame[row])
            except Exception:
                failure = traceback.format_exc(limit=-2)
            connection.send(failure)


def _make(
    backend: str, renderer: str, simulation: Simulation, spec: EnvironmentSpec
) -> "_SuiteSimulator | _EnvpoolSimulator":
    """The environment of one row."""
    if backend == "envpool":
        return _EnvpoolSimulator(simulation, spec.frame.shape)
    return _SuiteSimulator(simulation, renders=renderer != NO_RENDERER)


def _repeat(
    simulator: "_SuiteSimulator | _EnvpoolSimulator", action: np.ndarray, times: int
) -> tuple[dm_env.TimeStep, bool]:
    """Repeats an action, at most until the episode ends; the reward is the sum.

    A physics error truncates the episode. A resumed run repeats the actions, and so the error: if
    the error ended the run, the run could never get past it.

    Returns:
      The last time step, and whether there was a physics error. After one there is no observation.
    """
    reward = 0.0
    for _ in range(times):
        try:
            time_step = simulator.step(action)
        except simulator.physics_errors:
            return dm_env.truncation(reward, observation=None), True
        reward += time_step.reward
        if time_step.last():
            break
    return time_step._replace(reward=reward), False


def _reset(simulator: "_SuiteSimulator | _EnvpoolSimulator") -> dm_env.TimeStep:
    """Starts an episode; after a physics error, tries the next one.

    Raises:
      Exception: the simulator's, after ten failures in a row.
    """
    for _ in range(_RESETS - 1):
        with contextlib.suppress(*simulator.physics_errors):
            return simulator.reset()
    return simulator.reset()


class _SuiteSimulator:
    """An environment of dm_control."""

    def __init__(self, simulation: Simulation, *, renders: bool):
        from absl import logging
        from dm_control import suite
        from dm_control.rl import control

        self.physics_errors = (control.PhysicsError,)
        # MuJoCo warns of deprecated features in the suite's models.
        logging.set_verbosity(logging.ERROR)
        self._environment = suite.load(
            simulation.domain, simulation.task, task_kwargs={"random": simulation.seed}
        )
        self._renders = renders

    def reset(self) -> dm_env.TimeStep:
        return self._environment.reset()

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        return self._environment.step(action)

    def observe(self, time_step: dm_env.TimeStep, frame: np.ndarray) -> None:
        """Pixels of camera 0; or the observation's parts in the suite's order, then zeros."""
        if self._renders:
            height, width, _ = frame.shape
            frame[...] = self._environment.physics.render(height, width, camera_id=0)
        else:
            parts = [np.ravel(part) for part in time_step.observation.values()]
            vector = np.concatenate(parts)
            frame[: vector.size] = vector


class _EnvpoolSimulator:
    """An environment of the suite as envpool simulates and renders it.

    envpool's `frame_skip` is no action repeat: it is the number of physics steps in an environment
    step, and the reward is read once. Its pixel observations are not used, because it renders them
    at every environment step, and a repeat shows only the last. `render` returns the same pixels.
    It also renders in the calling thread, whose GL context all pools share. GL contexts of the
    pools' own threads have crashed processes (envpool's issues 401 and 405).
    """

    physics_errors = ()  # after an error MuJoCo resets to its default state; envpool hides this

    def __init__(self, simulation: Simulation, frame_shape: tuple[int, ...]):
        self._pool = make_pool(simulation.domain, simulation.task, simulation.seed, frame_shape)

    def reset(self) -> dm_env.TimeStep:
        self._pool.reset()  # explicitly: else the step after an end would be a reset
        return dm_env.restart(observation=None)

    def step(self, action: np.ndarray) -> dm_env.TimeStep:
        _, (reward,), (terminated,), (truncated,), _ = self._pool.step(action[np.newaxis])
        reward = float(reward)
        if terminated:
            return dm_env.termination(reward, observation=None)
        if truncated:
            return dm_env.truncation(reward, observation=None)
        return dm_env.transition(reward, observation=None)

    def observe(self, time_step: dm_env.TimeStep, frame: np.ndarray) -> None:
        frame[...] = self._pool.render()[0]


def make_pool(domain: str, task: str, seed: int, frame_shape: tuple[int, ...]) -> Any:
    """A pool of one environment of envpool, whose `render` shows camera 0.

    Its time limit is the one that envpool registers, the suite's 1000 environment steps.

    Raises:
      OSError: the system's libGL cannot be loaded.
    """
    # MuJoCo looks for OpenGL among the process's global symbols. Without it, MuJoCo ends the
    # process.
    ctypes.CDLL("libGL.so.1", mode=ctypes.RTLD_GLOBAL)
    # envpool imports JAX if it can, for an interface that is not used here.
    sys.modules.setdefault("jax", None)
    import envpool

    name = "".join(part.capitalize() for part in f"{domain}_{task}".split("_"))
    height, width, _ = frame_shape
    return envpool.make(
        f"{name}-v1",
        env_type="gymnasium",
        num_envs=1,
        num_threads=1,
        seed=[seed],
        render_mode="rgb_array",
        render_width=width,
        render_height=height,
        render_camera_id=0,
    )
