"""The fleet: R runs of one agent as one program, on one or more devices.

An agent's functions are written for one run. The fleet batches them over a leading run axis,
either one run after the other (`map`) or as batched products (`vmap`), and shards that axis over
a mesh of devices. Callers see arrays [R, ...] for any number of devices.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION, TRAINING, Agent
from rcrl_jax.ops import native
from rcrl_jax.replay.frames import detach_frames
from rcrl_jax.training.over_runs import LOOP_OPTIONS, Form, over_runs


class Fleet:
    """An agent's functions over R runs.

    A run depends only on its own seed and `RunSpec`. Its keys are derived from the seed and from
    counters. On a CPU with `map`, the result of a run is the same, bit for bit, in every fleet of
    the same agent, interrupted or not. (An agent has as many actions as the largest action set in
    its fleet.)

    If the number of devices does not divide R, the last run is repeated until it does: R' rows.
    Arrays on the devices have all R' rows, because cutting them would gather all rows on one
    device. So callers take the first R rows of `act` and `update`. `embed`, `compare` and `to_host`
    return R rows on the host.
    """

    def __init__(
        self,
        agent: Agent,
        seeds: Sequence[int],
        runs: types.RunSpec,
        *,
        batching: str = "auto",
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        """Makes the programs, which compile at their first call.

        Args:
          agent: the functions of one run.
          seeds: `[R]`, one per run.
          runs: what differs between the runs; every array has the leading axis R.
          batching: 'map' or 'vmap'. 'auto' takes 'map' on the CPU, so that a run in a fleet equals
            the run alone bit for bit; elsewhere `Resources.batches_over_runs` decides.
          devices: the devices that share the runs; None means only the first one. A single device
            must be JAX's default device.

        Raises:
          ValueError: the number of seeds differs from that of the runs.
        """
        runs = runs._replace(num_valid_actions=np.asarray(runs.num_valid_actions, np.int32))
        lengths = {len(array) for array in jax.tree.leaves(runs)}
        if lengths != {len(seeds)}:
            raise ValueError(f"{len(seeds)} seeds for run specifications of {sorted(lengths)} runs")
        devices = devices or jax.devices()[:1]
        if batching == "auto":
            on_cpu = devices[0].platform == "cpu"
            batching = "map" if on_cpu or not agent.resources.batches_over_runs else "vmap"
        self.agent = agent
        self.seeds = tuple(seeds)
        self.num_runs = len(seeds)
        self.num_valid_actions = runs.num_valid_actions  # [R]
        self._copies = -self.num_runs % len(devices)
        self.num_devices = len(devices)
        self.batching = batching
        self._specs, self._devices = runs, devices
        mesh = jax.sharding.Mesh(np.array(devices), ("runs",))
        self._sharding = jax.sharding.NamedSharding(mesh, PartitionSpec("runs"))
        self.programs = _programs(agent, batching, mesh)
        keys = np.stack([native.key_data(seed) for seed in seeds])
        self._keys = self.place(keys)
        self._runs = self.place(runs)
        self._runs_here = np.int32((self.num_runs + self._copies) // len(devices))

    def init(self, initial: Mapping[str, np.ndarray] | None = None) -> types.LearnerState:
        """The learner states of all runs at the start.

        Args:
          initial: agent parameters of other runs by their paths, leading axis R, in place of drawn
            ones; see `agent.begin_with`.
        """
        return self.programs.init(self._runs_here, self._runs, self._keys, self.place(initial))

    def act(
        self,
        params: types.Params,
        stacks: np.ndarray,
        memory: types.Memory,
        *counters: int,
        policy_name: str = TRAINING,
    ) -> tuple[jax.Array, types.Memory]:
        """Actions of all runs; returns before they are computed.

        Args:
          params: agent parameters of this fleet.
          stacks: `[R, N, C, *frame_shape]`, N stacks of whole frames per run. The device converts
            them to the network's layout; at 130 runs, the conversion would take the host a quarter
            of the loop's time.
          memory: from `init_memory` or the last step.
          *counters: integers that determine the noise; the first is the agent steps of the run.
          policy_name: as in `Agent.act`.

        Returns:
          `[R', N, *act]`, and the next memory, as if no episode had ended.
        """
        memory = memory._replace(is_first=self.place(memory.is_first))
        counters = tuple(np.int32(counter) for counter in counters)
        actions, state = self.programs.act[policy_name](
            self._runs_here, self._runs, params, self.place(stacks), self._keys, counters,
            memory,
        )  # fmt: skip
        return actions, types.Memory(state, np.zeros(stacks.shape[:2], bool))

    def init_memory(self, number: int) -> types.Memory:
        """The memory of `number` environments a run, all at the start of an episode."""
        shapes = jax.eval_shape(lambda: self.agent.init_memory(number))
        zeros = jax.tree.map(lambda x: np.zeros((self.num_runs, *x.shape), x.dtype), shapes)
        return types.Memory(self.place(zeros), np.ones((self.num_runs, number), bool))

    def update(
        self, state: types.LearnerState, batch: types.Batch, kind: int = 0
    ) -> tuple[types.LearnerState, types.UpdateResult]:
        """One update of every run; returns before it is computed and consumes `state`.

        Args:
          state: learner states of this fleet.
          batch: as the replay returns it, leading axis R; observations are arrays on the host or
            references to frames on the device.
          kind: the kind of update that the batch was drawn for; see `Schedule.kind`.

        Returns:
          The new learner states, and the result of the update, leading axis R'.
        """
        return self.programs.update[kind](*self.update_arguments(state, batch))

    def update_arguments(self, state: types.LearnerState, batch: types.Batch) -> tuple[Any, ...]:
        """Arguments of the functions `programs.update`, for calling, lowering or compiling them.

        Args:
          state: learner states of this fleet, or their shapes.
          batch: as in `update`; the frames of references may be a shape.
        """
        batch, frames = detach_frames(batch)
        return self._runs_here, self._runs, state, self.place(batch), frames

    def embed(self, params: types.Params, pairs: types.Pairs) -> np.ndarray:
        """Representations `[R, N, d]` of state-action pairs, on the host.

        Args:
          params: agent parameters of this fleet.
          pairs: leading axes `[R, N]`; observations as in `update`.
        """
        pairs, frames = detach_frames(pairs)
        return self.to_host(self.programs.embed(self._runs_here, params, self.place(pairs), frames))

    def compare(
        self, params: types.TrainableParams, first: types.Pairs, second: types.Pairs
    ) -> types.Comparison:
        """Similarity of state-action pairs, row by row; `[R, N]`, on the host.

        Args:
          params: all trainable parameters of this fleet.
          first: leading axes `[R, N]`; observations as in `update`.
          second: likewise.
        """
        pairs, frames = detach_frames((first, second))
        return self.to_host(
            self.programs.compare(self._runs_here, params, *self.place(pairs), frames)
        )

    def part(self, rows: np.ndarray, tree: Any) -> tuple["Fleet", Any]:
        """A fleet of some of the runs, with their rows of a tree.

        Args:
          rows: `[n]`, which runs.
          tree: results of this fleet, such as parameters or the state of a memory.

        Returns:
          The fleet of n runs, and the rows of `tree` on the new fleet's devices.
        """
        specs = jax.tree.map(lambda x: x[rows], self._specs)
        seeds = [self.seeds[row] for row in rows]
        fleet = Fleet(self.agent, seeds, specs, batching=self.batching, devices=self._devices)
        return fleet, fleet.to_devices(jax.tree.map(lambda x: np.asarray(x)[rows], tree))

    def to_host(self, tree: Any) -> Any:
        """A copy in NumPy of any result of this fleet; leading axis R.

        A plain `asarray` would alias buffers that the next update reuses.
        """
        return jax.tree.map(lambda x: np.array(np.asarray(x)[: self.num_runs]), tree)

    def zeros(self, shape: Sequence[int], dtype: Any) -> jax.Array:
        """A device array `[R', *shape]` of zeros, R' with the copies, sharded like the runs."""
        full = (self.num_runs + self._copies, *shape)
        # On one device, other arrays have no sharding. If this one had, programs would compile
        # twice: for this array, and for the arrays without sharding that they return.
        sharding = self._sharding if self.num_devices > 1 else None
        return jax.jit(lambda: jnp.zeros(full, dtype), out_shardings=sharding)()

    def place(self, tree: Any) -> Any:
        """Host arrays `[R, ...]` as this fleet's functions take them, for one call."""
        if self._copies:
            tree = jax.tree.map(lambda x: np.concatenate([x, *[x[-1:]] * self._copies]), tree)
        elif self._sharding.mesh.size == 1:
            return tree  # jit moves it to the device, which saves a separate call
        return jax.device_put(tree, self._sharding)

    def to_devices(self, tree: Any) -> Any:
        """Host arrays `[R, ...]` on the devices, for many calls; the inverse of `to_host`."""
        return jax.device_put(self.place(tree))


class Programs(NamedTuple):
    """The agent's functions over a run axis; each compiles at its first call."""

    init: Callable
    act: Mapping[str, Callable]  # by the policy's name
    update: tuple[Callable, ...]  # by the kind
    embed: Callable
    compare: Callable


@functools.lru_cache(maxsize=8)
def _programs(agent: Agent, batching: str, mesh: jax.sharding.Mesh) -> Programs:
    """Cached, so that fleets of the same agent share compiled programs."""
    batched = functools.partial(over_runs, batching=batching, mesh=mesh)

    def init(run, key_data, initial):
        return agent.init(run, _key(key_data, _INIT), initial)

    def act(run, params, frames, key_data, counters, memory, *, policy_name):
        key, observation = _key(key_data, _ACT, *counters), agent.observations.network.stack(frames)

        def start_over(old, fresh):
            is_first = memory.is_first.reshape(-1, *[1] * (old.ndim - 1))
            return jnp.where(is_first, fresh, old)

        fresh = agent.init_memory(len(memory.is_first))
        state = jax.tree.map(start_over, memory.state, fresh)
        return agent.act(run, params, observation, state, key, policy_name, counters[0])

    def update(run, state, batch, *, kind):
        return agent.update(run, state, batch, kind)

    return Programs(
        init=jax.jit(batched(init, Form())),
        act={
            name: jax.jit(batched(functools.partial(act, policy_name=name), Form(shared=(4,))))
            for name in (TRAINING, EVALUATION, *agent.evaluation.others)
        },
        update=tuple(
            jax.jit(
                batched(
                    functools.partial(update, kind=kind),
                    Form(in_place=1, reads_frames=True, halves=agent.halves),
                ),
                donate_argnums=2,
                compiler_options=LOOP_OPTIONS if batching == "map" else None,
            )
            for kind in agent.replay.kinds
        ),
        embed=jax.jit(batched(agent.embed, Form(reads_frames=True))),
        compare=jax.jit(batched(agent.compare, Form(reads_frames=True))),
    )


_INIT, _ACT = 0, 1  # purposes of a run's key


def _key(key_data: jax.Array, *counters: jax.Array) -> jax.Array:
    key = native.wrap_key(key_data)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key
