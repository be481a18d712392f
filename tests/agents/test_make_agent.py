"""What no agent can be made with."""

import jax
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.protocol import discrete_spec


def test_agents_that_would_compute_in_64_bits_are_refused():
    """In one line; kernels fail in 60, and XLA in their place would give other bits."""
    arguments = ATARI_PRESETS["rcrl"], discrete_spec((84, 84), 6)
    make_agent(*arguments)  # kept for the next call
    with jax.enable_x64(True), pytest.raises(types.Incompatible, match="jax_enable_x64"):
        make_agent(*arguments)
