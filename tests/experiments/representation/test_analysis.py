"""Snapshots of training runs on Catch, resumed or not, and the analysis of two presets."""

import dataclasses

import numpy as np
import optax
import pytest
from matplotlib.figure import Figure

from experiments.representation import analysis, draws, similarity
from rcrl_jax import types
from rcrl_jax.runs import records
from rcrl_jax.training import experiment
from rcrl_jax.training.plan import Plan
from tests.training import toy

STEPS, PERIOD, PAIRS = 120, 40, 16
SEEDS = (3, 4)


def plain(workdir, preset="rcrl") -> Plan:
    """A plan without an observer, whose ring wraps before it is interrupted."""
    ring = {"replay.capacity": 60}
    return toy.make_plan(workdir, preset, SEEDS, overrides=ring, total_steps=STEPS)


def watched(workdir, preset="rcrl") -> Plan:
    plan = plain(workdir, preset)
    observer = similarity.Observer(plan, PAIRS)
    return dataclasses.replace(plan, observe=observer, observe_period=PERIOD)


def run(plan) -> None:
    experiment.run(plan, lambda line: None)


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    """Finished plans of two presets."""
    workdir = tmp_path_factory.mktemp("arms")
    plans = [watched(workdir / preset, preset) for preset in ("erainbow_sa", "rcrl")]
    for plan in plans:
        run(plan)
    return plans


def assert_equal_snapshots(one, other):
    assert len(one) == len(other) == 1 + STEPS // PERIOD
    for a, b in zip(one, other, strict=True):
        toy.assert_equal_trees(a, b)


def test_snapshots_come_at_their_steps_with_replay_pairs_once_learning_has_started(arms):
    for plan in arms:
        snapshots = similarity.read_snapshots(plan)
        assert [s.step for s in snapshots] == list(range(0, STEPS + 1, PERIOD))
        assert [s.replay is None for s in snapshots] == [True] + [False] * (len(snapshots) - 1)
        for snapshot in snapshots[1:]:
            for value in snapshot.replay:
                assert value.shape == (len(SEEDS),) and np.all(np.abs(value) <= 1 + 1e-6)
        last = toy.last_checkpoint(plan).learner.params
        toy.assert_equal_trees(snapshots[-1].params, similarity.params_to_keep(last))


def test_an_observer_does_not_change_training(tmp_path, arms):
    unwatched = plain(tmp_path, "erainbow_sa")
    run(unwatched)
    toy.assert_equal_trees(toy.last_checkpoint(unwatched), toy.last_checkpoint(arms[0]))
    assert toy.recorded(unwatched) == toy.recorded(arms[0])


def test_an_interrupted_run_leaves_the_same_snapshots(tmp_path, arms):
    plan = watched(tmp_path)
    toy.run_and_stop(plan, 70)
    run(plan)
    assert_equal_snapshots(similarity.read_snapshots(plan), similarity.read_snapshots(arms[1]))


def test_a_run_without_an_observer_has_no_snapshots(tmp_path):
    with pytest.raises(FileNotFoundError, match="no observer"):
        similarity.read_snapshots(toy.make_plan(tmp_path))


def test_similarities_by_hand(arms):
    """Cosines of a product of two arrays, pair by pair."""

    class LinearFleet:
        def compare(self, params, first, second):
            x, y = (p.observation * params[:, p.action[0]] for p in (first, second))
            return types.Comparison(np.asarray(optax.losses.cosine_similarity(x, y)), None)

    rng = np.random.default_rng(0)
    params = rng.normal(size=(2, 3, 4))
    pairs = types.ContrastBatch(
        *(types.Pairs(rng.normal(size=(2, 5, 4)), rng.integers(0, 3, (1, 5))) for _ in range(3))
    )
    measured = similarity.measure(LinearFleet(), params, pairs)
    for name, value in measured._asdict().items():
        for r in range(2):
            cosines = []
            for i in range(5):
                x, y = (
                    p.observation[r, i] * params[r, p.action[0, i]]
                    for p in (pairs.anchor, getattr(pairs, name))
                )
                cosines.append(x @ y / np.sqrt((x @ x) * (y @ y)))
            assert value[r] == pytest.approx(np.mean(cosines), rel=1e-4)


def test_a_thick_curve_is_the_mean_over_seeds():
    panel = Figure().subplots()
    lines = [
        {"seed": seed, "agent_steps": step, "score": seed + step}
        for seed in (0, 1)
        for step in (20, 10)
    ]
    similarity._draw_seeds(panel, lines, "score", "#000000", "rcrl")
    thin, other, thick = panel.lines
    assert [*thin.get_ydata()] == [10, 20] and [*other.get_ydata()] == [11, 21]
    assert [*thick.get_xdata()] == [10, 20] and [*thick.get_ydata()] == [10.5, 20.5]


def test_analysis_writes_lines_and_figures(tmp_path, arms):
    directory = tmp_path / "Catch"
    analysis.analyse(arms, directory, num_pairs=PAIRS, num_episodes=4, probe_steps=40)
    assert {path.name for path in directory.iterdir()} == {
        "similarity.jsonl", "similarity.png", "probe.jsonl", "probe.png"
    }  # fmt: skip
    for name in ("similarity.png", "probe.png"):
        assert (directory / name).read_bytes().startswith(b"\x89PNG")
    lines = records.read_records(directory / "similarity.jsonl")
    moments = 1 + STEPS // PERIOD
    assert len(lines) == 2 * len(SEEDS) * (moments + moments - 1)
    held_out = {
        (line["preset"], line["seed"]): line["cosine_negative"]
        for line in lines
        if line["pairs"] == "held_out" and line["agent_steps"] == 0
    }
    # Equal seeds start from equal parameters, and all are measured on the same pairs.
    for seed in SEEDS:
        assert held_out["rcrl", seed] == held_out["erainbow_sa", seed]
    assert held_out["rcrl", 3] != held_out["rcrl", 4]
    for line in lines:
        if line["pairs"] == "replay":
            plan = arms[["erainbow_sa", "rcrl"].index(line["preset"])]
            snapshot = similarity.read_snapshots(plan)[line["agent_steps"] // PERIOD]
            run = SEEDS.index(line["seed"])
            assert line["cosine_positive"] == float(snapshot.replay.positive[run])
    probes = records.read_records(directory / "probe.jsonl")
    assert {(p["preset"], p["seed"], p["agent_steps"]) for p in probes} == {
        (plan.preset, seed, step) for plan in arms for seed in SEEDS for step in (0, STEPS)
    }
    assert all(p["explained_variance"] <= 1 for p in probes)
    nulls = {(p["explained_variance_clock"], p["explained_variance_constant"]) for p in probes}
    assert len(nulls) == 1  # they see no agent
    ((clock, constant),) = nulls
    # Catch pays at the end of a game of fixed length, so the step number tells when, not which.
    assert constant <= 0 and constant < clock < 1
    # Each number is of its own agent.
    values = {(p["preset"], p["seed"], p["agent_steps"]): p["explained_variance"] for p in probes}
    for seed in SEEDS:
        assert values["rcrl", seed, 0] == pytest.approx(values["erainbow_sa", seed, 0], abs=1e-6)
        for plan in arms:
            assert values[plan.preset, seed, 0] != values[plan.preset, seed, STEPS]
            place = ("held_out", plan.preset, seed)
            own = [x for x in lines if (x["pairs"], x["preset"], x["seed"]) == place]
            assert len({x["cosine_negative"] for x in own}) == moments
    assert values["rcrl", 3, 0] != values["rcrl", 4, 0]


def test_the_probe_is_fitted_on_half_of_the_episodes_of_all_agents(tmp_path, arms, monkeypatch):
    drawn, seen = [], []
    draw = draws.draw_steps
    monkeypatch.setattr(
        analysis.draws, "draw_steps", lambda *of: drawn.append((of[0], draw(*of))) or drawn[-1][1]
    )
    monkeypatch.setattr(analysis.probe, "explained_variance", lambda *of: seen.append(of) or 0.5)
    analysis.analyse(arms, tmp_path, num_pairs=PAIRS, num_episodes=4, probe_steps=40)
    ((episodes, steps),) = drawn
    assert len(episodes) == len(arms) * len(SEEDS) * 4
    discount = arms[0].config.discount
    returns = [draws.discounted_returns(episode, discount) for episode in episodes]
    target = np.array([returns[e][t] for e, t in zip(*steps, strict=True)])
    fit = steps.episode % 2 == 0
    for features, fitted, unseen, tested in seen:
        np.testing.assert_array_equal(fitted, target[fit])
        np.testing.assert_array_equal(tested, target[~fit])
        assert (len(features), len(unseen)) == (fit.sum(), (~fit).sum())
    (clock, _, past, _), (constant, *_) = seen[:2]
    np.testing.assert_array_equal(clock[:, 0], steps.time[fit])
    np.testing.assert_array_equal(past[:, 0], steps.time[~fit])
    assert not np.ptp(constant)
