"""What the learning curve shows."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from rcrl_jax.runs.paths import RunPaths
from rcrl_jax.runs.recorder import Counters, RunRecorder
from rcrl_jax.training import curves


@pytest.fixture
def figures(monkeypatch):
    """Collects the figures that `draw_learning_curve` draws."""
    drawn = []
    canvas = curves.FigureCanvasAgg

    def keeping(figure):
        drawn.append(figure)
        return canvas(figure)

    monkeypatch.setattr(curves, "FigureCanvasAgg", keeping)
    return drawn


def _train(paths, *, episodes=True, evaluations=True):
    """Writes the records of a small run."""
    rng = np.random.default_rng(0)
    with RunRecorder(paths, resume_at=None) as recorder:
        for step in range(0, 1001, 10):
            counters = Counters(step, step, 4 * step)
            recorder.record(counters, {"loss_c51": 1.0})
            if episodes:
                recorder.record(counters, {"episode_return": rng.normal(), "episode_length": 10})
            if evaluations and step in (500, 1000):
                recorder.record_evaluation(counters, [0.0, 1.0, 2.0], episodes_cut=0)
        if evaluations:  # the final evaluation has more episodes at the same step
            recorder.record_evaluation(counters, [4.0, 5.0, 6.0, 7.0], episodes_cut=0)


def _line(axes, label):
    (line,) = [line for line in axes.lines if line.get_label() == label]
    return line


def test_the_curve_shows_returns_means_and_range(tmp_path, figures):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 3)
    _train(paths)
    curves.draw_learning_curve(paths)
    (axes,) = figures[0].axes
    assert axes.get_title(loc="left") == "rcrl on Pong, seed 3"
    assert axes.get_xlabel() == "agent steps"

    mean = _line(axes, "mean of an evaluation")
    np.testing.assert_array_equal(mean.get_xydata(), [[500, 1.0], [1000, 5.5]])
    dots = _line(axes, "evaluation episode")
    np.testing.assert_array_equal(dots.get_xdata(), [500] * 3 + [1000] * 4)
    np.testing.assert_array_equal(dots.get_ydata(), [0, 1, 2, 4, 5, 6, 7])
    assert len(_line(axes, "training episode").get_xdata()) == 101
    (band,) = axes.collections
    corners = {tuple(corner) for corner in np.round(band.get_paths()[0].vertices, 6)}
    assert corners == {(500, 0.2), (500, 1.8), (1000, 4.3), (1000, 6.7)}


@pytest.mark.parametrize(
    ("episodes", "evaluations"), [(True, False), (False, True), (False, False)]
)
def test_a_run_that_has_just_begun_is_drawn(tmp_path, episodes, evaluations):
    paths = RunPaths(tmp_path, "erainbow", "Pong", 0)
    _train(paths, episodes=episodes, evaluations=evaluations)
    curves.draw_learning_curve(paths)
    with Image.open(paths.curve) as picture:
        picture.verify()


def _references(game, preset, returns):
    axes = Figure().subplots()
    axes.plot(returns)
    curves._draw_references(axes, game, preset)
    return {line.get_label(): line.get_ydata()[0] for line in axes.lines[1:]}


def test_published_scores_are_dashed_and_labelled_lines():
    assert _references("Pong", "erainbow_sa", [-21.0, -15.0]) == {
        "random -20.7": -20.7,
        "ERainbow-sa, published -18.3": -18.3,
    }
    assert _references("Catch", "rcrl", [0.0, 1.0]) == {}


def test_the_human_score_is_drawn_only_where_it_does_not_flatten_the_curve():
    assert "human 7845" in _references("RoadRunner", "rcrl", [0.0, 7000.0])
    assert "human 7845" not in _references("RoadRunner", "rcrl", [0.0, 100.0])
    assert "human 34971" not in " ".join(_references("Hero", "rcrl", [0.0, 6000.0]))


def test_a_mean_curve_averages_the_episodes_that_end_in_each_twentieth():
    """A part in which a run ended no episode is left out for all; step 100 is of the first."""
    first = [(1, 1.0), (100, 3.0), (101, 5.0), (2000, 7.0)]
    second = [(50, 0.0), (1901, 2.0), (1999, 4.0)]
    steps, means = curves.mean_returns([first, second], 2000)
    np.testing.assert_array_equal(steps, [50, 1950])
    np.testing.assert_array_equal(means, [[2.0, 7.0], [0.0, 3.0]])
    steps, means = curves.mean_returns([first, []], 2000)
    assert not steps.size and means.shape == (2, 0)


def test_the_mean_over_seeds_has_a_band_above_play_without_learning(tmp_path, figures):
    runs = [RunPaths(tmp_path, "rcrl", "Pong", seed) for seed in (3, 4)]
    for paths, episode_return in zip(runs, (1.0, 4.0), strict=True):
        with RunRecorder(paths, resume_at=None) as recorder:
            for step in (100, 1000):
                recorder.record(Counters(step, step, 4 * step), {"episode_return": episode_return})
    score, nulls = {"mean": 3.0, "standard_error": 0.5}, {"uniform actions": 0.41, "constant": 0.6}
    curves.draw_mean_curve(runs, 1000, score, nulls, tmp_path / "gain.png")
    (axes,) = figures[0].axes
    assert axes.get_title(loc="left") == "rcrl on Pong, 2 seeds"
    mean = _line(axes, "training, mean over seeds")
    np.testing.assert_array_equal(mean.get_xydata(), [[75, 2.5], [975, 2.5]])
    # Two numbers that differ by 3 have the standard error 1.5.
    band = np.round(axes.collections[0].get_paths()[0].vertices, 6)
    assert {*map(tuple, band)} == {(75, 1.0), (75, 4.0), (975, 1.0), (975, 4.0)}
    assert _line(axes, "uniform actions 0.41").get_ydata()[0] == 0.41
    assert _line(axes, "constant 0.6").get_ydata()[0] == 0.6
    (final,) = axes.containers
    assert final.get_label() == "final evaluation"
    np.testing.assert_array_equal(final.lines[0].get_xydata(), [[1000, 3.0]])
    np.testing.assert_array_equal(final.lines[2][0].get_segments(), [[(1000, 2.5), (1000, 3.5)]])
    curves.draw_mean_curve(runs[:1], 1000, {"mean": 1.0, "standard_error": None}, {}, runs[0].curve)
    with Image.open(runs[0].curve) as picture:
        picture.verify()
