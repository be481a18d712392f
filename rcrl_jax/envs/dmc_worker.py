"""Simulations of the DeepMind Control suite in a process of their own.

This process holds no JAX: it imports NumPy and the backend alone. What tells MuJoCo how to render
is settled before the backend is imported: a variable for dm_control, a library for envpool.
"""

import contextlib
import ctypes
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np

NO_RENDERER = "disabled"  # MUJOCO_GL of simulations that never render


class Simulation(NamedTuple):
    """What one environment simulates."""

    domain: str
    task: str
    action_repeat: int
    num_actions: int
    seed: int


class Shared(NamedTuple):
    """The memory that both processes see, R rows each; only one of them works at any time."""

    frame: Any  # [R, *frame_shape], as bytes
    action: Any  # [R, A] float32
    reward: Any  # [R] float32
    terminated: Any  # [R] uint8
    truncated: Any  # [R] uint8
    restart: Any  # [R] uint8, which environments a reset means

    def arrays(self, frame_shape: tuple[int, ...], frame_dtype: Any, room: int) -> "Shared":
        """NumPy views of the same memory."""
        runs = len(self.restart)
        return Shared(
            np.frombuffer(self.frame, frame_dtype).reshape(runs, *frame_shape),
            np.frombuffer(self.action, np.float32).reshape(runs, room),
            np.frombuffer(self.reward, np.float32),
            np.frombuffer(self.terminated, np.uint8),
            np.frombuffer(self.truncated, np.uint8),
            np.frombuffer(self.restart, np.uint8),
        )


def work(
    connection: Connection,
    simulations: Sequence[Simulation],
    first_row: int,
    shared: Shared,
    shapes: tuple[tuple[int, ...], str, int],
    backend: str,
    renderer: str,
) -> None:
    """Serves `step`, `reset` and the end of the connection, until that end.

    Args:
      connection: answers every request with None, or with the text of an exception.
      simulations: the environments of this process.
      first_row: the row of the first of them in the shared memory.
      shared: memory of all environments.
      shapes: frame shape, frame type and room for actions.
      backend: 'dm_control' or 'envpool'.
      renderer: value of MUJOCO_GL, which envpool does not read: it renders with EGL.
    """
    # The parent decides when to stop: a signal to the whole group reaches it as well.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.environ["MUJOCO_GL"] = renderer
    # One thread a simulation: the other cores have workers of their own.
    os.environ.setdefault("LP_NUM_THREADS", "1")
    arrays = shared.arrays(*shapes)
    environments = None
    with contextlib.suppress(EOFError, ConnectionError):  # the parent has hung up
        while True:
            request, failure = connection.recv(), None
            try:
                if environments is None:
                    environments = [_make(backend, renderer, s, shapes[0]) for s in simulations]
                for row, environment in enumerate(environments, first_row):
                    if request == "step":
                        environment.step(arrays, row)
                    elif arrays.restart[row]:
                        environment.reset(arrays, row)
            except Exception:
                failure = traceback.format_exc(limit=-2)
            connection.send(failure)


def _make(backend: str, renderer: str, simulation: Simulation, frame_shape: tuple[int, ...]):
    """The environment of one row."""
    if backend == "envpool":
        return _EnvpoolEnvironment(simulation, frame_shape)
    return _Environment(simulation, _state if renderer == NO_RENDERER else _render)


class _Environment:
    """One environment of the suite with its action repeated."""

    def __init__(self, simulation: Simulation, observe: Callable[[Any, Any, np.ndarray], None]):
        from absl import logging
        from dm_control import suite

        logging.set_verbosity(logging.ERROR)  # MuJoCo deprecates what the suite's models use
        self._environment = suite.load(
            simulation.domain, simulation.task, task_kwargs={"random": simulation.seed}
        )
        self._repeat = simulation.action_repeat
        self._num_actions = simulation.num_actions
        self._observe = observe

    def reset(self, arrays: Shared, row: int) -> None:
        time_step = self._environment.reset()
        self._observe(self._environment, time_step, arrays.frame[row])

    def step(self, arrays: Shared, row: int) -> None:
        action = arrays.action[row, : self._num_actions]
        reward = 0.0
        for _ in range(self._repeat):
            time_step = self._environment.step(action)
            reward += time_step.reward
            if time_step.last():
                break
        # The suite says by the discount whether an episode ended or ran out of time.
        arrays.reward[row] = reward
        arrays.terminated[row] = time_step.last() and time_step.discount == 0.0
        arrays.truncated[row] = time_step.last() and time_step.discount > 0.0
        self._observe(self._environment, time_step, arrays.frame[row])


def _render(environment, time_step, frame: np.ndarray) -> None:
    height, width, _ = frame.shape
    frame[...] = environment.physics.render(height=height, width=width, camera_id=0)


def _state(environment, time_step, frame: np.ndarray) -> None:
    """The observation's parts in the suite's order, then zeros up to the frame's length."""
    parts = [np.ravel(part) for part in time_step.observation.values()]
    vector = np.concatenate(parts)
    frame[: vector.size] = vector


class _EnvpoolEnvironment:
    """One environment of the suite as envpool simulates and renders it, its action repeated.

    envpool's own `frame_skip` is no action repeat: it is the number of physics steps in an
    environment step, and the reward is read once. Nor are its pixel observations taken: they are
    rendered at every environment step, of which a repeat shows only the last. `render` gives the
    same pixels. It also renders in the calling thread, whose GL context all pools share: contexts
    of the pools' own threads have ended processes that shared them or outlived them (envpool's
    issues 401 and 405).
    """

    def __init__(self, simulation: Simulation, frame_shape: tuple[int, ...]):
        self._pool = make_pool(simulation.domain, simulation.task, simulation.seed, frame_shape)
        self._repeat = simulation.action_repeat
        self._num_actions = simulation.num_actions

    def reset(self, arrays: Shared, row: int) -> None:
        self._pool.reset()  # after an end, a step would do this instead of stepping
        arrays.frame[row] = self._pool.render()[0]

    def step(self, arrays: Shared, row: int) -> None:
        action = arrays.action[row : row + 1, : self._num_actions]
        reward = 0.0
        for _ in range(self._repeat):
            _, (step_reward,), (terminated,), (truncated,), _ = self._pool.step(action)
            reward += float(step_reward)
            if terminated or truncated:
                break
        arrays.reward[row] = reward
        arrays.terminated[row] = terminated
        arrays.truncated[row] = truncated
        arrays.frame[row] = self._pool.render()[0]


def make_pool(domain: str, task: str, seed: int, frame_shape: tuple[int, ...]) -> Any:
    """A pool of one environment of envpool, whose `render` sees camera 0.

    Its time limit is the one that envpool registers, the suite's 1000 environment steps.

    Raises:
      OSError: the system's libGL cannot be loaded.
    """
    # MuJoCo looks for OpenGL among the libraries that the process shares with all; where it finds
    # none, it ends the process.
    ctypes.CDLL("libGL.so.1", mode=ctypes.RTLD_GLOBAL)
    # envpool imports JAX wherever it can, for a way of stepping that is not used here.
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
