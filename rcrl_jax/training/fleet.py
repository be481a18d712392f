"""The fleet: R runs of one agent as one program. The only module that knows about R and devices.

An agent's functions are written for one run. The fleet lifts them over a leading run axis, either
one run after the other (`map`) or as batched products (`vmap`), and shards that axis over a mesh
of devices. Callers see arrays [R, ...] whatever the number of devices.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec

from rcrl_jax import types
from rcrl_jax.agents.agent import Agent
from rcrl_jax.replay.frames import FrameReferences

LIFTS = ("auto", "map", "vmap")


class Fleet:
    """An agent's functions over R runs.

    A run depends on its own seed and action set alone: its keys are derived from the seed and
    from counters, so its result is the same in any company and across interruptions.

    When R does not divide by the number of devices, the last run is repeated until it does. The
    copies live inside this class: they are cut off whatever leaves it.
    """

    def __init__(
        self,
        agent: Agent,
        seeds: Sequence[int],
        num_actions: Sequence[int],
        *,
        curl_factors: Sequence[float] | None = None,
        lift: str = "auto",
        devices: Sequence[jax.Device] | None = None,
    ) -> None:
        """Compiles nothing yet.

        Args:
          agent: the functions of one run.
          seeds: `[R]`, one a run.
          num_actions: `[R]`, the action-set sizes.
          curl_factors: `[R]`, of CURL's weight in the runs' games; None is 1 everywhere.
          lift: 'map' or 'vmap'; 'auto' is what was measured to be faster: 'map' on the CPU, where
            batched products cost more than a loop over runs, 'vmap' elsewhere, unless the agent
            convolves.
          devices: which devices share the runs; None is the first one alone.

        Raises:
          ValueError: unknown lift, or seeds and action sets of different lengths.
        """
        if lift not in LIFTS:
            raise ValueError(f"lift must be one of {', '.join(LIFTS)}; got {lift!r}")
        if len(seeds) != len(num_actions):
            raise ValueError(f"{len(seeds)} seeds for {len(num_actions)} action sets")
        devices = devices or jax.devices()[:1]
        if lift == "auto":
            on_cpu = devices[0].platform == "cpu"
            lift = "map" if on_cpu or not agent.batches_over_runs else "vmap"
        self.agent = agent
        self.num_runs = len(seeds)
        self._copies = -self.num_runs % len(devices)
        self.num_devices = len(devices)
        self.lift = lift
        mesh = jax.sharding.Mesh(np.array(devices), ("runs",))
        self._sharding = jax.sharding.NamedSharding(mesh, PartitionSpec("runs"))
        over_runs = functools.partial(_over_runs, lift=lift, mesh=mesh)

        keys = np.stack([jax.random.key_data(jax.random.key(seed)) for seed in seeds])
        self._keys = self.place(keys)
        factors = np.ones(len(seeds)) if curl_factors is None else curl_factors
        self._runs = self.place(
            types.RunSpec(np.asarray(num_actions, np.int32), np.asarray(factors, np.float32))
        )

        def init(run, key_data):
            return agent.init(run, _key(key_data, _INIT))

        def act(run, params, observation, key_data, counters, *, greedy):
            key = _key(key_data, _ACT, *counters)
            return agent.act(run, params, observation, key, greedy, counters[0])

        self._runs_here = np.int32((self.num_runs + self._copies) // len(devices))
        self._init = jax.jit(over_runs(init))
        self._act = {
            greedy: jax.jit(over_runs(functools.partial(act, greedy=greedy), shared=(4,)))
            for greedy in (False, True)
        }
        self._update = jax.jit(over_runs(agent.update, in_place=1, refers=True), donate_argnums=2)
        self._embed = jax.jit(over_runs(agent.embed, refers=True))
        self._compare = jax.jit(over_runs(agent.compare))

    def init(self) -> types.LearnerState:
        """The learner states of all runs at the start."""
        return self._init(self._runs_here, self._runs, self._keys)

    def act(
        self, params: types.Params, observation: np.ndarray, *counters: int, greedy: bool = False
    ) -> jax.Array:
        """Actions of all runs; returns before they are computed.

        Args:
          params: agent parameters of this fleet.
          observation: `[R, N, *obs]`, N observations a run.
          *counters: where in its life the run stands, first of all its agent steps; equal
            counters draw equal noise.
          greedy: the evaluation policy instead of the training policy.

        Returns:
          `[R, N, *act]`.
        """
        counters = tuple(np.int32(counter) for counter in counters)
        actions = self._act[greedy](
            self._runs_here, self._runs, params, self.place(observation), self._keys, counters
        )
        return actions[: self.num_runs] if self._copies else actions

    def update(
        self, state: types.LearnerState, batch: types.Batch, frames: jax.Array | None = None
    ) -> tuple[types.LearnerState, types.UpdateResult]:
        """One update of every run; returns before it is computed and consumes `state`.

        Args:
          state: learner states of this fleet.
          batch: what to learn from, leading axis R. Its observations are arrays, or references
            into `frames`.
          frames: stored frames on the device, `[R', slots, ...]`, R' with the fleet's copies.

        Returns:
          The new learner states, and what the update tells, leading axis R.
        """
        state, result = self._update(self._runs_here, self._runs, state, self.place(batch), frames)
        if self._copies:
            result = jax.tree.map(lambda x: x[: self.num_runs], result)
        return state, result

    def embed(
        self, params: types.Params, pairs: types.Pairs, frames: jax.Array | None = None
    ) -> np.ndarray:
        """Representations `[R, N, d]` of state-action pairs.

        Args:
          params: agent parameters of this fleet.
          pairs: leading axes `[R, N]`; observations as in `update`.
          frames: stored frames on the device, as in `update`.
        """
        return self.to_host(self._embed(self._runs_here, params, self.place(pairs), frames))

    def compare(
        self, params: types.TrainableParams, first: types.Pairs, second: types.Pairs
    ) -> types.Comparison:
        """How alike state-action pairs are, row by row; `[R, N]`, on the host.

        Args:
          params: all trainable parameters of this fleet.
          first: leading axes `[R, N]`.
          second: leading axes `[R, N]`.
        """
        pairs = self.place((first, second))
        return self.to_host(self._compare(self._runs_here, params, *pairs))

    def to_host(self, tree: Any) -> Any:
        """A copy in NumPy of anything this fleet made; leading axis R.

        A plain `asarray` would alias buffers that the next update reuses.
        """
        return jax.tree.map(lambda x: np.array(x[: self.num_runs], copy=True), tree)

    def zeros(self, shape: Sequence[int], dtype: Any) -> jax.Array:
        """A device array `[R', *shape]` of zeros, R' with the copies, sharded like the runs."""
        full = (self.num_runs + self._copies, *shape)
        return jax.jit(lambda: jnp.zeros(full, dtype), out_shardings=self._sharding)()

    def place(self, tree: Any) -> Any:
        """Host arrays `[R, ...]` as this fleet's functions take them; undoes `to_host`."""
        if self._copies:
            tree = jax.tree.map(lambda x: np.concatenate([x, *[x[-1:]] * self._copies]), tree)
        elif self._sharding.mesh.size == 1:
            return tree  # jit moves it, without a call of its own
        return jax.device_put(tree, self._sharding)


_INIT, _ACT = 0, 1  # purposes of a run's key


def _key(key_data: jax.Array, *counters: jax.Array) -> jax.Array:
    key = jax.random.wrap_key_data(key_data)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def _resolve(tree: Any, frames: jax.Array, run: jax.Array | int) -> Any:
    """Looks up in the `frames [R, slots, ...]` of all runs what one run's tree only refers to."""
    return jax.tree.map(
        lambda x: x.look_up(frames, run) if isinstance(x, FrameReferences) else x,
        tree,
        is_leaf=lambda x: isinstance(x, FrameReferences),
    )


def _over_runs(
    function: Callable,
    *,
    lift: str,
    mesh: jax.sharding.Mesh,
    shared: tuple[int, ...] = (),
    in_place: int | None = None,
    refers: bool = False,
) -> Callable:
    """Lifts a function of one run over a run axis, sharded over the mesh.

    Args:
      function: takes and returns pytrees of one run.
      lift: 'map' or 'vmap'.
      mesh: the devices, axis `runs`.
      shared: positions of arguments without a run axis.
      in_place: position of the argument whose successor is the first of two results.
      refers: whether the arguments may refer to stored frames, which then follow as one argument
        more than `function` takes, or None.

    Returns:
      A function of the same arguments, every one but the shared with a leading run axis, and
      before them the number of runs on each device, which is not a constant to the compiler.
    """

    def lifted(runs_here, *arguments):
        stored = None
        if refers:
            *arguments, stored = arguments
        if lift == "vmap":
            axes = tuple(None if i in shared else 0 for i in range(len(arguments)))
            if stored is None:
                return jax.vmap(function, in_axes=axes)(*arguments)

            def of_stored(own_frames, *own):
                return function(*_resolve(own, own_frames[None], 0))

            return jax.vmap(of_stored, in_axes=(0, *axes))(stored, *arguments)
        return _one_after_the_other(function, runs_here, arguments, shared, in_place, stored)

    if mesh.size == 1:
        return lifted

    def sharded(runs_here, *arguments):
        runs = PartitionSpec("runs")
        specs = tuple(PartitionSpec() if i in shared else runs for i in range(len(arguments)))
        return jax.shard_map(
            lifted,
            mesh=mesh,
            in_specs=(PartitionSpec(), *specs),
            out_specs=runs,
            check_vma=False,
        )(runs_here, *arguments)

    return sharded


def _one_after_the_other(function, runs_here, arguments, shared, in_place, stored):
    """Calls `function` for each run in a loop; results are written in place where they can be.

    A run alone must be, bit for bit, the same run in a fleet. But a compiler that sees a loop of
    one turn, as `lax.map` would show it, dissolves it, and one that sees a slice of the only row
    drops the slice; what remains is fused otherwise than in a fleet, and rounds otherwise. So the
    length of the loop is not a constant, and the function is the branch of a condition that the
    compiler cannot decide: no fusion crosses its border, and its code is the same whatever R is.
    (An `optimization_barrier` is not enough: the CPU compiler drops it before it fuses.)
    """

    def of_run(i):
        own = [
            argument if k in shared else jax.tree.map(lambda x: x[i], argument)
            for k, argument in enumerate(arguments)
        ]
        return own if stored is None else _resolve(own, stored, i)

    def call(i, results):
        own = of_run(i)
        if in_place is not None:
            own[in_place] = jax.tree.map(lambda x: x[i], results[0])
        new = jax.lax.cond(runs_here > 0, lambda own: function(*own), lambda _: blank, own)
        return jax.tree.map(lambda all_, one: all_.at[i].set(one), results, new)

    first = next(k for k in range(len(arguments)) if k not in shared)
    size = jax.tree.leaves(arguments[first])[0].shape[0]
    blank = jax.tree.map(
        lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: function(*of_run(0)))
    )
    empty = jax.tree.map(lambda x: jnp.zeros((size, *x.shape), x.dtype), blank)
    if in_place is not None:
        empty = (arguments[in_place], empty[1])
    return jax.lax.fori_loop(0, runs_here, call, empty)
