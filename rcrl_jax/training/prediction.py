"""Predicts memory, disk space and time of a fleet before it starts."""

import contextlib
import dataclasses
import datetime
import math
import pathlib
import resource
import time
from typing import Any, NamedTuple

import jax
import numpy as np
import psutil

from rcrl_jax import files, types, words
from rcrl_jax.agents.agent import Agent, Schedule
from rcrl_jax.config import fields
from rcrl_jax.config.presets import Config
from rcrl_jax.envs import pools
from rcrl_jax.envs.frame_log import FRAME_LOG
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import FrameLayout
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.return_contrast import instruments
from rcrl_jax.runs import checkpoints
from rcrl_jax.training import build, evaluation
from rcrl_jax.training.environments import environment_of
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan
from rcrl_jax.training.session import Session

_BYTES_A_SLOT = 80  # of a replay, without frames: stack, action, window, segments, sum tree
_BYTES_A_RUN = 16 * 2**20  # emulator, history, records
_PRIORITY_BYTES = 8  # of a slot, in a checkpoint
_COMPRESSED = 0.3  # size of a logged frame / size of a raw frame; 0.03 to 0.28 on the six tasks
_RECORD_BYTES_A_RUN = 32 * 2**20  # on disk: metrics twice, evaluations, curve, video
_SAVING_MEMORY = ("replay.capacity", "batch_size", "model_batch_size")  # fields of some presets
_LONG_S = 1.0  # an update that takes longer is timed once


class DoesNotFit(ValueError):
    """The fleet needs more memory than there is."""


class MemoryNeeds(NamedTuple):
    """What a fleet needs and what there is, in bytes."""

    host: int
    device: int  # on each device; 0 where the device's memory is the host's
    host_limit: int
    device_limit: int | None


def predict_memory(
    fleet: Fleet, spec: EnvironmentSpec, frame_store: str, total_steps: int
) -> MemoryNeeds:
    """Adds up what the runs of a fleet will hold; allocates nothing.

    Args:
      fleet: the runs.
      spec: of their environments.
      frame_store: 'host' or 'device', where frames will be stored.
      total_steps: agent steps of each run.
    """
    runs, agent = fleet.num_runs, fleet.agent
    slots = agent.replay.capacity + 2
    # Counted a second time below: updates are timed on throw-away states before training.
    states = _bytes(jax.eval_shape(fleet.init)) // fleet.num_devices
    device = predict_update_memory(fleet, frame_store) + states
    host = runs * (slots * _BYTES_A_SLOT + _BYTES_A_RUN)
    host += 2 * _bytes(
        [batch_shapes(agent, runs, frame_store, kind) for kind in agent.replay.kinds]
    )
    host += runs * (1 + evaluation.GAMES_AT_ONCE) * spec.host_bytes
    host += runs * evaluation.GAMES_AT_ONCE * instruments.MOST_BYTES
    host += 2 * runs * total_steps * _logged_bytes(agent)  # the history, and its copy to save
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    if limit is not None:
        host += 2 * states * fleet.num_devices  # our copy of the learner for saving, and JAX's copy
    if frame_store == "host":
        host += _frame_bytes(agent, runs, math.prod(agent.observations.stored.stored_shape))
    available = available_bytes()
    if limit is None:  # one memory for both
        return MemoryNeeds(host + device * fleet.num_devices, 0, available, None)
    return MemoryNeeds(host, device, available, limit)


def available_bytes(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Free memory of the machine, within the limits of this process and its control groups.

    Containers and cluster managers set such limits. A group's cache of files counts as free.

    Args:
      root: where `proc` and `sys` are.
    """
    free = psutil.virtual_memory().available
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if most != resource.RLIM_INFINITY:  # set by `ulimit -v`; XLA aborts beyond it
        free = min(free, most - psutil.Process().memory_info().vms)
    for group in pools.control_groups("memory", root):
        limit_file, used_file, prefix = "memory.max", "memory.current", ""
        if not (group / limit_file).exists():  # version 1
            limit_file, used_file = "memory.limit_in_bytes", "memory.usage_in_bytes"
            prefix = "total_"
        with contextlib.suppress(OSError, LookupError, ValueError):  # no file, or "max"
            limit, used = (int((group / name).read_text()) for name in (limit_file, used_file))
            parts = dict(map(str.split, (group / "memory.stat").read_text().splitlines()))
            cached = sum(int(parts[f"{prefix}{name}_file"]) for name in ("active", "inactive"))
            free = min(free, limit - used + cached)
    return free


def predict_update_memory(fleet: Fleet, frame_store: str) -> int:
    """Bytes that an update needs on each device, for its arguments and results.

    Args:
      fleet: the runs.
      frame_store: 'host' or 'device', where frames will be stored.
    """
    agent, runs = fleet.agent, math.ceil(fleet.num_runs / fleet.num_devices)
    states = jax.eval_shape(fleet.init)  # the update overwrites them
    gradients = states.params
    at_once = 1 if fleet.batching == "map" else runs
    batch = max(_bytes(batch_shapes(agent, runs, frame_store, kind)) for kind in agent.replay.kinds)
    size = _bytes((states, gradients)) // fleet.num_devices + batch
    size += at_once * agent.resources.activation_bytes
    if frame_store == "device":
        size += _frame_bytes(agent, runs, frames.device_frame_size(agent.observations.stored))
    return size


def fleet_of(plan: Plan, spec: EnvironmentSpec) -> Fleet:
    """A plan's fleet before there are environments; `spec` has their largest action set."""
    return build.assemble_fleet(plan, spec, np.full(len(plan.runs), spec.max_num_actions))


def check_resources(plan: Plan, spec: EnvironmentSpec) -> None:
    """Checks that a plan's fleet fits on the disk and in memory; makes and writes nothing.

    Files that the runs have already written need no more space.

    Args:
      plan: the experiment.
      spec: of the environments, with the largest action set that they may have.

    Raises:
      Incompatible: the configuration, its tasks and the environments do not work together.
      DoesNotFit: too little memory.
      OSError: too little space on the disk.
    """
    fleet = fleet_of(plan, spec)
    game = plan.runs[0].game
    repeats = environment_of(plan.config, game).repeats(game)
    needed = predict_disk(fleet, plan.total_steps, logs_steps=not repeats)
    files.check_space(plan.workdir, needed - _on_disk(plan))
    needs = predict_memory(fleet, spec, plan.frame_store, plan.total_steps)
    check(needs, fleet.num_runs, plan.config)


def forecast(session: Session) -> str:
    """One line for the user about a session: memory and time to its end, from timed updates."""
    plan, fleet, state = session.plan, session.fleet, session.state
    spec = session.environment.spec
    memory = predict_memory(fleet, spec, plan.frame_store, plan.total_steps)
    counts = updates_to_go(fleet.agent.schedule, state.step, state.early_updates, plan.total_steps)
    seconds = sum(
        number * time_update(fleet, session.replay.example_batch(kind), kind)
        for kind, number in enumerate(counts)
        if number
    )
    return describe(memory, seconds / max(sum(counts), 1), sum(counts), datetime.datetime.now())


def updates_to_go(schedule: Schedule, step: int, made: int, total_steps: int) -> list[int]:
    """Updates of each kind from agent step `step` on, less the `made` first ones."""
    counts = list(schedule.counts(step, total_steps))
    for number in range(made):
        counts[schedule.kind(step, number)] -= 1
    return counts


def predict_disk(fleet: Fleet, total_steps: int, *, logs_steps: bool = False) -> int:
    """Bytes that a fleet's work directory needs: checkpoints, records and the log of frames.

    The last two checkpoints stay while a third is written.

    Args:
      fleet: the runs.
      total_steps: agent steps of each.
      logs_steps: whether the environments do not repeat, so that their frames are kept.
    """
    agent = fleet.agent
    progress = total_steps * _logged_bytes(agent)
    progress += agent.replay.capacity * _PRIORITY_BYTES
    learner = _bytes(jax.eval_shape(fleet.init))
    run_bytes = 3 * progress + _RECORD_BYTES_A_RUN
    if agent.resources.logs_frames or logs_steps:
        layout = agent.observations.stored
        frame_bytes = math.prod(layout.stored_shape) * np.dtype(layout.dtype).itemsize
        run_bytes += int(total_steps * frame_bytes * _COMPRESSED)
    return 3 * learner + fleet.num_runs * run_bytes


def _logged_bytes(agent: Agent) -> int:
    """Bytes of one action in the log of actions."""
    return History(1, 1, agent.action.shape).state.actions.nbytes


def _on_disk(plan: Plan) -> int:
    """Bytes of existing files that `predict_disk` counts, or that the runs will delete."""
    directory = plan.paths[0].checkpoints
    places = [plan.workdir / FRAME_LOG]
    places += [checkpoints.path_of(directory, step) for step in checkpoints.kept_steps(directory)]
    places += [path for path in directory.glob("*") if checkpoints.is_leftover(path)]
    places += [file for paths in plan.paths for file in (paths.metrics, paths.evaluations)]
    return sum(map(files.bytes_in, places))


def check(memory: MemoryNeeds, num_runs: int, config: Config) -> None:
    """Checks that a fleet fits in memory.

    Args:
      memory: what `predict_memory` returned.
      num_runs: number of runs in the fleet.
      config: the error names fields of this configuration that save memory.

    Raises:
      DoesNotFit: one line with the numbers and the largest number of runs that fits.
    """
    needs = [("host", memory.host, memory.host_limit)]
    if memory.device_limit is not None:
        needs.append(("device", memory.device, memory.device_limit))
    for name, needed, limit in needs:
        if needed > limit:
            fit = num_runs * limit // needed
            known = fields.values(config)
            saving = [f"--config.{name}" for name in _SAVING_MEMORY if name in known]
            raise DoesNotFit(
                f"{words.count('run', num_runs)}: {needed / 2**30:.1f} GiB of {name} memory "
                f"needed and {limit / 2**30:.1f} GiB free, enough for {words.count('run', fit)} "
                f"(or lower {' or '.join(saving)})"
            )


def time_update(fleet: Fleet, batch: types.Batch, kind: int = 0) -> float:
    """Seconds of one update of all runs, on throw-away states; compiles the real update."""
    state = fleet.init()
    durations = []
    for timed in range(4):  # the first one compiles
        start = time.perf_counter()
        state, _ = fleet.update(state, batch, kind)
        jax.block_until_ready(state)
        durations.append(time.perf_counter() - start)
        if timed and durations[-1] > _LONG_S:
            break
    return min(durations[1:])


def describe(memory: MemoryNeeds, update_s: float, updates: int, now: datetime.datetime) -> str:
    """One line for the user, when `updates` updates are left."""
    device = f" and {memory.device / 2**30:.1f} GiB on each device" if memory.device else ""
    to_go = datetime.timedelta(seconds=update_s * updates)
    return (
        f"predicted: {memory.host / 2**30:.1f} GiB of host memory{device}; {updates:,} updates of "
        f"{1e3 * update_s:.1f} ms to go, {_duration(to_go)}: not before {now + to_go:%H:%M (%d %b)}"
    )


def _duration(time: datetime.timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


class _Shapes:
    """A frame store without frames: returns shapes of stacks, or references without frames."""

    zero_slot = 1  # of a ring with one slot

    def __init__(self, on_device: bool) -> None:
        self._on_device = on_device

    def gather(self, name: str, slots: np.ndarray, layout: FrameLayout) -> Any:
        """See `HostFrameStore.gather`."""
        del name
        if self._on_device:
            return frames.refer(slots, None, layout)
        runs, size, number = slots.shape
        return jax.ShapeDtypeStruct((runs, size, *layout.stack_shape(number)), layout.dtype)


def batch_shapes(agent: Agent, runs: int, frame_store: str, kind: int = 0) -> types.Batch:
    """The shapes and types of a batch, leading axis R; holds no data.

    Args:
      agent: reads the batch.
      runs: R.
      frame_store: 'host', or 'device' for references without their frames.
      kind: of update.
    """
    replay = SegmentReplay(
        _Shapes(frame_store == "device"),
        np.zeros(1, np.int64),
        dataclasses.replace(agent.replay, capacity=1),
        agent.observations,
        agent.action,
    )
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct((runs, *x.shape[1:]), x.dtype), replay.example_batch(kind)
    )


def empty_batch(agent: Agent, runs: int, frame_store: str, kind: int = 0) -> types.Batch:
    """A batch of zeros whose rewards, discounts and weights are 1; see `batch_shapes`.

    Only transitions have weights.
    """
    zeros = jax.tree.map(
        lambda x: np.zeros(x.shape, x.dtype), batch_shapes(agent, runs, frame_store, kind)
    )
    ones = np.ones_like(zeros.transitions.reward)
    transitions = zeros.transitions._replace(reward=ones, discount=ones)
    if not agent.replay.sequences:  # windows have no weights
        transitions = transitions._replace(weight=ones)
    return zeros._replace(transitions=transitions)


def _frame_bytes(agent: Agent, runs: int, size: int) -> int:
    """Bytes of the stored frames of `runs` runs, `size` elements each."""
    itemsize = np.dtype(agent.observations.stored.dtype).itemsize
    return runs * (agent.replay.capacity + 2) * size * itemsize


def _bytes(tree: Any) -> int:
    return sum(math.prod(x.shape) * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree))
