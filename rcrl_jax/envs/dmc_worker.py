"""Simulations of the DeepMind Control suite in a process of their own.

This process holds no JAX: it imports NumPy and dm_control alone, and the variable that tells
MuJoCo how to render is set before dm_control is imported.
"""

import contextlib
import os
import signal
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
    renderer: str,
) -> None:
    """Serves `step`, `reset` and the end of the connection, until that end.

    Args:
      connection: answers every request with None, or with the text of an exception.
      simulations: the environments of this process.
      first_row: the row of the first of them in the shared memory.
      shared: memory of all environments.
      shapes: frame shape, frame type and room for actions.
      renderer: value of MUJOCO_GL.
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
                    observe = _state if renderer == NO_RENDERER else _render
                    environments = [_Environment(s, observe) for s in simulations]
                for row, environment in enumerate(environments, first_row):
                    if request == "step":
                        environment.step(arrays, row)
                    elif arrays.restart[row]:
                        environment.reset(arrays, row)
            except Exception:
                failure = traceback.format_exc(limit=-2)
            connection.send(failure)


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
