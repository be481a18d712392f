"""A run packed for others: its card is valid YAML and Markdown, and it is read back."""

import json
import shutil

import numpy as np
import pytest
import yaml

import rcrl_jax
from tests.programs import programs

PROGRAM = "experiments.share"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, and its folder."""
    run = rcrl_jax.train(
        "minatar_rcrl", game="Breakout", seeds=[3], steps=60, eval_episodes=2, learn_start=30,
        hidden_size=8, max_episode_steps=40, workdir=tmp_path_factory.mktemp("run"),
    )  # fmt: skip
    return run, run.directory / "minatar_rcrl" / "Breakout" / "seed_3"


@pytest.mark.parametrize("film", [False, True])
def test_a_packed_run_has_a_card_and_is_read_back(trained, tmp_path, film):
    run, folder = trained
    if film:
        (folder / "evaluation.mp4").write_bytes(b"a film")
    output = tmp_path / "all" / "packed"
    done = programs.call(PROGRAM, f"--run={folder}", f"--output={output}")
    assert done.returncode == 0, done.stderr
    names = {"parameters.npz", "manifest.json", "scores.json", "README.md"}
    assert {path.name for path in output.iterdir()} == names | ({"replay.mp4"} if film else set())
    assert list(output.parent.iterdir()) == [output]

    _, front, text = (output / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["library_name"] == "rcrl-jax" and "Breakout" in card["tags"]
    (result,) = card["model-index"][0]["results"]
    returns = run.scores()["score"][0]
    assert result["metrics"][0]["value"].startswith(f"{returns:.2f} +/- ")
    assert f"**{returns:.1f}**" in text and "60 agent steps with seed 3" in text

    packed = rcrl_jax.load(output)
    assert packed.scores() == run.scores() and packed.config == run.config
    frames = np.zeros((2, 1, 10, 10, 4), np.uint8)
    np.testing.assert_array_equal(
        packed.player().embed(frames, [0, 1]).round(1), run.player().embed(frames, [0, 1]).round(1)
    )


def test_mistakes_are_one_line_and_overwrite_nothing(trained, tmp_path, tmp_path_factory):
    run, folder = trained
    edited, unscored = (tmp_path_factory.mktemp(name) / folder.name for name in ("edited", "un"))
    for copy in (edited, unscored):
        shutil.copytree(folder, copy)
    scores = json.loads((edited / "scores.json").read_text())
    better = [value + 1 for value in scores["returns"]]
    (edited / "scores.json").write_text(
        json.dumps(scores | {"returns": better, "mean": float(np.mean(better))})
    )
    (unscored / "scores.json").unlink()
    (tmp_path / "there").mkdir()
    for flags, says in (
        ([f"--run={folder}"], "--output is missing"),
        ([f"--run={run.directory}", f"--output={tmp_path / 'new'}"], "has no parameters.npz"),
        ([f"--run={folder}", f"--output={tmp_path / 'there'}"], "is there already"),
        ([f"--run={edited}", f"--output={tmp_path / 'new'}"], "scores.json"),
        ([f"--run={unscored}", f"--output={tmp_path / 'new'}"], "has no scores"),
    ):
        ended = programs.call(PROGRAM, *flags)
        assert ended.returncode == 2 and len(ended.stderr.splitlines()) == 1
        assert says in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["there"]
    assert not list((tmp_path / "there").iterdir())
