"""Functions of one run as functions of the R runs of a fleet.

`map` calls the function for one run after the other; `vmap` batches it. With `map` on a CPU, the
bits of a run do not depend on R.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from rcrl_jax import types
from rcrl_jax.agents.agent import Halves
from rcrl_jax.ops import native
from rcrl_jax.replay.frames import resolve_references


class Form(NamedTuple):
    """How a function of one run takes its arguments.

    Attributes:
      shared: positions of arguments without a run axis.
      in_place: position of the argument that the first of two results replaces.
      reads_frames: whether the arguments may hold references to frames. If so, a last argument
        holds the frames of all runs, or None.
      halves: `Agent.halves`, if the function is `Agent.update`. One call of `step` then replaces
        the states of all runs in place. A loop over runs would copy each state out of the fleet's
        arrays and back.
    """

    shared: tuple[int, ...] = ()
    in_place: int | None = None
    reads_frames: bool = False
    halves: Halves | None = None


def over_runs(
    function: Callable, form: Form, *, batching: str, mesh: jax.sharding.Mesh
) -> Callable:
    """Batches a function of one run over a run axis, sharded over the mesh.

    Args:
      function: takes and returns pytrees of one run.
      form: how it takes its arguments.
      batching: 'map' or 'vmap'.
      mesh: the devices, axis `runs`.

    Returns:
      A function of the same arguments, each with a leading run axis except the shared ones. Its
      first argument is the number of runs on each device, traced (see `_compiled_apart`).
    """

    def batched(runs_here, *arguments):
        frames = None
        if form.reads_frames:
            *arguments, frames = arguments
        if batching == "vmap":
            axes = tuple(None if i in form.shared else 0 for i in range(len(arguments)))
            if frames is None:
                return jax.vmap(function, in_axes=axes)(*arguments)

            def with_frames(run_frames, *run_arguments):
                return function(*resolve_references(run_arguments, run_frames[None], 0))

            return jax.vmap(with_frames, in_axes=(0, *axes))(frames, *arguments)
        # Only the CPU promises that a run's bits do not depend on the number of runs.
        number = runs_here if mesh.devices.flat[0].platform == "cpu" else None
        halves = form.halves
        if halves is None or (number is not None and not _rounds_as_alone(halves, arguments[1])):
            return _one_after_the_other(function, form, number, arguments, frames)
        runs, state, batch = arguments
        read = runs, state._replace(opt_state=()), batch
        apart = form._replace(in_place=None)
        computed = _one_after_the_other(halves.gradients, apart, number, read, frames)
        return for_all_at_once(halves.step, state, computed)

    if mesh.size == 1:
        return batched

    def sharded(runs_here, *arguments):
        runs = PartitionSpec("runs")
        specs = tuple(PartitionSpec() if i in form.shared else runs for i in range(len(arguments)))
        return jax.shard_map(
            batched,
            mesh=mesh,
            in_specs=(PartitionSpec(), *specs),
            out_specs=runs,
            check_vma=False,
        )(runs_here, *arguments)

    return sharded


def _rounds_as_alone(halves, state):
    """Whether `Halves.step` rounds a run equally for every number of runs on a CPU.

    Our kernel of Adam does. Sums of products that XLA compiles do not: optax's Adam, and moving
    averages of targets and in states of tasks.
    """
    averages = halves.averages_targets or jax.tree.leaves(state.task_state)
    return native.get("adam") is not None and not averages


def for_all_at_once(step, state, computed):
    """Calls `Halves.step` for all runs, which have made the same number of updates.

    The number has no run axis, so a condition on it stays a condition; `vmap` would compute both
    branches.
    """
    axes = types.LearnerState(*[0] * len(state))._replace(updates=None)
    one = state._replace(updates=state.updates[0])
    new, result = jax.vmap(step, in_axes=(axes, 0), out_axes=(axes, 0))(one, computed)
    return new._replace(updates=jnp.broadcast_to(new.updates, state.updates.shape)), result


# Disables an XLA pass. It would move code out of an update's inner loop if the code depends only on
# the batch. XLA compiles code outside that loop differently for different R.
LOOP_OPTIONS = {"xla_disable_hlo_passes": "while-loop-invariant-code-motion"}


def _one_after_the_other(function, form, runs_here, arguments, frames):
    """Calls `function` for each run in a loop; writes results in place where possible.

    If `runs_here` is None, XLA knows the length of the loop, so the host of a GPU need not read a
    condition before each run. Otherwise each call is compiled apart from the code around it.
    """
    in_place = form.in_place
    # With `jit`, one trace serves both uses of the function below: its shapes and its results.
    function = jax.jit(function, inline=True)

    def row(tree, i):
        return jax.tree.map(lambda x: jax.lax.dynamic_index_in_dim(x, i, keepdims=False), tree)

    def arguments_of(i):
        rows = [
            argument if k in form.shared else row(argument, i)
            for k, argument in enumerate(arguments)
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

    first = next(k for k in range(len(arguments)) if k not in form.shared)
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
    (`LOOP_OPTIONS` keeps that code within the inner loop. An `optimization_barrier` is not enough:
    XLA on the CPU removes it before fusion.) XLA copies the results of a branch; a loop may update
    its carry in place.
    """
    if in_place is None:
        return jax.lax.cond(runs_here > 0, lambda own: function(*own), lambda _: blank, arguments)

    def once(_, carried):
        return function(*arguments[:in_place], carried[0], *arguments[in_place + 1 :])

    before = arguments[in_place], blank[1]
    return jax.lax.fori_loop(0, jnp.minimum(runs_here, 1), once, before)
