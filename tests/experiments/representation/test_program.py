"""The command on a real game: trains a preset, and writes lines and figures."""

import pytest

from rcrl_jax import api
from rcrl_jax.replay.settings import ContrastRule, make_rule
from rcrl_jax.runs import records
from tests.programs import programs
from tests.programs.test_atari100k import SMALL

PROGRAM = "experiments.representation"


def test_the_command_writes_lines_and_draws_them(tmp_path):
    result = programs.call(
        PROGRAM, "--presets=rcrl", "--game=Breakout", "--seeds=0", "--steps=60", "--pairs=16",
        "--eval_episodes=2", "--snapshot_period=30", "--probe_steps=100", f"--workdir={tmp_path}",
        *(f"--config.{name}={value}" for name, value in SMALL.items()),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    written = tmp_path / "Breakout"
    assert f"representation in {written}" in result.stdout
    lines = records.read_records(written / "similarity.jsonl")
    moments = {(line["pairs"], line["agent_steps"]) for line in lines}
    assert moments == {("held_out", s) for s in (0, 30, 60)} | {("replay", 60)}
    assert {(line["preset"], line["game"], line["seed"]) for line in lines} == {
        ("rcrl", "Breakout", 0)
    }
    for name in ("similarity.png", "probe.png"):
        assert (written / name).read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "flag",
    [
        "anchors=uniform",
        "positives=equal_return",
        "positive_excludes_anchor",
        "negative_differs_in_return",
    ],
)
@pytest.mark.parametrize("presets", ["erainbow_sa,rcrl", "erainbow_sa"])
def test_pairs_of_the_replay_are_drawn_by_one_rule(tmp_path, monkeypatch, presets, flag):
    """Also for a preset without the task, whose training does not read these fields."""
    plans = []
    monkeypatch.setattr(api, "check", lambda plan, spec: plans.append(plan))
    result = programs.call(
        PROGRAM, f"--presets={presets}", f"--config.return_contrast.{flag}", "--dry_run",
        f"--workdir={tmp_path}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    first, *others = (make_rule(plan.config.return_contrast, 0.0) for plan in plans)
    assert first != ContrastRule(64) and others == [first] * (presets.count(","))
