"""The published runs against the published tables: equal where their sources say so, else not."""

import collections
import gzip

import numpy as np
import pytest

from rcrl_jax import reference
from rcrl_jax.reference import seeds, tables

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
    scores = collections.defaultdict(list)
    for row in reference.atari100k_runs():
        if row.agent == agent:
            scores[row.game].append(row.score)
    return {game: np.array(scores[game]) for game in reference.games()}


def differing_games(agent, column, *, tolerance=0.05):
    """Games whose mean over runs is not the printed cell; by default to its one decimal."""
    return {
        game
        for game, scores in runs_of(agent).items()
        if abs(scores.mean() - reference.published(game, column)) > tolerance + 1e-6
    }


def test_every_agent_has_its_number_of_runs_on_every_game():
    cells = collections.Counter((row.agent, row.game) for row in reference.atari100k_runs())
    assert cells == {(agent, game): n for agent, n in _RUNS.items() for game in reference.games()}
    labels = {(row.agent, row.game, row.seed) for row in reference.atari100k_runs()}
    assert len(labels) == len(reference.atari100k_runs()) == 14_066
    assert all(np.isfinite(row.score) and row.source for row in reference.atari100k_runs())


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
    """Task -> mean and sample deviation over the runs at the budget."""
    cells = {}
    for task in reference.tasks():
        scores = [
            row.score
            for row in reference.dmc_runs()
            if (row.agent, row.task) == (agent, task) and near(row.env_steps, env_steps)
        ]
        if scores:
            cells[task] = np.mean(scores), np.std(scores, ddof=1)
    return cells


def near(env_steps, budget):
    return abs(env_steps - budget) <= 0.05 * budget


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


def test_control_runs_are_counted_and_lie_near_their_budget():
    cells = collections.Counter()
    for row in reference.dmc_runs():
        budget = 100_000 if row.env_steps < 300_000 else 500_000
        assert near(row.env_steps, budget), row
        cells[row.agent, row.task, budget] += 1
    assert sum(cells.values()) == 924
    assert len({agent for agent, _, _ in cells}) == 9
    assert cells["DrQ-v2", "finger_spin", 500_000] == 9
    assert cells["DrQ-v2", "ball_in_cup_catch", 500_000] == 8
    assert cells["DrQ [jaxrl re-run]", "ball_in_cup_catch", 500_000] == 0
    assert cells["DrQ [jaxrl re-run]", "cartpole_swingup", 100_000] == 0


def test_curves_pass_through_the_scores_of_their_runs():
    curves = {(p.agent, p.task, p.env_steps, p.seed): p.score for p in reference.dmc_curves()}
    assert len(curves) == len(reference.dmc_curves()) == 16_829
    for row in reference.dmc_runs():
        assert curves[row.agent, row.task, row.env_steps, row.seed] == row.score
    assert {agent for agent, *_ in curves} == {row.agent for row in reference.dmc_runs()}


# Notes


def test_every_agent_of_every_table_has_one_short_note():
    notes = reference.protocol_notes()
    atari = {row.agent for rows in (reference.atari100k_scores(), reference.atari100k_runs())
             for row in rows}  # fmt: skip
    dmc = {row.agent for rows in (reference.dmc_scores(), reference.dmc_runs()) for row in rows}
    named = {("atari", agent) for agent in atari} | {("dmc", agent) for agent in dmc}
    assert {(note.benchmark, note.agent) for note in notes} == named
    assert len(notes) == len(named)
    assert all(0 < len(note.note) <= 100 and note.note.isprintable() for note in notes)


def test_a_note_is_found_by_benchmark_and_agent():
    assert reference.protocol_note("atari", "CURL") != reference.protocol_note("dmc", "CURL")
    assert "best of 10" in reference.protocol_note("atari", "CURL [rliable, max of 10 evals]")
    with pytest.raises(LookupError, match="agent 'RCRL' on benchmark 'dmc'"):
        reference.protocol_note("dmc", "RCRL")


def test_a_compressed_table_is_read_like_a_plain_one(tmp_path):
    text = "benchmark,agent,note\natari,A,one\n"
    (tmp_path / "t.csv").write_text(text)
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("t.csv", "t.csv.gz"):
        rows = tables.read_file(tmp_path / name, seeds.ProtocolNote)
        assert rows == (seeds.ProtocolNote("atari", "A", "one"),)
