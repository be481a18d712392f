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
from rcrl_jax.replay.frames import detach_frames, resolve_references


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
        # On one device, other arrays have no sharding. With one here, programs would compile twice:
        # for their first call, and for the arrays that it returns.
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
    over_runs = functools.partial(_over_runs, batching=batching, mesh=mesh)

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
        init=jax.jit(over_runs(init)),
        act={
            name: jax.jit(over_runs(functools.partial(act, policy_name=name), shared=(4,)))
            for name in (TRAINING, EVALUATION, *agent.evaluation.others)
        },
        update=tuple(
            jax.jit(
                over_runs(
                    functools.partial(update, kind=kind),
                    in_place=1,
                    reads_frames=True,
                    halves=agent.halves,
                ),
                donate_argnums=2,
                compiler_options=_LOOP_OPTIONS if batching == "map" else None,
            )
            for kind in agent.replay.kinds
        ),
        embed=jax.jit(over_runs(agent.embed, reads_frames=True)),
        compare=jax.jit(over_runs(agent.compare, reads_frames=True)),
    )


_INIT, _ACT = 0, 1  # purposes of a run's key


def _key(key_data: jax.Array, *counters: jax.Array) -> jax.Array:
    key = native.wrap_key(key_data)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def _over_runs(
    function: Callable,
    *,
    batching: str,
    mesh: jax.sharding.Mesh,
    shared: tuple[int, ...] = (),
    in_place: int | None = None,
    reads_frames: bool = False,
    halves: tuple[Callable, Callable] | None = None,
) -> Callable:
    """Batches a function of one run over a run axis, sharded over the mesh.

    Args:
      function: takes and returns pytrees of one run.
      batching: 'map' or 'vmap'.
      mesh: the devices, axis `runs`.
      shared: positions of arguments without a run axis.
      in_place: position of the argument that the first of two results replaces.
      reads_frames: whether the arguments may hold references to frames. The frames of all runs
        then follow as the last argument, or None.
      halves: `Agent.halves`, if `function` is `Agent.update`. A CPU calls the second one for all
        runs at once, which replaces their states in place. A loop over runs copies the state of
        each run out of the fleet's arrays and back.

    Returns:
      A function of the same arguments, each with a leading run axis except the shared ones. Its
      first argument is the number of runs on each device, traced (see `_compiled_apart`).
    """

    def batched(runs_here, *arguments):
        frames = None
        if reads_frames:
            *arguments, frames = arguments
        if batching == "vmap":
            axes = tuple(None if i in shared else 0 for i in range(len(arguments)))
            if frames is None:
                return jax.vmap(function, in_axes=axes)(*arguments)

            def with_frames(run_frames, *run_arguments):
                return function(*resolve_references(run_arguments, run_frames[None], 0))

            return jax.vmap(with_frames, in_axes=(0, *axes))(frames, *arguments)
        # Only on the CPU, the bits of a run must not depend on the number of runs.
        number = runs_here if mesh.devices.flat[0].platform == "cpu" else None
        if halves is None or number is None or not _rounds_as_alone(arguments[in_place]):
            return _one_after_the_other(function, number, arguments, shared, in_place, frames)
        (runs, state, batch), (first, second) = arguments, halves
        read = runs, state._replace(opt_state=()), batch
        computed = _one_after_the_other(first, number, read, shared, None, frames)
        return _for_all_at_once(second, state, computed)

    if mesh.size == 1:
        return batched

    def sharded(runs_here, *arguments):
        runs = PartitionSpec("runs")
        specs = tuple(PartitionSpec() if i in shared else runs for i in range(len(arguments)))
        return jax.shard_map(
            batched,
            mesh=mesh,
            in_specs=(PartitionSpec(), *specs),
            out_specs=runs,
            check_vma=False,
        )(runs_here, *arguments)

    return sharded


def _rounds_as_alone(state):
    """Whether the second of `Agent.halves` rounds for any number of runs at once as for one.

    Our kernel of Adam does. Sums of products that XLA compiles do not: optax's Adam, and the moving
    averages in states of tasks.
    """
    return native.get("adam") is not None and not jax.tree.leaves(state.task_state)


def _for_all_at_once(second, state, computed):
    """Calls the second of `Agent.halves` for all runs, which have made the same number of updates.

    The number has no run axis, so a condition on it stays a condition; `vmap` would compute both
    branches.
    """
    axes = types.LearnerState(*[0] * len(state))._replace(updates=None)
    one = state._replace(updates=state.updates[0])
    new, result = jax.vmap(second, in_axes=(axes, 0), out_axes=(axes, 0))(one, computed)
    return new._replace(updates=jnp.broadcast_to(new.updates, state.updates.shape)), result


# Disables the XLA pass that would move code that depends only on the batch out of an update's inner
# loop. Code outside that loop is compiled differently for different R.
_LOOP_OPTIONS = {"xla_disable_hlo_passes": "while-loop-invariant-code-motion"}


def _one_after_the_other(function, runs_here, arguments, shared, in_place, frames):
    """Calls `function` for each run in a loop; writes results in place where possible.

    If `runs_here` is None, XLA knows the length of the loop, so the host of a GPU need not read a
    condition before each run. Otherwise each call is compiled apart from the code around it.
    """

    # With `jit`, the function is traced once for its shapes and its results.
    function = jax.jit(function, inline=True)

    def row(tree, i):
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), tree)

    def arguments_of(i):
        rows = [
            argument if k in shared else row(argument, i) for k, argument in enumerate(arguments)
        ]
        return rows if frames is None else resolve_references(rows, frames, i)

    def call(i, results):
        rows = arguments_of(i)
        if in_place is not None:
            # Read once, before it is written: otherwise XLA for GPUs copies the whole array.
            rows[in_place] = jax.lax.optimization_barrier(row(results[0], i))
        if runs_here is None:
            new = function(*rows)
        else:
            new = _compiled_apart(function, rows, runs_here, in_place, blank)
        return jax.tree.map(
            lambda all_, one: jax.lax.dynamic_update_index_in_dim(all_, one, i, 0), results, new
        )

    first = next(k for k in range(len(arguments)) if k not in shared)
    size = jax.tree.leaves(arguments[first])[0].shape[0]
    blank = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: function(*arguments_of(0)))
    )
    empty = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), blank)
    if in_place is not None:
        empty = (arguments[in_place], empty[1])
    return jax.lax.fori_loop(0, size if runs_here is None else runs_here, call, empty)


def _compiled_apart(function, arguments, runs_here, in_place, blank):
    """Calls `function` so that its compiled code is the same for every number of runs.

    A run alone must equal, bit for bit, the same run in a fleet on the CPU. `lax.map` does not
    ensure this: XLA unrolls a one-iteration loop, drops the slice of an array with one row, and
    fuses the rest differently, which changes rounding. Two measures prevent it. The length of the
    loop over runs is not a compile-time constant. And the function is a branch of a condition, or
    the body of an inner loop of one iteration; XLA knows neither the condition nor the number of
    iterations at compile time, and does not fuse across the border of a branch or a loop.
    (`_LOOP_OPTIONS` keeps that code within the inner loop. An `optimization_barrier` is not enough:
    XLA on the CPU removes it before fusion.) XLA copies the results of a branch; a loop may update
    its carry in place.
    """
    if in_place is None:
        return jax.lax.cond(runs_here > 0, lambda own: function(*own), lambda _: blank, arguments)

    def once(_, carried):
        return function(*arguments[:in_place], carried[0], *arguments[in_place + 1 :])

    before = arguments[in_place], blank[1]
    return jax.lax.fori_loop(0, jnp.minimum(runs_here, 1), once, before)
