"""Predicts memory, disk space and time of a fleet before it starts."""

import datetime
import math
import pathlib
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil

from rcrl_jax import types
from rcrl_jax.agents.agent import Agent
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import FrameLayout
from rcrl_jax.replay import frames
from rcrl_jax.representation import instruments
from rcrl_jax.training import evaluation, workdir
from rcrl_jax.training.fleet import Fleet

_BYTES_A_SLOT = 80  # of a replay without its frames: stack, action, window, segments, sum tree
_BYTES_A_RUN = 16 * 2**20  # emulator, history, records
_PRIORITY_BYTES = 8  # of a slot, in a checkpoint
_RECORD_BYTES_A_RUN = 32 * 2**20  # on disk: metrics twice, evaluations, curve, video


class DoesNotFit(ValueError):  # noqa: N818 - says what is the matter
    """The fleet needs more memory than there is."""


class Memory(NamedTuple):
    """What a fleet needs and what there is, in bytes."""

    host: int
    device: int  # on each device; 0 where the device's memory is the host's
    host_limit: int
    device_limit: int | None


def predict_memory(fleet: Fleet, spec: EnvironmentSpec, frame_store: str) -> Memory:
    """Adds up what the runs of a fleet will hold.

    Args:
      fleet: the runs.
      spec: of their environments.
      frame_store: 'host' or 'device', where frames will be stored.
    """
    runs, agent = fleet.num_runs, fleet.agent
    slots, layout = agent.replay.capacity + 2, agent.observations.stored
    frame_bytes = runs * slots * math.prod(layout.stored_shape) * np.dtype(layout.dtype).itemsize
    batch_bytes = _bytes(empty_batch(agent, runs, frame_store))
    state_bytes = _bytes(jax.eval_shape(fleet.init))
    at_once = 1 if fleet.batching == "map" else runs
    # The state before and after an update, and its gradients.
    device = 3 * state_bytes + batch_bytes + at_once * agent.resources.activation_bytes
    host = runs * (slots * _BYTES_A_SLOT + _BYTES_A_RUN) + 2 * batch_bytes
    host += runs * (1 + evaluation.GAMES_AT_ONCE) * spec.host_bytes
    games = min(agent.evaluation.episodes, evaluation.GAMES_AT_ONCE)
    host += runs * games * instruments.MOST_BYTES
    if frame_store == "device":
        device += frame_bytes
    else:
        host += frame_bytes
    available = psutil.virtual_memory().available
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is None:  # one memory for both
        return Memory(host + device, 0, available, None)
    return Memory(host, device // fleet.num_devices, available, limit)


def check_resources(
    fleet: Fleet, spec: EnvironmentSpec, frame_store: str, total_steps: int, directory: pathlib.Path
) -> Memory:
    """Checks that a fleet fits on the disk and in memory; writes nothing.

    Args:
      fleet: the runs.
      spec: of their environments.
      frame_store: 'host' or 'device', where frames will live.
      total_steps: agent steps of each run.
      directory: where the runs will write.

    Returns:
      The predicted memory.

    Raises:
      DoesNotFit: too little memory.
      OSError: too little space on the disk.
    """
    workdir.check_space(directory, predict_disk(fleet, total_steps))
    memory = predict_memory(fleet, spec, frame_store)
    check(memory, fleet.num_runs)
    return memory


def forecast(memory: Memory, fleet: Fleet, batch: types.Batch, steps: int) -> str:
    """One line for the user, before `steps` more steps: memory and time, from timed updates."""
    return describe(memory, time_update(fleet, batch), steps, datetime.datetime.now())


def predict_disk(fleet: Fleet, total_steps: int) -> int:
    """Bytes that a fleet's work directory needs at most: two checkpoints and the records.

    Args:
      fleet: the runs.
      total_steps: agent steps of each.
    """
    action = fleet.agent.action
    action_bytes = math.prod(action.shape) * np.dtype(action.dtype).itemsize
    progress = total_steps * (action_bytes + _PRIORITY_BYTES)
    learner = _bytes(jax.eval_shape(fleet.init))
    return 2 * (learner + fleet.num_runs * progress) + fleet.num_runs * _RECORD_BYTES_A_RUN


def check(memory: Memory, num_runs: int) -> None:
    """Checks that a fleet fits in memory.

    Raises:
      DoesNotFit: one line with the numbers and the largest number of runs that fits.
    """
    needs = [("host", memory.host, memory.host_limit)]
    if memory.device_limit is not None:
        needs.append(("device", memory.device, memory.device_limit))
    for name, needed, limit in needs:
        if needed > limit:
            raise DoesNotFit(
                f"{num_runs} run(s) need {needed / 2**30:.1f} GiB of {name} memory and "
                f"{limit / 2**30:.1f} GiB are free: {num_runs * limit // needed} run(s) fit "
                "(or lower --config.replay.capacity)"
            )


def time_update(fleet: Fleet, batch: types.Batch) -> float:
    """Seconds of one update of all runs, on throw-away states; compiles the real update."""
    state = fleet.init()
    durations = []
    for _ in range(4):
        start = time.perf_counter()
        state, _ = fleet.update(state, batch)
        jax.block_until_ready(state)
        durations.append(time.perf_counter() - start)
    return min(durations[1:])  # the first one compiles


def describe(memory: Memory, update_s: float, steps: int, now: datetime.datetime) -> str:
    """One line for the user, before `steps` more steps are taken."""
    device = f" and {memory.device / 2**30:.1f} GiB on each device" if memory.device else ""
    to_go = datetime.timedelta(seconds=update_s * steps)
    return (
        f"predicted: {memory.host / 2**30:.1f} GiB of host memory{device}; "
        f"{1e3 * update_s:.1f} ms an update, {to_go.total_seconds() / 60:.0f} min of updates to "
        f"go: not before {now + to_go:%H:%M (%d %b)}"
    )


def empty_batch(agent: Agent, runs: int, frame_store: str) -> types.Batch:
    """A batch with the shapes of a real one, leading axis R, for use before the replay exists.

    Args:
      agent: reads it.
      runs: R.
      frame_store: 'host', or 'device' for references without their frames.
    """
    formats, settings = agent.observations, agent.replay

    def stacks(layout: FrameLayout, size: int) -> Any:
        if frame_store == "host":
            return np.zeros((runs, size, *layout.stack_shape(formats.frame_stack)), layout.dtype)
        slots = np.zeros((runs, size, formats.frame_stack), np.int32)
        return frames.FrameReferences(slots, None, layout.stored_shape, layout.stack_axis)

    def actions(size: int) -> np.ndarray:
        return np.zeros((runs, size, *agent.action.shape), agent.action.dtype)

    size, num_anchors = settings.batch_size, settings.num_anchors
    ones = np.ones((runs, size), np.float32)
    transitions = types.TransitionBatch(
        observation=stacks(formats.observation, size),
        action=actions(size),
        reward=ones,
        discount=ones,
        next_observation=stacks(formats.next_observation, size),
        weight=ones,
    )
    if not num_anchors:
        return types.Batch(transitions, None)
    pairs = [
        types.Pairs(stacks(formats.network, num_anchors), actions(num_anchors)) for _ in range(3)
    ]
    return types.Batch(transitions, types.ContrastBatch(*pairs))


def _bytes(tree: Any) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))
