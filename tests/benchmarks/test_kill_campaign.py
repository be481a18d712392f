"""The kill campaign in short, and how it judges."""

import random
import shutil

import pytest

from benchmarks import damage_trials, kill_campaign, tiny_runs
from tests.training import toy

GOES_ON, REFUSED = (
    next(trial for trial in damage_trials.TRIALS if trial.goes_on is goes_on)
    for goes_on in (True, False)
)


def test_a_killed_run_ends_as_undisturbed_and_a_changed_one_is_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(toy.ROOT)
    kill_campaign.train(tmp_path / "reference")
    said = []
    (row,) = kill_campaign.kill_runs(tmp_path, 1, random.Random(1), said.append)
    assert len(row["killed_at_step"]) == 1
    assert row["exit_code"] == 0 and row["different"] == ""
    assert len(said) == 1

    flips = kill_campaign.flip_bits(tmp_path, 20, random.Random(0))
    assert flips == {"flipped": 20, "noticed": 20}

    other = shutil.copytree(tmp_path / "reference", tmp_path / "other")
    assert tiny_runs.difference(other, tmp_path / "reference") == ""
    metrics = tiny_runs.paths_of(other).metrics
    metrics.write_text(metrics.read_text().replace('"agent_steps": 6,', '"agent_steps": 7,', 1))
    assert tiny_runs.difference(other, tmp_path / "reference") == "metrics.jsonl of seed 3"
    assert tiny_runs.difference(other, tmp_path / "reference", metrics=False) == ""


ONE_LINE = kill_campaign.Ended(2, ["error: W/scores.json is damaged: why"], 3.0, False)


@pytest.mark.parametrize(
    "trial, change, verdict",
    [
        (REFUSED, {}, ""),
        (REFUSED, {"seconds": 11.0}, "more than 10 s"),
        (REFUSED, {"code": 1}, "exit code 1, expected 2"),
        (REFUSED, {"code": 0}, "exit code 0, expected 2"),
        (REFUSED, {"said": ["error: W/a", "more"]}, "2 lines, expected 1"),
        (REFUSED, {"said": ["error: something is damaged"]}, "the file is not named"),
        (REFUSED, {"has_traceback": True}, "a traceback"),
        (GOES_ON, {"code": 0, "said": ["warning: W/checkpoints/9"], "seconds": 60.0}, ""),
        (GOES_ON, {}, "exit code 2, expected 0"),
        (GOES_ON, {"code": 0, "has_traceback": True}, "a traceback"),
    ],
)
def test_verdicts_of_damage_trials(trial, change, verdict):
    assert kill_campaign.judge(trial, ONE_LINE._replace(**change)) == verdict


def test_the_table_counts_what_is_right():
    kills = [
        {"killed_at_step": [1, 2], "killed_amid_a_checkpoint": 1, "exit_code": 0, "different": ""},
        {"killed_at_step": [3], "killed_amid_a_checkpoint": 0, "exit_code": 0, "different": "x"},
    ]
    trials = [
        {"damaged": "a", "said": ["1 | 2"], "exit_code": 2, "seconds": 1.5, "wrong": ""},
        {"damaged": "b", "said": [], "exit_code": 0, "seconds": 2.5, "wrong": "a traceback"},
    ]
    text = kill_campaign.describe(kills, trials, {"flipped": 9, "noticed": 8})
    assert "3 processes killed, 1 of them amid a checkpoint; 1 of 2 runs ended" in text
    assert "1 of 2 trials" in text and "8 of 9 noticed" in text
    assert "| a | 1 \\| 2 | 2 | 1.5 | right |" in text
    assert "| b |  | 0 | 2.5 | a traceback |" in text
