"""All matrix products of an agent, forward and backward, have the configured precision."""

import dataclasses

import jax
import numpy as np
import pytest
from jax.extend import core

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import prediction


def products(jaxpr):
    """The precisions of all matrix products, including those of inner programs."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if isinstance(inner, core.ClosedJaxpr):
                yield from products(inner.jaxpr)
            elif hasattr(inner, "eqns"):
                yield from products(inner)


@pytest.mark.parametrize(
    "precision, expected",
    [
        ("float32", (jax.lax.Precision.HIGHEST,) * 2),
        ("tf32", (jax.lax.Precision.HIGH,) * 2),
        ("bfloat16", jax.lax.DotAlgorithmPreset.BF16_BF16_F32),
    ],
)
def test_all_products_of_an_agent_have_its_precision(precision, expected):
    config = dataclasses.replace(ATARI_PRESETS["rcrl"], precision=precision)
    agent = make_agent(config, discrete_spec((84, 84), 6))
    constants = agent.run_constants("Alien")
    run, key = types.RunSpec(np.int32(6), constants), jax.random.key(0)
    state = jax.eval_shape(agent.init, run, key)
    batch = jax.tree.map(lambda x: x[0], prediction.empty_batch(agent, 1, "host"))
    updating = list(products(jax.make_jaxpr(agent.update)(run, state, batch).jaxpr))
    # Five passes through encoder and head, most of them differentiated.
    assert len(updating) > 40 and set(updating) == {expected}

    observation = batch.transitions.observation
    acting = jax.make_jaxpr(agent.act, static_argnums=4)(
        run, state.params.agent, observation, key, False, np.int32(0)
    )
    assert set(products(acting.jaxpr)) == {expected}
