"""Learning curves: what is averaged and what is drawn."""

import json

import numpy as np
import pytest

from rcrl_jax import reference
from rcrl_jax.tables import command, control_figure, runs
from tests.tables.synthetic import edit, evaluation, write_lines, write_run

TASK = "cheetah_run"


def finish(root, preset="rcrl_sac", seed=0, scores=(10.0, 20.0, 30.0), steps=300, **run):
    """A run whose evaluations are `scores`, evenly spaced; an agent step is 4 environment steps."""
    directory = write_run(root, preset, TASK, seed, scores[-1], steps=steps, **run)
    lines = [
        evaluation(steps * (number + 1) // len(scores), 4, [score - 1.0, score + 1.0] * 5)
        for number, score in enumerate(scores)
    ]
    write_lines(directory / "evaluations.jsonl", lines)


def curve_of(root):
    return control_figure.average(runs.evaluations(runs.read(root).frame))


def draw(root, end=500_000):
    return control_figure.draw(runs.read(root).frame, end)


def lines_of(figure, task=TASK):
    """Legend label -> line of a task's panel."""
    panel = figure.axes[reference.tasks().index(task)]
    return {line.get_label(): line for line in panel.get_lines()}


def ours_of(figure):
    lines = lines_of(figure).items()
    return {label: line for label, line in lines if not label.endswith(", published")}


def test_mean_and_sample_deviation_over_seeds(tmp_path):
    finish(tmp_path, seed=0, scores=(10.0, 20.0, 30.0))
    finish(tmp_path, seed=1, scores=(20.0, 40.0, 60.0))
    curve = curve_of(tmp_path)
    np.testing.assert_array_equal(curve.index, [400, 800, 1200])
    np.testing.assert_allclose(curve["mean"], [15, 30, 45])
    np.testing.assert_allclose(curve["std"], np.array([5, 10, 15]) * np.sqrt(2))


def test_an_unfinished_run_is_drawn_where_its_arm_has_no_finished_one(tmp_path):
    finish(tmp_path, "sac_aug")
    finish(tmp_path, "sac_aug", seed=1)
    (tmp_path / "sac_aug" / TASK / "seed_1" / "scores.json").unlink()
    finish(tmp_path, "curl_sac", scores=(10.0, 70.0, 30.0))
    (tmp_path / "curl_sac" / TASK / "seed_0" / "scores.json").unlink()
    frame = runs.read(tmp_path, unfinished=True).frame
    kind = command.PAPER["figure_dmc"]
    shown = command.fill(kind, frame)
    assert [*shown.runs.preset] == ["sac_aug"] and [*shown.drawn.preset] == ["sac_aug", "curl_sac"]
    assert [c.name for c in shown.table.columns if c.source == "ours"] == ["sac_aug"]
    for preset, seed, state in (
        ("sac_aug", 1, "it is left out"),
        ("curl_sac", 0, "only the figure shows it"),
    ):
        place = tmp_path / preset / TASK / f"seed_{seed}"
        assert f"{place} is not finished: {state}" in shown.left_out
    ours = ours_of(kind.draw(shown.drawn, shown.budgets[-1]))
    assert {*ours} == {"sac_aug, 1 seed", "curl_sac, 1 seed, unfinished"}
    assert [*ours["curl_sac, 1 seed, unfinished"].get_ydata()] == [10.0, 70.0, 30.0]
    assert [*command.fill(kind, frame, presets=["sac_aug"]).drawn.preset] == ["sac_aug"]


def test_published_curves_end_near_the_published_scores():
    """DrQ's curves and its score at 500k come from the same runs; the last point is at 500k."""
    curve = control_figure.published_curve("DrQ", "finger_spin")
    (score,) = [
        row.mean for row in reference.dmc_scores()
        if (row.agent, row.task, row.env_steps) == ("DrQ", "finger_spin", 500_000)
    ]  # fmt: skip
    assert curve.index[-1] == 500_000
    assert curve.iloc[-1] == pytest.approx(score, abs=0.51)
    assert control_figure.published_curve("DrQ [jaxrl re-run]", "ball_in_cup_catch").empty


def test_a_name_from_a_file_is_no_formula(tmp_path):
    finish(tmp_path)
    manifest = tmp_path / "rcrl_sac" / TASK / "seed_0" / "manifest.json"
    config = json.loads(manifest.read_text())["run"]["config"]
    config["return_contrast"]["discriminator_input"] = "$\\frac{$<b>"
    edit(manifest, "run", config=config)
    figure = draw(tmp_path)
    figure.savefig(tmp_path / "figure.png")
    assert any("<b>" in label for label in ours_of(figure))


def test_published_runs_of_the_same_system_are_drawn_one_by_one(tmp_path):
    finish(tmp_path, preset="slac")
    (panel,) = (p for p in draw(tmp_path).axes if p.get_title("left") == "cheetah run")
    singles = [line for line in panel.get_lines() if "single runs" in line.get_label()]
    assert len(singles) == 10
    scores = np.array([line.get_ydata() for line in singles])
    mean = control_figure.published_curve("SLAC [decoder var 0.1]", TASK)
    np.testing.assert_allclose(scores.mean(axis=0), mean, rtol=1e-6)
    assert "slac, 1 seed" in lines_of(draw(tmp_path))
    finish(tmp_path / "other")
    assert not any("single" in label for label in lines_of(draw(tmp_path / "other")))


def test_a_mean_is_taken_only_where_all_runs_have_a_score(tmp_path):
    finish(tmp_path, seed=0, scores=(10.0, 20.0, 30.0))
    finish(tmp_path, seed=1, scores=(20.0, 60.0))
    curve = curve_of(tmp_path)
    assert curve.index.tolist() == [1200] and curve["mean"].tolist() == [45.0]
