"""Two arms on any games: only pairs count; estimates are those of the scores."""

import importlib.util

import numpy as np
import pandas as pd
import pytest

import rcrl_jax
from rcrl_jax import reference
from rcrl_jax.tables.statistics import interquartile_mean
from tests.programs import programs
from tests.programs.test_command_line import assert_refused
from tests.tables.synthetic import score_at, write_run

LEVELS = {"rcrl": (0.6, 0.5, 0.4), "erainbow_sa": (0.3, 0.2, 0.1)}


def finish(root, seeds=range(3), games=("Hero", "Pong"), **of_run):
    for preset, levels in LEVELS.items():
        for game in games:
            for seed in seeds:
                write_run(root, preset, game, seed, score_at(game, levels[seed % 100]), **of_run)


def compare(tmp_path, *arguments) -> programs.Ended:
    results, output = tmp_path / "results", tmp_path / "output"
    return programs.call(
        "benchmarks.compare", f"--results={results}", f"--output={output}", *arguments
    )


def test_pairs_of_any_games_are_compared_with_intervals(tmp_path):
    finish(tmp_path / "results")
    write_run(tmp_path / "results", "rcrl", "Pong", 7, 21.0)  # has no partner
    result = compare(tmp_path)
    assert result.returncode == 0, result.stderr
    mean = reference.published("Pong", "Random") + 0.5 * 35.3
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert f"{mean:.1f} ± " in lines["Pong"] and lines["Pong"].count("(3)") == 2
    assert "0.500 [" in lines["mean"] and "0.200 [" in lines["mean"]
    expected = interquartile_mean([np.array(LEVELS["rcrl"])] * 2).item()
    assert f"{expected:.3f} [" in lines["IQM"]
    text = " ".join(result.stdout.split())
    assert "Probability of improvement 1.00 [1.00, 1.00]" in text
    assert "HNS +0.300 [+0.300, +0.300]" in text and " p = " not in text
    assert {path.suffix for path in (tmp_path / "output").iterdir()} == {
        ".csv", ".md", ".tex", ".html"
    }  # fmt: skip


def test_pairs_on_two_benchmarks_are_refused(tmp_path):
    finish(tmp_path / "results")
    for preset in LEVELS:
        write_run(tmp_path / "results", preset, "gymnasium.CartPole-v1")
    refused = compare(tmp_path)
    assert (refused.returncode, refused.stderr) == (
        2, "error: pairs of atari and own: name one benchmark's folders\n"
    )  # fmt: skip


def test_two_pairs_have_no_interval(tmp_path):
    finish(tmp_path / "results", seeds=range(2))
    text = compare(tmp_path).stdout
    assert "a game has 2 pairs, fewer than 3" in " ".join(text.split()) and "[" not in text


@pytest.mark.parametrize("game, seed", [("Hero", 0), ("Pong", 100)])  # of either list
def test_an_unfinished_list_has_no_intervals(tmp_path, game, seed):
    """Three seeds are a few of a list's pairs; the first seeds of Pong are in no list."""
    finish(tmp_path / "results", games=["Pong"], steps=100_000)
    text = " ".join(compare(tmp_path).stdout.split())
    assert "pre-registered" not in text and "[" in text
    finish(tmp_path / "results", range(seed, seed + 3), [game], steps=100_000)
    text = " ".join(compare(tmp_path).stdout.split())
    assert "belong to a pre-registered experiment" in text and "[" not in text


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["--first=curl"], ["no finished run of curl", "erainbow_sa, rcrl"]),
        (["--first=erainbow_sa"], ["is the first arm, too"]),
        (["--steps=5"], ["no finished run of rcrl", "none"]),
        (["--steps=many"], ["--steps"]),
        (["--results=/nowhere"], ["/nowhere"]),
    ],
)
def test_what_cannot_be_compared_is_refused(tmp_path, arguments, says):
    finish(tmp_path / "results", seeds=[0])
    result = compare(tmp_path, *arguments)
    assert_refused(result)
    for words in says:
        assert words in result.stderr


def test_arms_without_a_common_seed_make_no_pair(tmp_path):
    write_run(tmp_path / "results", "rcrl", "Pong", 0, 1.0)
    write_run(tmp_path / "results", "erainbow_sa", "Pong", 1, 1.0)
    result = compare(tmp_path)
    assert_refused(result)
    assert "no run of rcrl has game, seed and conditions of one of erainbow_sa" in result.stderr


def test_the_name_of_an_arm_is_its_name_everywhere(tmp_path):
    """In the table, in CSV and in Python; its settings stand once, below the table."""
    changes = {"return_contrast.batch_size": 8, "batch_size": 8}
    for seed in range(2):
        write_run(tmp_path / "results", "rcrl", "Pong", seed, 1.0)
        root = tmp_path / "results" / "short"
        write_run(root, "rcrl", "Pong", seed, 2.0, changes=changes, arm="short")
    result = compare(tmp_path, "--first=short", "--second=rcrl", f"--csv={tmp_path}/scores.csv")
    assert result.returncode == 0, result.stderr
    settings = "rcrl(return_contrast.batch_size=8, batch_size=8)"
    text = " ".join(result.stdout.split())
    assert "short and rcrl after 1,000" in text and text.count("short: " + settings) == 1
    assert text.count(settings) == 1
    assert [*pd.read_csv(tmp_path / "scores.csv").arm] == ["rcrl", "rcrl", "short", "short"]
    assert {*rcrl_jax.scores(tmp_path / "results")["arm"]} == {"rcrl", "short"}


def test_no_scores_are_written_if_an_arm_is_refused(tmp_path):
    write_run(tmp_path / "results", "curl", "Pong", 0, 1.0)
    result = compare(tmp_path, "--first=curl", f"--csv={tmp_path}/scores.csv")
    assert result.returncode == 2 and not (tmp_path / "scores.csv").exists()


def test_scores_of_all_runs_are_data(tmp_path, monkeypatch):
    for arm, game, seed, score in (
        ("rcrl", "Pong", 0, 1.0), ("rcrl", "Alien", 0, 2.0), ("rcrl", "Pong", 1, 3.0),
        ("curl", "Pong", 0, 4.0), ("curl", "Alien", 0, 5.0),
    ):  # fmt: skip
        write_run(tmp_path / "runs", arm, game, seed, score)
    write_run(tmp_path / "runs", "rcrl", "Qbert", 0, 9.0, steps=500)
    done = programs.call(
        "benchmarks.compare", "--results=runs", "--csv=new/scores.csv", directory=tmp_path
    )
    assert done.returncode == 0 and done.stdout == "scores of 6 runs in new/scores.csv\n"
    written = pd.read_csv(tmp_path / "new" / "scores.csv")
    found = pd.DataFrame(rcrl_jax.scores(tmp_path / "runs"))
    pd.testing.assert_frame_equal(written, found)
    rows = found[found.arm == "curl"].to_numpy().tolist()
    assert rows == [["curl", "Alien", 0, 1000, 5.0], ["curl", "Pong", 0, 1000, 4.0]]
    matrices = rcrl_jax.score_matrices(tmp_path / "runs", steps=1000)
    # Only seed 0 has both games.
    assert {arm: own.tolist() for arm, own in matrices.items()} == {
        "curl": [[5.0, 4.0]], "rcrl": [[2.0, 1.0]]
    }  # fmt: skip
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install"):
        rcrl_jax.scores(tmp_path)
