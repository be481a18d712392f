"""The published runs against the published tables: equal where their sources say so, else not."""

import numpy as np
import pytest

from benchmarks.tables import published
from rcrl_jax import reference

# Published runs -> the column of the table that their means give.
_AGREE = {
    "IRIS": "IRIS",
    "SPR [rliable]": "SPR [rliable]",
    "DrQ(eps) [rliable]": "DrQ(eps) [rliable]",
    "SimPLe [per-run]": "SimPLe [per-run]",
    "CURL [rliable, final]": "CURL [rliable, final]",
    "CURL [rliable, max of 10 evals]": "CURL [rliable, max of 10 evals]",
    "TWM": "TWM",
    "DIAMOND": "DIAMOND",
}
_RUNS = {
    "IRIS": 5, "SPR [rliable]": 100, "DrQ(eps) [rliable]": 100, "SimPLe [per-run]": 5,
    "CURL [rliable, final]": 100, "CURL [rliable, max of 10 evals]": 100, "TWM": 5, "DIAMOND": 5,
    "STORM": 5, "REM": 5, "Delta-IRIS [100k]": 5, "DreamerV3 [2023 paper numbers]": 5,
    "DreamerV3 [repo training returns]": 5, "PPO [DreamerV3-repo]": 5, "SPR [JAX re-run]": 49,
    "SPR+resets": 32, "BBF [first 10 of 50 runs]": 10,
}  # fmt: skip


def runs_of(agent):
    own = published.atari_runs().query("agent == @agent").groupby("game").score
    return {game: own.get_group(game).to_numpy() for game in reference.games()}


def differing_games(agent, column, *, tolerance=0.05):
    """Games whose mean over runs is not the printed cell; by default to its one decimal."""
    return {
        game
        for game, scores in runs_of(agent).items()
        if abs(scores.mean() - reference.published(game, column)) > tolerance + 1e-6
    }


def test_every_agent_has_its_number_of_runs_on_every_game():
    frame = published.atari_runs()
    counts = frame.groupby(["agent", "game"]).size()
    assert counts.to_dict() == {
        (agent, game): n for agent, n in _RUNS.items() for game in reference.games()
    }
    assert len(frame) == 14_066 and not frame.duplicated(["agent", "game", "seed"]).any()
    assert np.isfinite(frame.score).all() and frame.source.notna().all()


@pytest.mark.parametrize("agent", _AGREE)
def test_means_over_runs_are_the_printed_cells(agent):
    assert differing_games(agent, _AGREE[agent]) == set()


def test_storm_differs_on_freeway_alone():
    assert differing_games("STORM", "STORM") == {"Freeway"}
    assert runs_of("STORM")["Freeway"].tolist() == [0.0] * 5
    assert reference.published("Freeway", "STORM") == 33.5


def test_dreamers_older_release_differs_on_two_games_and_by_rounding_on_others():
    agent = "DreamerV3 [2023 paper numbers]"
    assert differing_games(agent, "DreamerV3", tolerance=0.5) == {"ChopperCommand", "UpNDown"}
    means = {game: scores.mean() for game, scores in runs_of(agent).items()}
    assert means["ChopperCommand"] == pytest.approx(410, abs=0.5)
    assert means["UpNDown"] == pytest.approx(7567, abs=0.5)
    assert means["Pong"] == pytest.approx(18.4, abs=0.05)  # printed as 18


def test_dreamers_training_returns_are_of_another_version():
    agent = "DreamerV3 [repo training returns]"
    same = set(reference.games()) - differing_games(agent, "DreamerV3", tolerance=1.0)
    assert same == {"Asterix", "Freeway"}
    assert mean_normalised(agent) == pytest.approx(1.18, abs=0.005)
    assert mean_normalised("DreamerV3 [2023 paper numbers]") == pytest.approx(1.12, abs=0.005)


def mean_normalised(agent):
    return np.mean([
        reference.human_normalised(game, scores.mean()) for game, scores in runs_of(agent).items()
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("agent", "mean", "median"),
    [("SPR [JAX re-run]", 0.583, 0.457), ("SPR+resets", 0.911, 0.514)],
)
def test_aggregates_of_the_spr_runs(agent, mean, median):
    normalised = [
        reference.human_normalised(game, scores.mean()) for game, scores in runs_of(agent).items()
    ]
    assert np.mean(normalised) == pytest.approx(mean, abs=5e-4)
    assert np.median(normalised) == pytest.approx(median, abs=5e-4)


def test_ten_runs_of_bbf_lie_within_about_a_deviation_of_its_means():
    # The largest distance is that of DemonAttack, 1.28 deviations of runs.
    for game, scores in runs_of("BBF [first 10 of 50 runs]").items():
        deviation = abs(scores.mean() - reference.published(game, "BBF"))
        assert deviation <= 1.3 * scores.std(ddof=1) + 0.1, game


# DMControl


def control_cells(agent, env_steps):
    """Task -> mean and sample deviation over the runs at their logged step nearest the budget."""
    own = published.dmc_curves().query("agent == @agent")
    own = own.assign(away=abs(own.env_steps - env_steps)).query("away <= 0.05 * @env_steps")
    nearest = own.sort_values("away").groupby(["task", "seed"], as_index=False).first()
    cells = nearest.groupby("task").score.agg(["mean", "std"])
    return {task: tuple(row) for task, row in cells.iterrows()}


def printed(agent, env_steps):
    return {
        row.task: (row.mean, row.std)
        for row in reference.dmc_scores()
        if (row.agent, row.env_steps) == (agent, env_steps)
    }


@pytest.mark.parametrize(
    "agent",
    [
        "DrQ",
        "DrQ-v2",
        "CURL [DreamerV3-repo baseline curves]",
        "Pixel SAC [DreamerV3-repo baseline curves]",
    ],
)
def test_control_runs_give_the_printed_mean_and_deviation_at_500k(agent):
    own, table = control_cells(agent, 500_000), printed(agent, 500_000)
    assert own.keys() == table.keys() == set(reference.tasks())
    for task, (mean, std) in own.items():
        assert table[task] == (pytest.approx(mean, abs=0.5), pytest.approx(std, abs=0.5)), task


def test_slac_agrees_with_rliable_where_the_decoder_is_the_same():
    own = control_cells("SLAC [decoder var 0.1]", 500_000)
    table = printed("SLAC [rliable run data]", 500_000)
    agreeing = {task for task in own if own[task][0] == pytest.approx(table[task][0], abs=0.6)}
    assert agreeing == {"finger_spin", "cartpole_swingup", "cheetah_run"}


def test_points_of_curves_are_complete():
    frame = published.dmc_curves()
    assert len(frame) == 16_829 and np.isfinite(frame.score).all()
    assert not frame.duplicated(["agent", "task", "env_steps", "seed"]).any()
    seeds = frame.groupby(["agent", "task"]).seed.nunique()
    assert seeds["DrQ-v2"].to_dict() | {"finger_spin": 9, "ball_in_cup_catch": 8} == dict.fromkeys(
        reference.tasks(), 10
    ) | {"finger_spin": 9, "ball_in_cup_catch": 8}
    assert seeds.index.unique("agent").size == 9
    assert "ball_in_cup_catch" not in seeds["DrQ [jaxrl re-run]"]


# Notes


def test_every_agent_of_every_table_has_one_short_note():
    notes = published.notes()
    atari = {row.agent for row in reference.atari100k_scores()} | {*published.atari_runs().agent}
    dmc = {row.agent for row in reference.dmc_scores()} | {*published.dmc_curves().agent}
    named = {("atari", agent) for agent in atari} | {("dmc", agent) for agent in dmc}
    assert {*zip(notes.benchmark, notes.agent, strict=True)} == named and len(notes) == len(named)
    assert all(0 < len(note) <= 100 and note.isprintable() for note in notes.note)


def test_a_note_is_found_by_benchmark_and_agent():
    assert published.note("atari", "CURL") != published.note("dmc", "CURL")
    assert "best of 10" in published.note("atari", "CURL [rliable, max of 10 evals]")
    with pytest.raises(LookupError, match="agent 'RCRL' on benchmark 'dmc'"):
        published.note("dmc", "RCRL")


def test_the_short_table_repeats_the_long_one_at_100k():
    frame = published.atari_budgets()
    assert len(frame) == 20 and not frame.duplicated(["game", "agent", "env_interactions"]).any()
    at_100k = frame.query("env_interactions == 100_000")
    assert len(at_100k) == 10
    for row in at_100k.itertuples():
        assert row.score == reference.published(row.game, row.agent)


def test_curl_seeds_average_to_curls_column():
    means = published.curl_seeds().groupby("game").score.agg(["size", "mean"])
    assert set(means["size"]) == {20}
    for game in reference.games():
        # The seeds are printed with fewer digits than the mean.
        assert means["mean"][game] == pytest.approx(
            reference.published(game, "CURL"), rel=2e-4, abs=0.06
        )
