"""The six tasks of the DeepMind Control suite that RCRL trains on, in worker processes."""

import importlib.metadata
import multiprocessing
import signal
import sys
import time
import types
from collections.abc import Sequence
from multiprocessing import resource_tracker, util
from typing import NamedTuple

import dm_env
import numpy as np

from rcrl_jax import signals, words
from rcrl_jax.envs import dmc_rendering, dmc_worker, pools
from rcrl_jax.envs.protocol import (
    EnvironmentSpec,
    SimulatorFailed,
    TimeStep,
    VectorEnvironment,
    after_reset,
    control_spec,
    validate_actions,
    validate_mask,
    validate_seeds,
)


class Task(NamedTuple):
    """A task of the suite."""

    domain: str
    task: str
    action_repeat: int
    """Environment steps of an agent step (CURL, table 3)."""
    action_size: int
    """Components of an action: the `num_valid_actions` of a run."""
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

RENDERER_BYTES = 90 * 2**20
"""Approximate memory of an environment that renders: model and GL context."""
TIME_LIMIT = 1000
"""Environment steps of an episode; the suite's own limit, which truncates."""

# Every vector has the sizes of the largest task, so that the shapes of a run's network, and with
# them its initial parameters, are independent of fleet composition.
MAX_NUM_ACTIONS = max(task.action_size for task in DMC_TASKS.values())
MAX_STATE_SIZE = max(task.state_size for task in DMC_TASKS.values())

DMC_BACKENDS = ("dm_control", "envpool")

_ANSWER_TIMEOUT_S = 300.0
_WAITS = 100
_END_TIMEOUT_S = 5.0  # a worker that has not ended by then is killed


def make_dmc(
    tasks: Sequence[str],
    seeds: Sequence[int],
    *,
    backend: str = "dm_control",
    observation: str = "pixels",
    render_size: int = 100,
    action_repeat: int = 0,
    num_workers: int | None = None,
) -> VectorEnvironment:
    """Makes R = len(tasks) environments, which step together in worker processes.

    An agent step repeats its action and sums the rewards. Actions are [R, A] float32 in [-1, 1]
    with A = `MAX_NUM_ACTIONS`; a task reads its first `action_size` components. The suite's time
    limit of 1000 environment steps truncates. So does a physics error of dm_control; envpool has
    none.

    Args:
        tasks: one per environment, of `DMC_TASKS`.
        seeds: one per environment, in [0, 2**31).
        backend: 'dm_control', or 'envpool', which has its own MuJoCo and renders with EGL only.
            The same seed starts different episodes on the two backends, and the floors of their
            frames look different. The environment's `description` names backend and versions.
        observation: 'pixels', frames `[render_size, render_size, 3] uint8` of camera 0; or
            'state', `[MAX_STATE_SIZE] float32`, the parts of the suite's observation followed by
            zeros, from dm_control only.
        render_size: height and width of a frame.
        action_repeat: environment steps of an agent step; 0 takes the tasks' own value, which must
            then be the same for all.
        num_workers: processes; None for one per usable core, at most one per environment.

    Raises:
        ValueError: tasks of different action repeats, or a bad seed.
        ImportError: the backend is not installed.
        RendererUnavailable: the backend does not render; the message says what to install.
    """
    seeds = validate_seeds(seeds)
    if len(seeds) != len(tasks):
        raise ValueError(f"{len(seeds)} seeds for {len(tasks)} tasks")
    repeats = {task: repeat_of(task, action_repeat) for task in tasks}
    if len(set(repeats.values())) > 1:
        raise ValueError(f"the tasks of a vector must share one action repeat, got {repeats}")
    dmc_rendering.check_installed(backend)
    renderer = dmc_worker.NO_RENDERER
    if observation == "pixels":
        renderer = (
            dmc_rendering.find_renderer()
            if backend == "dm_control"
            else dmc_rendering.find_envpool_renderer()
        )
    spec = make_spec(tasks[0], observation, render_size, action_repeat)
    workers = min(num_workers or pools.usable_cores(), len(tasks))
    return _ControlSuite(tasks, seeds, spec, backend, renderer, workers)


def repeat_of(task: str, action_repeat: int) -> int:
    """Environment steps of an agent step: `action_repeat`, or that of the task where it is 0."""
    return action_repeat or DMC_TASKS[task].action_repeat


def make_spec(
    task: str, observation: str, render_size: int, action_repeat: int = 0
) -> EnvironmentSpec:
    """The spec of the environments that `make_dmc` makes; arguments as there."""
    repeat = repeat_of(task, action_repeat)
    if observation == "state":
        return control_spec((MAX_STATE_SIZE,), MAX_NUM_ACTIONS, action_repeat=repeat)
    frame_shape = (render_size, render_size, 3)
    spec = control_spec(frame_shape, MAX_NUM_ACTIONS, action_repeat=repeat)
    return spec._replace(host_bytes=RENDERER_BYTES)


class _ControlSuite(VectorEnvironment):
    """See `make_dmc`."""

    def __init__(
        self,
        tasks: Sequence[str],
        seeds: np.ndarray,
        spec: EnvironmentSpec,
        backend: str,
        renderer: str,
        num_workers: int,
    ):
        self.spec = spec
        self.num_envs = len(tasks)
        self.num_valid_actions = np.array([DMC_TASKS[task].action_size for task in tasks], np.int32)
        self.description = _describe(tasks, spec, backend, renderer)
        self._last: TimeStep | None = None

        context = multiprocessing.get_context("spawn")  # GL contexts do not survive a fork
        shared = dmc_worker.allocate(context, self.num_envs, spec)
        self._arrays = dmc_worker.as_arrays(shared, spec)
        self._rows, self._connections, self._workers = [], [], []
        # If nobody calls `close`, this runs before multiprocessing waits for the workers at exit.
        self._end = util.Finalize(
            self, _end_all, (self._connections, self._workers), exitpriority=0
        )
        for rows in np.array_split(np.arange(self.num_envs), num_workers):
            mine, theirs = context.Pipe()
            simulations = [
                dmc_worker.Simulation(
                    DMC_TASKS[tasks[r]].domain,
                    DMC_TASKS[tasks[r]].task,
                    DMC_TASKS[tasks[r]].action_size,
                    int(seeds[r]),
                )
                for r in rows
            ]
            worker = context.Process(
                target=dmc_worker.work,
                args=(theirs, simulations, int(rows[0]), shared, spec, backend, renderer),
                daemon=True,
            )
            _start(worker)
            theirs.close()
            self._rows.append(rows)
            self._connections.append(mine)
            self._workers.append(worker)

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
            _ask(connection, "reset", self.renders)
        for rows, connection in concerned:
            # A worker makes its environments one after the other before its first answer.
            _wait(connection, _ANSWER_TIMEOUT_S * (len(rows) if first else 1))
        frame = self._arrays.frame[mask]  # a copy
        self._last = after_reset(self._last, mask, frame, np.zeros(len(frame), np.int32))
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        self._arrays.action[...] = actions
        for connection in self._connections:
            _ask(connection, "step", self.renders)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        for connection in self._connections:
            _wait(connection, _ANSWER_TIMEOUT_S)
        arrays = self._arrays
        # A last step has discount 0 if the episode terminated, and more at the time limit.
        is_last = arrays.step_type == dm_env.StepType.LAST
        self._last = TimeStep(
            frame=arrays.frame.copy(),
            reward=arrays.reward.copy(),
            lives=np.zeros(self.num_envs, np.int32),
            terminated=is_last & (arrays.discount == 0.0),
            truncated=is_last & (arrays.discount > 0.0),
            failed=arrays.failed.copy(),
        )
        return self._last

    def close(self) -> None:
        """Ends the worker processes."""
        self._end()


def _describe(tasks: Sequence[str], spec: EnvironmentSpec, backend: str, renderer: str):
    """The `description` of a vector."""
    version = importlib.metadata.version(backend)
    if backend == "envpool":
        physics = f"MuJoCo as built into envpool {version}"
    else:
        physics = f"MuJoCo {importlib.metadata.version('mujoco')}"
    return {
        "backend": backend,
        "backend_version": version,
        "physics": physics,
        "renderer": renderer,
        "camera": 0,
        "frame_shape": list(spec.frame.shape),
        "time_limit_env_steps": TIME_LIMIT,
        "time_limit": "truncates",
        "reward": "sum over the action repeat",
        "pools": [
            {"task": task, "action_repeat": spec.action_repeat, "num_envs": 1} for task in tasks
        ],
    }


def _ask(connection, request: str, renders: bool) -> None:
    """Sends a worker a request, and whether frames are wanted.

    Raises:
        SimulatorFailed: the worker has ended.
    """
    try:
        connection.send((request, renders))
    except ConnectionError:
        raise SimulatorFailed(_ENDED) from None


def _wait(connection, timeout_s: float) -> None:
    """Waits for a worker's answer.

    Raises:
        SimulatorFailed: the worker failed, has ended, or does not answer within `timeout_s`.
    """
    # In short waits: if this process and its workers are suspended, only one wait times out.
    if not any(connection.poll(timeout_s / _WAITS) for _ in range(_WAITS)):
        raise SimulatorFailed(f"a simulator has not answered for {timeout_s:g} s")
    try:
        failure = connection.recv()
    except (EOFError, ConnectionError):
        raise SimulatorFailed(_ENDED) from None
    if failure is not None:
        raise SimulatorFailed(f"a simulator failed: {words.one_line(failure, 500)}")


_ENDED = "a simulator's process has ended"


def _start(worker: multiprocessing.Process) -> None:
    """Starts a worker that stop signals never reach, from its first instruction on.

    Only the parent decides when to stop; a signal to the process group reaches the parent, too. The
    worker does not import the user's script, which may lack the check of `__name__`.
    """
    resource_tracker.ensure_running()  # starting it later would unblock the signals
    script = sys.modules["__main__"]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals.STOP_SIGNALS)
    sys.modules["__main__"] = types.ModuleType("__main__")  # without a file to import
    try:
        worker.start()  # inherits the blocked signals
    finally:
        sys.modules["__main__"] = script
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_all(connections, workers) -> None:
    """Workers end when their connections close; those that hang are killed."""
    for connection in connections:
        connection.close()
    deadline = time.monotonic() + _END_TIMEOUT_S
    for worker in workers:
        worker.join(max(0.0, deadline - time.monotonic()))
        worker.kill()
        worker.join()
