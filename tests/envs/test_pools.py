"""Joining vectors of environments."""

import numpy as np
import pytest

from rcrl_jax.envs.catch import make_catch
from rcrl_jax.envs.pools import concatenate
from rcrl_jax.envs.protocol import EnvironmentSpec


def assert_steps_equal(one, other):
    for name in one._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_joined_environments_are_one_vector():
    """Catch does not depend on its company, so the joined vector must equal the whole one."""
    joined = concatenate([make_catch([1, 2]), make_catch([3]), make_catch([4, 5, 6])])
    whole = make_catch([1, 2, 3, 4, 5, 6])
    assert joined.num_envs == 6 and joined.spec == whole.spec
    generator = np.random.default_rng(0)
    assert_steps_equal(joined.reset(), whole.reset())
    for _ in range(60):
        actions = generator.integers(0, 3, 6).astype(np.int32)
        step = joined.step(actions)
        assert_steps_equal(step, whole.step(actions))
        mask = step.terminated | (generator.random(6) < 0.15)
        if mask.any():
            assert_steps_equal(joined.reset(mask), whole.reset(mask))


class Recorded:
    """Notes which of its calls came when."""

    def __init__(self, environment, name, calls):
        self.environment, self.name, self.calls = environment, name, calls

    def __getattr__(self, attribute):
        value = getattr(self.environment, attribute)
        if attribute in ("send", "recv", "reset", "close"):
            self.calls.append((attribute, self.name))
        return value


def test_all_are_sent_before_any_is_received():
    calls = []
    joined = concatenate([Recorded(make_catch([i]), i, calls) for i in range(3)])
    joined.reset()
    calls.clear()
    joined.step(np.ones(3, np.int32))
    joined.reset(np.array([False, True, False]))  # the others are left alone
    joined.close()
    names = [(call, i) for call in ("send", "recv") for i in range(3)]
    assert calls == [*names, ("reset", 1), *(("close", i) for i in range(3))]


def test_action_sets_may_differ():
    small, large = make_catch([1, 2]), make_catch([3])
    large.spec = EnvironmentSpec((84, 84), 5)
    large.num_actions_per_env = np.array([5], np.int32)
    joined = concatenate([small, large])
    assert joined.spec.num_actions == 5
    np.testing.assert_array_equal(joined.num_actions_per_env, [3, 3, 5])
    assert [pool["num_envs"] for pool in joined.description["pools"]] == [2, 1]
    joined.reset()
    joined.step(np.array([2, 2, 4], np.int32))
    with pytest.raises(ValueError, match="out of range"):
        joined.send(np.array([2, 3, 4], np.int32))


def test_refuses_none_and_differing_frames():
    other = make_catch([1])
    other.spec = EnvironmentSpec((100, 100), 3)
    for environments in ([], [make_catch([1]), other]):
        with pytest.raises(ValueError, match="one frame shape"):
            concatenate(environments)
