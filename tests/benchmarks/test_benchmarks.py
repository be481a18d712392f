"""Every benchmark runs from start to end, on sizes too small to measure speed."""

import json
import re

import pytest

from tests.experiments import programs
from tests.experiments.test_command_line import assert_refused


def throughput(tmp_path, preset, *arguments):
    """Returns what was printed, and what was written."""
    result = programs.call(
        "benchmarks.throughput", f"--preset={preset}", "--repeats=3", "--loop_steps=10",
        f"--output={tmp_path}", *arguments,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    (written,) = tmp_path.glob("*.json")
    ((key, measured),) = json.loads(written.read_text()).items()
    assert key.startswith(f"{preset} --config.") and "learn_start" in key
    return result.stdout, measured


def test_throughput_of_a_fleet_on_atari(tmp_path):
    printed, measured = throughput(
        tmp_path, "erainbow", "--runs=1,2", "--games=Pong,Boxing", "--backend=ale",
        "--config.learn_start=40", "--config.replay.capacity=200", "--config.batch_size=8",
        "--config.hidden_size=16", "--config.num_atoms=11",
    )  # fmt: skip
    assert [fleet["runs"] for fleet in measured["fleets"]] == [1, 2]
    assert all(value > 0 for value in measured["machine"].values())
    for fleet in measured["fleets"]:
        times = [value for name, value in fleet.items() if name.endswith("_ms")]
        assert len(times) == 7 and min(times) > 0
        assert fleet["agent_steps_per_s"] == pytest.approx(1e3 * fleet["runs"] / fleet["loop_ms"])
    assert re.search(r"GFLOP/s = \d+% of the measured matmul rate", printed)
    assert {"versions", "device"} <= measured.keys()


def test_the_flop_of_an_update_equal_those_of_its_matrix_products(tmp_path):
    batch, hidden, state, action = 64, 128, 24, 6
    _, measured = throughput(
        tmp_path, "state_sac", f"--config.batch_size={batch}", f"--config.hidden_size={hidden}",
        "--config.learn_start=20", "--config.replay.capacity=200",
    )  # fmt: skip
    first, second = (state + action) * hidden, hidden * hidden + hidden
    critics, actor = 2 * (first + second), (state + 2 * action + hidden) * hidden
    forwards = actor + critics  # the target
    # Forwards, and backwards to weights and inputs; the first layer's input needs no gradient.
    forwards_and_backwards = (3 * critics - 2 * first) + (3 * actor - state * hidden)
    through_the_critics = 2 * critics  # the actor's loss: no gradient for the critics' weights
    products = 2 * batch * (forwards + forwards_and_backwards + through_the_critics)
    assert measured["fleets"][0]["update_gflop_per_run"] == pytest.approx(products / 1e9, rel=0.15)


def test_page_faults_are_measured_with_and_without_kept_memory():
    result = programs.run("benchmarks.page_faults", "--preset=erainbow", "--updates=1")
    assert result.returncode == 0, result.stderr
    assert "page faults" in result.stdout


def test_segment_lengths_at_random_and_of_a_trained_agent(tmp_path):
    result = programs.call("benchmarks.segment_lengths", "--episodes=1")
    assert result.returncode == 0, result.stderr
    rows = [line.strip("| ").split(" | ") for line in result.stdout.splitlines()[2:]]
    assert [row[0] for row in rows] == [
        "finger_spin", "cartpole_swingup", "reacher_easy", "cheetah_run", "walker_walk",
        "ball_in_cup_catch",
    ]  # fmt: skip
    assert_refused(programs.call("benchmarks.segment_lengths", f"--trained={tmp_path}"))

    trained = programs.call(
        "experiments.dmc", "--preset=state_sac", "--task=cartpole_swingup", "--steps=240",
        "--eval_episodes=1", "--config.hidden_size=16", "--config.batch_size=8",
        "--config.learn_start=20", f"--workdir={tmp_path}",
    )  # fmt: skip
    assert trained.returncode == 0, trained.stderr
    result = programs.call("benchmarks.segment_lengths", "--episodes=2", f"--trained={tmp_path}")
    assert result.returncode == 0, result.stderr
    row = result.stdout.splitlines()[-1].strip("| ").split(" | ")
    task, repeat, score, *lengths = row
    assert (task, repeat) == ("cartpole_swingup", "8") and 0 <= float(score) <= 1000
    by_sum, anchors, by_mean, fewer_anchors = map(float, lengths)
    assert 1 <= by_sum <= by_mean <= 125
    assert 0 <= fewer_anchors <= anchors <= 1
