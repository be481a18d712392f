"""The published runs against the published tables: equal where their sources say so, else not."""

import numpy as np
import pytest

from rcrl_jax import reference
from rcrl_jax.tables import published

# Published runs whose means are the column of the same name.
_AGREE = (
    "IRIS", "SPR [rliable]", "DrQ(eps) [rliable]", "SimPLe [per-run]", "CURL [rliable, final]",
    "CURL [rliable, max of 10 evals]", "TWM", "DIAMOND",
)  # fmt: skip
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
    for game, scores in runs_of(agent).items():
        printed = reference.published(game, agent)  # with one decimal
        assert scores.mean() == pytest.approx(printed, abs=0.05 + 1e-6), game


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


def test_the_short_table_repeats_the_long_one_at_100k():
    frame = published.atari_budgets()
    assert len(frame) == 20 and not frame.duplicated(["game", "agent", "env_interactions"]).any()
    at_100k = frame.query("env_interactions == 100_000")
    assert len(at_100k) == 10
    for row in at_100k.itertuples():
        assert row.score == reference.published(row.game, row.agent)
