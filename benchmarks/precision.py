r"""Measures what reduced precision does to the loss and the gradient of a real update.

    python -m benchmarks.precision --game=Pong

Trains each preset for a while in float32, then takes the same updates in every precision. Prints
how far loss and gradient are from float32, and how far the gradients of two different batches are
from each other; writes both to results/precision/<device>.json. An error far below the difference
of batches is negligible in training. The gradient is computed from Adam's first moment.

On an accelerator, its own arithmetic is measured. A CPU does not round as much, so there the inputs
of every matrix product are rounded to the format's mantissa instead.
"""

import dataclasses
import functools
import pathlib

from absl import app, flags

from benchmarks import device_file
from experiments import command_line
from rcrl_jax.config import presets
from rcrl_jax.envs import atari
from rcrl_jax.training import host_memory

_GAME = flags.DEFINE_string("game", "Pong", "game that the batches come from")
_STEPS = flags.DEFINE_integer("steps", 2000, "agent steps of training first", lower_bound=1700)
_BATCHES = flags.DEFINE_integer("batches", 10, "updates compared", lower_bound=2)
_OUTPUT = flags.DEFINE_string("output", "results/precision", "directory of the JSON file")

MANTISSA_BITS = {"float32": 23, "tf32": 10, "bfloat16": 7}
_ADAM_B1 = 0.9  # optax.adam's default


def rounded(function, mantissa_bits: int):
    """`function`, with the inputs of its matrix products rounded to `mantissa_bits`."""
    import jax
    from jax.extend import core

    def value_of(environment, atom):
        return atom.val if isinstance(atom, core.Literal) else environment[atom]

    def evaluate(jaxpr, constants, arguments):
        variables = [*jaxpr.constvars, *jaxpr.invars]
        environment = dict(zip(variables, [*constants, *arguments], strict=True))
        for equation in jaxpr.eqns:
            inputs = [value_of(environment, atom) for atom in equation.invars]
            name, inner = equation.primitive.name, equation.params.get("jaxpr")
            if name == "jit":
                outputs = evaluate(inner.jaxpr, inner.consts, inputs)
            else:
                if name == "dot_general":
                    inputs = [jax.lax.reduce_precision(x, 8, mantissa_bits) for x in inputs]
                options = equation.primitive.get_bind_params(equation.params)
                outputs = equation.primitive.bind(*inputs, **options)
                if not equation.primitive.multiple_results:
                    outputs = [outputs]
            environment.update(zip(equation.outvars, outputs, strict=True))
        return [value_of(environment, atom) for atom in jaxpr.outvars]

    def rounded_function(*arguments):
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        outputs = evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments))
        return jax.tree.unflatten(jax.tree.structure(shapes), outputs)

    return rounded_function


def measure(preset: str) -> list[dict]:
    """Medians over the batches of the distances to float32, one entry per precision."""
    import jax
    import numpy as np

    from rcrl_jax import types
    from rcrl_jax.agents.make_agent import make_agent
    from rcrl_jax.training import build, loop
    from rcrl_jax.training.history import History
    from rcrl_jax.training.plan import Plan, RunId

    settings = dataclasses.replace(presets.ATARI_PRESETS[preset], precision="float32")
    plan = Plan(
        preset=preset,
        config=settings,
        runs=(RunId(_GAME.value, 0),),
        total_steps=_STEPS.value,
        workdir=pathlib.Path(_OUTPUT.value),
        eval_episodes=1,
        make_environment=lambda seeds: atari.make_atari(_GAME.value, seeds.reshape(-1)),
    )
    environment, fleet = build.make_fleet(plan)
    replay = build.make_replay(fleet, plan.frame_store)
    *_, last = loop.train(
        loop.LoopState(0, fleet.init(), environment.reset(), None),
        fleet=fleet,
        environment=environment,
        replay=replay,
        history=History(1, plan.total_steps),
        total_steps=plan.total_steps,
    )
    spec, num_valid_actions = environment.spec, environment.num_valid_actions
    environment.close()
    batches = [jax.tree.map(np.copy, replay.sample(0.5).batch) for _ in range(_BATCHES.value)]
    first = functools.partial(jax.tree.map, lambda x: np.asarray(x)[0])
    constants = fleet.agent.run_constants(_GAME.value)
    run = types.RunSpec(num_valid_actions[0], constants)
    state = first(fleet.to_host(last.state.learner))

    def loss_and_gradient(update, batch):
        new, result = update(run, state, first(batch))
        moment = [
            np.ravel((after - _ADAM_B1 * before) / (1 - _ADAM_B1))
            for before, after in zip(
                jax.tree.leaves(_first_moment(state)), jax.tree.leaves(_first_moment(new)),
                strict=True,
            )
        ]  # fmt: skip
        return float(np.mean(result.transition_loss)), np.concatenate(moment)

    def updates(precision):
        if jax.default_backend() == "cpu":
            update = rounded(fleet.agent.update, MANTISSA_BITS[precision])
        else:
            agent = make_agent(dataclasses.replace(settings, precision=precision), spec)
            update = agent.update
        update = jax.jit(update)
        return [loss_and_gradient(update, batch) for batch in batches]

    exact = updates("float32")
    norms = [np.linalg.norm(gradient) for _, gradient in exact]
    noise = np.median(
        [np.linalg.norm(exact[i][1] - exact[i - 1][1]) / norms[i] for i in range(len(exact))]
    )
    table = []
    for precision in ("tf32", "bfloat16"):
        near = updates(precision)
        table.append(
            {
                "preset": preset,
                "precision": precision,
                "loss_error": float(
                    np.median([abs(a - b) / b for (a, _), (b, _) in zip(near, exact, strict=True)])
                ),
                "gradient_error": float(
                    np.median(
                        [
                            np.linalg.norm(a - b) / norm
                            for (_, a), (_, b), norm in zip(near, exact, norms, strict=True)
                        ]
                    )
                ),
                "gradient_difference_of_batches": float(noise),
            }
        )
    return table


def _first_moment(state):
    """Adam's first moment within the optimiser's chain (clipping, Adam)."""
    return state.opt_state[1][0].mu


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    host_memory.keep_freed_memory(large_blocks=False)
    import jax

    from rcrl_jax import files
    from rcrl_jax.training import manifest

    try:
        path = device_file.prepare(_OUTPUT.value)
    except OSError as error:
        command_line.refuse(str(error))
    table = [row for preset in presets.ATARI_PRESETS for row in measure(preset)]
    for row in table:
        print(
            f"{row['preset']:<12} {row['precision']:<9} relative error of the loss "
            f"{row['loss_error']:.1e}, of the gradient {row['gradient_error']:.1e}; two batches' "
            f"gradients differ by {row['gradient_difference_of_batches']:.1f}"
        )
    kind = jax.devices()[0].device_kind
    how = "rounded inputs on a CPU" if kind == "cpu" else "measured"
    files.write_json_atomically(
        path, {"how": how, "game": _GAME.value, "table": table, **manifest.circumstances()}
    )
    print(f"written to {path}")


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
