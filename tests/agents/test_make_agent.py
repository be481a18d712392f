"""Settings of JAX in the program that makes an agent."""

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents import make_agent as module
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import ATARI_PRESETS, control_presets
from rcrl_jax.envs import dmc
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import prediction


def test_agents_that_would_compute_in_64_bits_are_refused():
    """In one line; kernels fail in 60, and XLA in their place would give other bits."""
    arguments = ATARI_PRESETS["rcrl"], discrete_spec((84, 84), 6)
    make_agent(*arguments)  # kept for the next call
    with jax.enable_x64(True), pytest.raises(types.Incompatible, match="jax_enable_x64"):
        make_agent(*arguments)


@pytest.mark.parametrize("preset", ["rcrl", "rcrl_sac", "slac"])
def test_a_program_that_is_strict_about_types_and_transfers_can_train(preset, monkeypatch):
    """Only its updates are traced: optax, too, fails at an update of mixed types."""
    monkeypatch.setattr(module, "_made", [])  # this agent is made anew
    if preset in ATARI_PRESETS:
        config, spec, game = ATARI_PRESETS[preset], discrete_spec((84, 84), 6), "Pong"
    else:
        config, game = control_presets("cheetah_run")[preset], "cheetah_run"
        spec = dmc.make_spec(game, config.observation, config.render_size, config.action_repeat)
    key = jax.random.key(0)
    with jax.numpy_dtype_promotion("strict"), jax.transfer_guard("disallow"):
        agent = make_agent(config, spec)
        run = types.RunSpec(np.int32(spec.max_num_actions), agent.run_constants(game))
        state = jax.eval_shape(agent.init, run, key)
        for kind in range(max(len(agent.replay.sequences), 1)):
            batch = prediction.empty_batch(agent, 1, "host", kind)
            jax.eval_shape(agent.update, run, state, jax.tree.map(lambda x: x[0], batch))
