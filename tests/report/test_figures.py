"""Learning curves: what is averaged, what is drawn, and what is never mixed."""

import dataclasses
import json

import numpy as np
import pytest

from rcrl_jax import reference
from rcrl_jax.report import figures
from rcrl_jax.results import store
from tests.results.synthetic import edit, evaluation, write_run

TASK = "cheetah_run"


def finish(root, preset="rcrl_sac", seed=0, scores=(10.0, 20.0, 30.0), steps=300, **run):
    """A run whose evaluations are `scores`, evenly spaced; an agent step is 4 environment steps."""
    directory = write_run(root, preset, TASK, seed, scores[-1], steps=steps, **run)
    lines = [
        evaluation(steps * (number + 1) // len(scores), 4, [score - 1.0, score + 1.0] * 5)
        for number, score in enumerate(scores)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "evaluations.jsonl").write_text(text)


def lines_of(figure, task=TASK):
    """Legend label -> line of a task's panel."""
    panel = figure.axes[reference.tasks().index(task)]
    return {line.get_label(): line for line in panel.get_lines()}


def test_mean_and_sample_deviation_over_seeds(tmp_path):
    finish(tmp_path, seed=0, scores=(10.0, 20.0, 30.0))
    finish(tmp_path, seed=1, scores=(20.0, 40.0, 60.0))
    curve = figures.average(store.read_runs(tmp_path).runs)
    np.testing.assert_array_equal(curve.env_steps, [400, 800, 1200])
    np.testing.assert_allclose(curve.mean, [15, 30, 45])
    np.testing.assert_allclose(curve.deviation, np.array([5, 10, 15]) * np.sqrt(2))


def test_runs_are_averaged_where_all_were_evaluated(tmp_path):
    finish(tmp_path, seed=0, scores=(10.0, 20.0, 30.0))
    finish(tmp_path, seed=1, scores=(5.0, 6.0, 7.0, 8.0, 9.0, 10.0))
    curve = figures.average(store.read_runs(tmp_path).runs)
    np.testing.assert_array_equal(curve.env_steps, [400, 800, 1200])
    np.testing.assert_allclose(curve.mean, [8, 14, 20])


def test_a_diverged_run_does_not_cut_the_mean_of_the_others(tmp_path):
    finish(tmp_path, seed=0, scores=(10.0, 20.0, 30.0))
    finish(tmp_path, seed=1, scores=(5.0,), steps=100)
    run, short = store.read_runs(tmp_path).runs
    short = dataclasses.replace(short, diverged=True)
    assert figures.average([run, short]).runs == 1
    np.testing.assert_array_equal(figures.average([run, short]).mean, [10, 20, 30])
    np.testing.assert_array_equal(figures.average([short]).mean, [5])


def test_a_single_seed_is_drawn_as_points_without_a_band(tmp_path):
    finish(tmp_path)
    figure = figures.dmc_curves(store.read_runs(tmp_path).runs, published=False)
    line = lines_of(figure)["rcrl_sac, 1 seed"]
    assert line.get_marker() == "o"
    panel = figure.axes[reference.tasks().index(TASK)]
    assert not panel.collections
    finish(tmp_path, seed=1)
    figure = figures.dmc_curves(store.read_runs(tmp_path).runs, published=False)
    assert lines_of(figure)["rcrl_sac, 2 seeds"].get_marker() == "None"
    assert len(figure.axes[reference.tasks().index(TASK)].collections) == 1


def test_runs_of_different_conditions_make_different_lines(tmp_path):
    finish(tmp_path / "short", steps=300)
    finish(tmp_path / "long", steps=3000)
    finish(tmp_path / "old", steps=300, algorithm=1)
    shown = lines_of(figures.dmc_curves(store.read_runs(tmp_path).runs, published=False))
    assert len(shown) == 3
    assert {"rcrl_sac, 1 seed, 1200 steps", "rcrl_sac, 1 seed, 12k steps"} < set(shown)
    assert len({line.get_color() for line in shown.values()}) == 3


def test_the_axis_ends_at_the_budget_or_with_the_longest_run(tmp_path):
    finish(tmp_path, steps=300)
    runs = store.read_runs(tmp_path).runs
    for end, drawn in ((600, 1200), (100_000, 100_000)):
        panel = figures.dmc_curves(runs, end=end).axes[0]
        assert panel.get_xlim()[1] == pytest.approx(1.03 * drawn)
        unclipped = [line.get_xdata()[-1] for line in panel.lines if not line.get_clip_on()]
        assert all(step <= drawn for step in unclipped)


def test_published_results_are_labelled_and_thinner_than_ours(tmp_path):
    finish(tmp_path)
    shown = lines_of(figures.dmc_curves(store.read_runs(tmp_path).runs))
    ours = shown.pop("rcrl_sac, 1 seed")
    assert len(shown) >= len(figures.PUBLISHED_CURVES) + len(figures.PUBLISHED_POINTS)
    assert all(label.endswith(", published") for label in shown)
    assert all(line.get_linewidth() < ours.get_linewidth() for line in shown.values()
               if line.get_linestyle() != "None")  # fmt: skip


def test_published_curves_end_near_the_published_scores():
    """DrQ's curves and its score at 500k come from the same runs; the last point is at 500k."""
    curve = figures.published_curve("DrQ", "finger_spin")
    (score,) = [
        row.mean for row in reference.dmc_scores()
        if (row.agent, row.task, row.env_steps) == ("DrQ", "finger_spin", 500_000)
    ]  # fmt: skip
    assert curve.env_steps[-1] == 500_000 and curve.runs == 10
    assert curve.mean[-1] == pytest.approx(score, abs=0.51)
    assert figures.published_curve("DrQ [jaxrl re-run]", "ball_in_cup_catch") is None


def test_every_published_curve_has_a_note():
    notes = figures.published_notes()
    assert len(notes) == len(figures.PUBLISHED_CURVES)
    assert any("not scores at a step" in note for note in notes)


def test_a_name_from_a_file_is_no_formula(tmp_path):
    finish(tmp_path)
    manifest = tmp_path / "rcrl_sac" / TASK / "seed_0" / "manifest.json"
    config = json.loads(manifest.read_text())["run"]["config"]
    config["return_contrast"]["discriminator_input"] = "$\\frac{$<b>"
    edit(manifest, "run", config=config)
    figure = figures.dmc_curves(store.read_runs(tmp_path).runs, published=False)
    figure.savefig(tmp_path / "figure.png")
    assert any("<b>" in label for label in lines_of(figure))
