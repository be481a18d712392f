"""`benchmarks.throughput` runs from start to end, on sizes too small to measure speed."""

import json
import re

import pytest

from tests.programs import programs


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


def test_times_are_measured_and_the_flop_are_those_of_the_matrix_products(tmp_path):
    batch, hidden, state, action = 64, 128, 24, 6
    printed, measured = throughput(
        tmp_path, "state_sac", f"--config.batch_size={batch}", f"--config.hidden_size={hidden}",
        "--config.learn_start=20", "--config.replay.capacity=200",
    )  # fmt: skip
    (fleet,) = measured["fleets"]
    assert all(value > 0 for value in measured["machine"].values())
    times = [value for name, value in fleet.items() if name.endswith("_ms")]
    assert len(times) == 8 and min(times) > 0
    assert fleet["agent_steps_per_s"] == pytest.approx(1e3 * fleet["runs"] / fleet["loop_ms"])
    assert re.search(r"GFLOP/s = \d+% of the measured rate", printed)
    first, second = (state + action) * hidden, hidden * hidden + hidden
    critics, actor = 2 * (first + second), (state + 2 * action + hidden) * hidden
    forwards = actor + critics  # the target
    # Forwards, and backwards to weights and inputs; the first layer's input needs no gradient.
    forwards_and_backwards = (3 * critics - 2 * first) + (3 * actor - state * hidden)
    through_the_critics = 2 * critics  # the actor's loss: no gradient for the critics' weights
    products = 2 * batch * (forwards + forwards_and_backwards + through_the_critics)
    assert fleet["update_gflop_per_run"] == pytest.approx(products / 1e9, rel=0.15)


def test_a_small_agent_s_flop_are_those_of_its_streams_and_its_encoder(tmp_path):
    batch, hidden, atoms, psi, actions, patch = 32, 128, 51, 256, 3, 16 * 4
    printed, measured = throughput(tmp_path, "minatar_erainbow_sa", "--config.learn_start=20")
    (fleet,) = measured["fleets"]
    assert "minatar_erainbow_sa on Breakout" in printed
    streams = (1 + actions) * (psi * hidden + hidden * atoms)
    encoder = 16 * patch * 16  # places, cells of a patch, channels
    # Three forwards, and one backwards to weights and inputs; to the frames there is none.
    products = 2 * batch * (5 * streams + 4 * encoder)
    assert fleet["update_gflop_per_run"] == pytest.approx(products / 1e9, rel=0.15)
