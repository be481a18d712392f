"""What a fleet runs on its devices, compiled for devices that are not here."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import jax
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.agent import TRAINING, Agent
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.agents.rainbow.encoders import data_efficient
from rcrl_jax.agents.recurrent.config import DreamerConfig, PlanetConfig
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.agents.slac.config import SlacConfig
from rcrl_jax.config import presets
from rcrl_jax.envs import atari, dmc
from rcrl_jax.replay import frames
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet

_PAIRS = 256  # of a run in one call of the analysis, as in `return_contrast/instruments.py`
_TASK = "cheetah_run"


class ShapedFleet(Fleet):
    """A fleet whose arrays are shapes: its devices are not here."""

    def __init__(self, *arguments: Any, frame_shape: tuple[int, ...], **settings: Any) -> None:
        """As `Fleet`; `frame_shape` is that of a frame as the environment returns it."""
        super().__init__(*arguments, **settings)
        self.frame_shape = frame_shape

    def place(self, tree: Any) -> Any:
        """Shapes `[R', ...]` on the fleet's devices; see `Fleet.place`."""
        runs = self.num_runs + self._copies
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((runs, *x.shape[1:]), x.dtype, sharding=self._sharding),
            tree,
        )

    def init(self) -> types.LearnerState:
        """See `Fleet.init`."""
        return self.place(
            jax.eval_shape(self.programs.init, self._runs_here, self._runs, self._keys, None)
        )

    def zeros(self, shape: Sequence[int], dtype: Any) -> jax.ShapeDtypeStruct:
        """See `Fleet.zeros`."""
        return self.place(jax.ShapeDtypeStruct((1, *shape), dtype))

    @property
    def runs_on_each_device(self) -> int:
        """Runs of one device, copies included."""
        return (self.num_runs + self._copies) // self.num_devices

    def act_arguments(self) -> tuple[Any, ...]:
        """Arguments of `programs.act` for one environment a run; see `Fleet.act`."""
        params, formats = self.init().params.agent, self.agent.observations
        memory = self.place(self.init_memory(1))
        shape = (self.num_runs, 1, formats.frame_stack, *self.frame_shape)
        stacks = np.broadcast_to(np.zeros((), formats.stored.dtype), shape)
        return (
            self._runs_here, self._runs, params, self.place(stacks), self._keys, (np.int32(0),),
            memory,
        )  # fmt: skip

    def pairs_arguments(self, params: Any, *pairs: Any) -> tuple[Any, ...]:
        """Arguments of `programs.embed` and `programs.compare`."""
        return self._runs_here, params, *self.place(pairs), None


class _ShapedStore(frames.DeviceFrameStore):
    """Traces the write of frames in place of writing them."""

    @property
    def shape(self) -> jax.ShapeDtypeStruct:
        """Of all frames, `[R', slots, L]`."""
        return self._frames

    def _scatter(self, slots, frames):
        self.traced = self._write.trace(self._frames, *self._place((slots, frames)))


def make_fleet(preset: str, runs: int, batching: str, devices: Sequence[Any]) -> ShapedFleet:
    """A fleet of a preset, spread over the 26 games as far as there are runs, or on one task."""
    config = presets.all_presets()[preset]
    if isinstance(config, RainbowConfig | SimpleConfig):
        spec, names = atari.largest_spec(config.frame_shape), list(atari.ATARI_GAMES)
    else:
        repeat = config.action_repeat
        spec = dmc.make_spec(_TASK, config.observation, config.render_size, repeat)
        names = [_TASK]
    agent = make_agent(config, spec)
    constants = [agent.run_constants(names[run % len(names)]) for run in range(runs)]
    stacked = jax.tree.map(lambda *of_runs: np.stack(of_runs), *constants)
    actions = np.full(runs, spec.max_num_actions, np.int32)
    specs = types.RunSpec(actions, stacked)
    return ShapedFleet(
        agent,
        range(runs),
        specs,
        batching=batching,
        devices=devices,
        frame_shape=spec.frame.shape,
    )


def store_of(fleet: ShapedFleet) -> _ShapedStore:
    """The frames of all runs on the devices."""
    layout, slots = fleet.agent.observations.stored, fleet.agent.replay.capacity + 2
    zeros = fleet.zeros((slots, frames.device_frame_size(layout)), layout.dtype)
    return _ShapedStore(fleet.num_runs, zeros, fleet.place, layout)


def _update(fleet, kind=0):
    batch = batch_of(fleet, kind)
    *arguments, _ = fleet.update_arguments(fleet.init(), batch)
    stored = store_of(fleet).shape if _pixels(fleet) else None
    return fleet.programs.update[kind].trace(*arguments, stored)


def batch_of(fleet: ShapedFleet, kind: int = 0) -> types.Batch:
    """Shapes of a batch whose images are references; states come from the host."""
    frame_store = "device" if _pixels(fleet) else "host"
    return prediction.batch_shapes(fleet.agent, fleet.num_runs, frame_store, kind)


def _pixels(fleet):
    return fleet.agent.observations.stored.dtype == np.uint8


def _act(fleet):
    return fleet.programs.act[TRAINING].trace(*fleet.act_arguments())


def _write(fleet):
    rows, store = np.arange(fleet.num_runs), store_of(fleet)
    dtype = fleet.agent.observations.stored.dtype
    store.write(rows, np.zeros_like(rows), np.zeros((fleet.num_runs, *fleet.frame_shape), dtype))
    return store.traced


def _pairs(fleet) -> types.Pairs:
    action = fleet.agent.action
    actions = np.zeros((fleet.num_runs, _PAIRS, *action.shape), action.dtype)
    formats = fleet.agent.observations
    shape = (fleet.num_runs, _PAIRS, *formats.network_shape)
    observation = np.broadcast_to(np.zeros((), formats.network.dtype), shape)
    if formats.with_actions:
        led_by = np.repeat(actions[:, :, None], formats.frame_stack, axis=2)
        observation = types.Context(observation, led_by, np.ones(led_by.shape[:3], bool))
    return types.Pairs(observation, actions)


def _embed(fleet):
    params = fleet.init().params.agent
    return fleet.programs.embed.trace(*fleet.pairs_arguments(params, _pairs(fleet)))


def _compare(fleet):
    pairs = _pairs(fleet)
    return fleet.programs.compare.trace(*fleet.pairs_arguments(fleet.init().params, pairs, pairs))


KINDS = {"update": 0, "update_1": 1, "update_2": 2}
"""The kinds of updates; an agent with one kind has the first program alone."""

PROGRAMS: dict[str, Callable[[ShapedFleet], Any]] = {
    **{name: functools.partial(_update, kind=kind) for name, kind in KINDS.items()},
    "act": _act, "write": _write, "embed": _embed, "compare": _compare,
}  # fmt: skip
"""Traces each of the programs with a fleet's shapes; images are stored on the devices."""


def own_loops(config: presets.Config, program: str) -> list[int]:
    """Lengths of the loops that an agent's arithmetic has: over time, fits, minibatches.

    A loop that gradients pass through is listed twice: it runs forwards and backwards.
    """
    match config, program:
        case DreamerConfig(), "update":  # filter, imagination, lambda returns
            return 2 * [config.sequence_length, config.horizon, config.horizon - 1]
        case PlanetConfig(), "update":
            return 2 * [config.sequence_length]
        case PlanetConfig(), "act":
            return [config.iterations, config.horizon]
        case SlacConfig(), "update":  # the model's filter both ways, and the critics' filter
            return 3 * [config.window_frames]
        case SlacConfig(), "update_1":  # of the model alone
            return 2 * [config.window_frames]
        case SimpleConfig(), "update_1" | "update_2":  # rollout, advantages, minibatches
            in_game = config.real_rollout // config.real_agents
            steps = in_game if program == "update_1" else config.model_rollout
            return [steps, steps - 1, config.passes * (steps - 1) // config.minibatch_steps]
    return []


def update_text(
    agent: Agent, run: types.RunSpec, state: types.LearnerState, batch: types.Batch
) -> tuple[str, dict[int, int]]:
    """One run's update as the compiler gets it for CUDA: on a CPU our kernels would hide products.

    Args:
        agent: of the run.
        run: as `Agent.update` takes it, without a run axis; so are the others.
        state: likewise.
        batch: likewise.

    Returns:
        The text, and the known arguments for `counting.products`: an update may depend on the
        number of earlier updates.
    """
    with mock.patch.object(data_efficient, "ALIGNMENT", 1):  # a CPU multiplies no zeros
        traced = jax.jit(lambda *of_run: agent.update(*of_run)).trace(run, state, batch)
    leaves = jax.tree.leaves((run, state, batch))
    place = next(i for i, leaf in enumerate(leaves) if leaf is state.updates)
    text = traced.lower(lowering_platforms=("cuda",)).as_text("hlo")
    return text, {place: int(state.updates)}


def least_bytes(fleet: ShapedFleet, activations: float, kind: int) -> dict[str, float]:
    """The least that an update must move on each device, in bytes, part by part.

    Args:
        fleet: the runs.
        activations: bytes of the results of all products of the forward passes.
        kind: of update.
    """
    state, batch = fleet.place((fleet.init(), batch_of(fleet, kind)))
    references = [x for x in jax.tree.leaves(batch, is_leaf=_is_reference) if _is_reference(x)]
    pixels = np.dtype(fleet.agent.observations.stored.dtype).itemsize
    read = sum(x.slots.size * math.prod(x.shape) * pixels for x in references)
    shared = fleet.num_devices
    return {
        "parameters, read and written": 2 * _bytes(state.params) / shared,
        "moments, read and written": 2 * _bytes(state.opt_state) / shared,
        "gradients, written and read": 2 * _bytes(state.params) / shared,
        "target and momentum networks, read": _bytes((state.target_params, state.task_state))
        / shared,
        "batch without frames, read": _bytes(batch) / shared,
        "frames of the batch, read": read / shared,
        "results of the forward products, written": activations,
    }


def updates_a_step(fleet: ShapedFleet) -> float | None:
    """Updates that an agent step takes on average; None where there are several kinds."""
    schedule = fleet.agent.schedule
    if len(fleet.agent.replay.kinds) > 1:
        return None
    return schedule.updates / schedule.update_period


def transfers(fleet: ShapedFleet) -> dict[str, float] | None:
    """Bytes that an agent step moves between the host and each device, part by part, on average.

    None where there are several kinds of updates.
    """
    updates = updates_a_step(fleet)
    if updates is None:
        return None
    size = fleet.agent.replay.batch_size
    runs, shared = fleet.runs_on_each_device, fleet.num_devices
    layout = fleet.agent.observations.stored
    frame = math.prod(layout.stored_shape) * np.dtype(layout.dtype).itemsize
    return {
        "observations to act on": _bytes(fleet.act_arguments()[3]) / shared,
        "batch": updates * _bytes(fleet.place(batch_of(fleet))) / shared,
        "new frames": runs * frame,
        "losses, back": updates * runs * size * 4,
        "actions, back": runs * fleet.agent.action.size * fleet.agent.action.dtype.itemsize,
    }


def _is_reference(x: Any) -> bool:
    return isinstance(x, frames.FrameReferences)


def _bytes(tree: Any) -> int:
    return sum(x.size * np.dtype(x.dtype).itemsize for x in jax.tree.leaves(tree))
