"""Joining vectors of environments."""

import os

import numpy as np
import pytest

from rcrl_jax.envs.catch import make_catch
from rcrl_jax.envs.pools import ConcatenatedEnvironments, usable_cores
from rcrl_jax.envs.protocol import discrete_spec


def assert_steps_equal(one, other):
    for name in one._fields:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_joined_vectors_equal_one_vector():
    """A game of Catch is independent of the others, so joining must change nothing."""
    joined = ConcatenatedEnvironments([make_catch([1, 2]), make_catch([3]), make_catch([4, 5, 6])])
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
    """Records the order of the calls."""

    def __init__(self, environment, name, calls):
        self.environment, self.name, self.calls = environment, name, calls

    def __getattr__(self, attribute):
        value = getattr(self.environment, attribute)
        if attribute in ("send", "recv", "reset", "close"):
            self.calls.append((attribute, self.name))
        return value


def test_all_vectors_are_sent_before_any_is_received():
    calls = []
    joined = ConcatenatedEnvironments([Recorded(make_catch([i]), i, calls) for i in range(3)])
    joined.reset()
    calls.clear()
    joined.step(np.ones(3, np.int32))
    joined.reset(np.array([False, True, False]))  # the others get no reset
    joined.close()
    names = [(call, i) for call in ("send", "recv") for i in range(3)]
    assert calls == [*names, ("reset", 1), *(("close", i) for i in range(3))]


def test_a_vector_stands_still_once_all_of_its_environments_are_retired():
    calls = []
    parts = [Recorded(make_catch(seeds), seeds, calls) for seeds in ([1, 2], [3])]
    joined, whole = ConcatenatedEnvironments(parts), make_catch([1, 2, 3])
    joined.reset(), whole.reset()
    joined.retire(np.array([False, True, False]))
    actions = np.ones(3, np.int32)
    assert_steps_equal(joined.step(actions), whole.step(actions))  # none of them stands yet
    joined.retire(np.array([False, True, True]))
    calls.clear()
    for _ in range(2):
        step, expected = joined.step(actions), whole.step(actions)
        np.testing.assert_array_equal(step.frame[:2], expected.frame[:2])
        assert not step.reward[2] and not step.terminated[2] and not step.truncated[2]
    assert [name for _, name in calls] == [[1, 2]] * 4


def test_largest_action_set_is_the_spec_s():
    small, large = make_catch([1, 2]), make_catch([3])
    large.spec = discrete_spec((84, 84), 5)
    large.num_valid_actions = np.array([5], np.int32)
    joined = ConcatenatedEnvironments([small, large])
    assert joined.spec == large.spec
    np.testing.assert_array_equal(joined.num_valid_actions, [3, 3, 5])
    assert [pool["num_envs"] for pool in joined.description["pools"]] == [2, 1]
    joined.reset()
    joined.step(np.array([2, 2, 4], np.int32))
    with pytest.raises(ValueError, match="out of range"):
        joined.send(np.array([2, 3, 4], np.int32))


def test_a_vector_whose_simulations_cannot_fail_may_stand_beside_one_whose_can():
    class Failing(Recorded):
        def recv(self):
            step = self.environment.recv()
            return step._replace(failed=np.ones_like(step.truncated))

    parts = [kind(make_catch([seed]), [seed], []) for kind, seed in ((Recorded, 1), (Failing, 2))]
    joined = ConcatenatedEnvironments(parts)
    joined.reset()
    assert joined.step(np.ones(2, np.int32)).failed.tolist() == [False, True]


@pytest.mark.parametrize(
    "lines, folder, files, cores",
    [
        ("0::/job/step\n", "job", {"cpu.max": "150000 100000"}, 2),
        ("0::/job/step\n", "job/step", {"cpu.max": "50000 100000"}, 1),
        ("0::/\n", "", {"cpu.max": "max 100000"}, 64),
        (
            "4:cpu,cpuacct:/docker/x\n", "cpu/docker/x",
            {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, 2,
        ),
        # A container of version 1 finds its own group at the top.
        (
            "4:cpu,cpuacct:/docker/x\n", "cpu",
            {"cpu.cfs_quota_us": "200000", "cpu.cfs_period_us": "100000"}, 2,
        ),
        (
            "4:cpu,cpuacct:/docker/x\n", "cpu",
            {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, 64,
        ),
        ("4:memory:/x\n", "memory/x", {}, 64),
    ],
)  # fmt: skip
def test_a_quota_of_cpu_time_counts_as_cores(tmp_path, monkeypatch, lines, folder, files, cores):
    """`docker run --cpus=2` binds the process to no cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(64)))
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    group = tmp_path / "sys/fs/cgroup" / folder
    group.mkdir(parents=True)
    for name, content in files.items():
        (group / name).write_text(f"{content}\n")
    assert usable_cores(tmp_path) == cores
    assert usable_cores(tmp_path / "without_groups") == 64
