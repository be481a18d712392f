"""The benchmark of the host."""

import json
import os

import jax
import numpy as np
import pytest

from benchmarks import host
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields, presets
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.replay.frames import detach_frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from tests.programs import programs
from tests.programs.test_command_line import assert_mistake

CAPACITY = 400


@pytest.fixture(scope="module")
def full():
    """A stub fleet of 3 runs with its full replay, and its environment."""
    settings = fields.replace(presets.ATARI_PRESETS["rcrl"], {"replay.capacity": CAPACITY})
    games = host.SyntheticGames(3)
    agent = make_agent(settings, games.spec)
    fleet = host.make_stub(agent, 3)
    frames = host.make_frame_store(fleet)
    replay = SegmentReplay(frames, np.arange(3), agent.replay, agent.observations, agent.action)
    frames.is_filling = True
    host.fill(replay, 3, CAPACITY)
    frames.is_filling = False
    return fleet, replay, AgentEnvironment(games, agent.protocol)


def test_the_replay_is_full_and_has_segments_of_many_lengths(full):
    _, replay, _ = full
    waiting = 20 + 3  # without a full window, or lost to the head
    assert (replay.state.priorities > 0).sum(axis=1).min() >= CAPACITY - waiting - 5
    lengths = replay.segment_lengths(0)
    assert CAPACITY - 10 <= lengths.sum() <= CAPACITY and lengths.min() < 10 < lengths.max()


def test_synthetic_outcomes_have_the_rates_they_name():
    reward, terminated, truncated = host.synthetic_outcome(np.random.default_rng(0), 400, 400)
    assert set(np.unique(reward)) == {-1.0, 0.0, 1.0} and reward.dtype == np.float32
    assert np.mean(reward != 0) == pytest.approx(1 / 20, rel=0.1)
    assert terminated.mean() == pytest.approx(1 / 300, rel=0.2)
    assert 0 < truncated.mean() < 1 / 2500 and not np.any(terminated & truncated)


def test_parts_of_a_step_add_up_to_its_time(full, monkeypatch):
    """With a clock that ticks once a reading: every part takes the readings inside it."""
    ticks = iter(range(10**6))
    monkeypatch.setattr(host.time, "thread_time", lambda: next(ticks) * 1e-3)
    fleet, replay, environment = full
    measured = host.measure_loop(fleet, replay, environment, steps=3)
    for part in host._PARTS:
        assert measured[part] == pytest.approx(1), part  # between its two readings
    # Two readings for each part, and the one that ends the step; parts take one tick each.
    assert measured["thread"] == pytest.approx(2 * len(host._PARTS) + 1)
    assert measured["rest"] == pytest.approx(len(host._PARTS) + 1)


def test_the_stub_copies_batches_but_not_the_array_of_frames(full):
    fleet, replay, _ = full
    placed = []

    def place(tree):
        placed.append(jax.tree.map(np.array, tree))

    stub = host.make_stub(fleet.agent, 3, place)
    batch = replay.sample(0.5).batch
    _, result = stub.update(None, batch, 0)
    assert result.transition_loss.shape == (3, fleet.agent.replay.batch_size)
    (copy,) = placed
    detached, frames = detach_frames(batch)
    assert frames.shape == (3, CAPACITY + 2, 5632)
    jax.tree.map(np.testing.assert_array_equal, copy, detached)


@pytest.fixture
def restored_cores():
    """The command takes this process to one core; if it fails, it leaves it there."""
    allowed = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, allowed)


@pytest.mark.usefixtures("restored_cores")
def test_the_command_measures_with_and_without_emulators(tmp_path):
    done = programs.call(
        "benchmarks.host", "--runs=1", "--config.replay.capacity=64", "--cores=1", "--steps=3",
        f"--output={tmp_path}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (table,) = tmp_path.glob("*.md")
    assert table.read_text().strip() in done.stdout
    (written,) = tmp_path.glob("*.json")
    found = json.loads(written.read_text())
    (fleet,) = found["fleets"]
    assert (found["capacity"], fleet["runs"], list(fleet["with"])) == (64, 1, ["1"])
    for times in (fleet["without"], fleet["with"]["1"]):
        assert times.keys() == {"thread", "process", "wall", "rest", *host._PARTS}
        assert times["sample"] > 0


def test_a_number_of_runs_that_the_games_do_not_divide_is_refused(tmp_path):
    done = programs.call("benchmarks.host", "--runs=27", f"--output={tmp_path}/new")
    assert_mistake(done, ["--runs: from 26 on multiples"], tmp_path)
