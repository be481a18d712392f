"""The command on a real game: trains two presets, and writes lines that can be drawn."""

import pytest

from benchmarks import figure_similarity
from rcrl_jax.runs import records
from tests.experiments import programs
from tests.experiments.test_atari100k import SMALL
from tests.experiments.test_command_line import assert_refused

PROGRAM = "experiments.representation"


def test_the_command_writes_lines_that_a_figure_is_drawn_from(tmp_path):
    result = programs.call(
        PROGRAM, "--game=Breakout", "--seeds=0", "--steps=100", "--eval_episodes=2", "--pairs=16",
        "--snapshot_period=50", "--probe_steps=60", f"--workdir={tmp_path}",
        *(f"--config.{name}={value}" for name, value in SMALL.items()),
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    written = tmp_path / "Breakout"
    assert f"representation in {written}" in result.stdout
    lines = records.read_records(written / "similarity.jsonl")
    moments = {(line["pairs"], line["agent_steps"]) for line in lines}
    assert moments == {("held_out", s) for s in (0, 50, 100)} | {("replay", s) for s in (50, 100)}
    assert {(line["preset"], line["game"], line["seed"]) for line in lines} == {
        (preset, "Breakout", 0) for preset in ("erainbow_sa", "rcrl")
    }
    (recording,), problems = figure_similarity.read([tmp_path])
    assert not problems and {*recording.scores.agent_steps} == {80, 100}


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--presets=rcrl,dqn"], "dqn"),
        (["--game=Pongg"], "did you mean Pong?"),
        (["--games=Pong,Alien"], "one --game"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, arguments, says):
    result = programs.call(PROGRAM, *arguments, f"--workdir={tmp_path / 'new'}")
    assert_refused(result)
    assert says in result.stderr
    assert not list(tmp_path.iterdir())
