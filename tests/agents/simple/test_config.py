"""SimPLe's configuration: the source's settings, and what is refused."""

import pytest

from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.config import fields

BAD_VALUES = [
    ("model", "recurrent"),
    ("frame_height", 7),
    ("rounds", 0),
    ("round_steps", 6401),
    ("max_episode_steps", 6000),
    ("real_rollout", 1),
    ("real_agents", 7),
    ("model_rollout", 7),
    ("minibatch_steps", 0),
    ("passes", 0),
    ("adam_b1", 1.0),
    ("deterministic.double_steps", 7),
    ("deterministic.dropout", 1.0),
    ("deterministic.pixel_noise", 1.1),
    ("stochastic.bits", 12),
    ("stochastic.ramp", 3),
]


@pytest.mark.parametrize(("name", "value"), BAD_VALUES)
def test_bad_values_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=name.split(".")[-1]):
        fields.replace(SimpleConfig(), {name: value})


def test_a_round_holds_a_window_that_the_model_learns_from():
    """Ten elevenths of a round of 10 steps and a final frame are 10 frames; a window has 5."""
    short = {"real_agents": 1, "minibatch_steps": 1, "round_steps": 10, "real_rollout": 10}
    fields.replace(SimpleConfig(), short)
    with pytest.raises(ValueError, match=r"^round_steps: .* from 0 frames .* a window needs 5$"):
        fields.replace(SimpleConfig(), short | {"round_steps": 9, "real_rollout": 9})
