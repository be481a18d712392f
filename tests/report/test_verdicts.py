"""Verdicts on runs whose effect is known: clear, reversed, absent, too few, pre-registered."""

import numpy as np
import pytest

from benchmarks import claim as preregistered
from rcrl_jax import reference, statistics
from rcrl_jax.report import claims, verdicts
from rcrl_jax.report.verdicts import CONTRADICTED, SUPPORTED, UNDECIDED
from rcrl_jax.results import store
from tests.results.synthetic import write_run

STEPS = 500
FREE_GAMES = ("Alien", "Amidar", "Assault", "BankHeist")
"""Outside the pre-registered list."""


def claim_of(name, steps=STEPS):
    (found,) = [c for c in (*claims.ATARI_CLAIMS, *claims.DMC_CLAIMS) if c.name == name]
    return found._replace(env_steps=steps)


def finish(root, preset, level, *, games=FREE_GAMES, seeds=range(4), steps=STEPS, **run):
    """Finishes runs around a human-normalised `level`; noise depends on arm, game and seed."""
    for game in games:
        random, human = (reference.published(game, name) for name in ("Random", "Human"))
        for seed in seeds:
            noise = np.random.default_rng([*f"{preset} {game}".encode(), seed]).normal(0, 0.02)
            score = random + (level + noise) * (human - random)
            write_run(root, preset, game, seed, float(score), steps=steps, **run)


def judge(root, claim, **settings):
    return verdicts.judge(claim, store.read_runs(root).runs, **settings)


@pytest.mark.parametrize(
    "first, second, state", [(0.5, 0.2, SUPPORTED), (0.2, 0.5, CONTRADICTED), (0.3, 0.3, UNDECIDED)]
)
def test_the_state_follows_the_effect(tmp_path, first, second, state):
    finish(tmp_path, "rcrl", first)
    finish(tmp_path, "curl", second)
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert verdict.state == state and (verdict.games, verdict.pairs, verdict.fewest) == (4, 16, 4)
    assert state in verdict.sentence and "16 pairs of runs on 4 of 26 games" in verdict.sentence
    assert "intervals are too narrow" in verdict.sentence  # fewer than 10 pairs a game
    assert (verdict.more_seeds is None) == (state != UNDECIDED)


def test_the_estimates_are_those_of_the_scores(tmp_path):
    """Two games, two seeds: 3 of the 4 comparisons of each game are won."""
    for game in ("Alien", "Amidar"):
        random, human = (reference.published(game, name) for name in ("Random", "Human"))
        for preset, levels in (("rcrl", (0.4, 0.2)), ("curl", (0.3, 0.1))):
            for seed, level in enumerate(levels):
                score = random + level * (human - random)
                write_run(tmp_path, preset, game, seed, score, steps=STEPS)
    evidence = judge(tmp_path, claim_of("rcrl > curl")).evidence
    assert evidence.improvement.estimate == pytest.approx(0.75)
    # The middle two of 0.4, 0.4, 0.2, 0.2 average 0.3; of the other arm 0.2.
    assert evidence.difference.estimate == pytest.approx(0.1)


def test_intervals_are_paired_by_seed():
    """Seeds differ much, arms by a little on every seed: only pairing sees the difference."""
    second = [np.array([0.1, 0.5, 0.9, 1.3])] * 3
    first = [game + 0.01 for game in second]
    evidence = verdicts.compare(first, second)
    assert evidence.difference.low == pytest.approx(0.01)
    assert evidence.difference.high == pytest.approx(0.01)


def test_two_separated_pairs_of_one_game_decide_nothing():
    """The intervals exclude no effect; the rank test, whose level holds, cannot reach 5 %."""
    evidence = verdicts.compare([np.array([0.5, 0.6])], [np.array([0.1, 0.2])])
    assert evidence.improvement.low == 1.0 and evidence.difference.low > 0
    assert verdicts.decide(claim_of("rcrl > curl"), evidence, 2) == UNDECIDED


def test_one_pair_a_game_claims_no_interval(tmp_path):
    finish(tmp_path, "rcrl", 0.9)
    finish(tmp_path, "curl", 0.1, seeds=[0])
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert (verdict.state, verdict.pairs, verdict.evidence) == (UNDECIDED, 4, None)
    assert "one pair allows no interval" in verdict.sentence and "[" not in verdict.sentence


def test_no_pair_is_said(tmp_path):
    finish(tmp_path, "rcrl", 0.9, seeds=[0])
    finish(tmp_path, "curl", 0.1, seeds=[1])
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert (verdict.state, verdict.pairs) == (UNDECIDED, 0)
    assert "no game and seed is finished under both" in verdict.sentence


def test_the_larger_set_of_equal_conditions_counts(tmp_path):
    for root, seeds, algorithm in (("a", range(3), 1), ("b", range(3, 5), 2)):
        for preset, level in (("rcrl", 0.5), ("curl", 0.2)):
            finish(tmp_path / root, preset, level, seeds=seeds, algorithm=algorithm)
    claim = claim_of("rcrl > curl")
    assert judge(tmp_path, claim).pairs == 3 * len(FREE_GAMES)
    assert "Under other conditions there are 8 pairs more" in judge(tmp_path, claim).sentence
    mixed = judge(tmp_path, claim, mixed=True)
    assert mixed.pairs == 5 * len(FREE_GAMES) and "other conditions" not in mixed.sentence


@pytest.mark.parametrize(
    "shift, pairs, state",
    [(0.0, 12, SUPPORTED), (0.0, 6, UNDECIDED), (0.5, 12, CONTRADICTED), (0.02, 12, UNDECIDED)],
)
def test_equality_needs_intervals_within_the_margin_and_enough_pairs(shift, pairs, state):
    """Scores of a game are equally spaced; the second arm's are the first's in another order."""
    scores = np.linspace(0.2, 0.3, pairs)
    first = [scores + shift] * 26
    second = [np.roll(scores, game) for game in range(26)]
    evidence = verdicts.compare(first, second)
    assert verdicts.decide(claim_of("erainbow_sa = erainbow"), evidence, pairs) == state


@pytest.mark.parametrize("pairs", [2, 9, 10, 15])
def test_an_undecided_claim_of_equality_asks_for_at_least_one_more_seed(tmp_path, pairs):
    finish(tmp_path, "erainbow_sa", 0.32, seeds=range(pairs))
    finish(tmp_path, "erainbow", 0.3, seeds=range(pairs))
    verdict = judge(tmp_path, claim_of("erainbow_sa = erainbow"))
    assert verdict.state == UNDECIDED
    assert verdict.more_seeds[0] >= max(1, verdicts.ENOUGH_PAIRS - pairs)


def test_dmcontrol_is_judged_on_returns(tmp_path):
    for task in ("cartpole_swingup", "cheetah_run"):
        for seed in range(5):
            steps = 400 if task == "cartpole_swingup" else 800  # 3,200 environment steps
            write_run(tmp_path, "rcrl_sac", task, seed, 800.0 + seed, steps=steps)
            write_run(tmp_path, "curl_sac", task, seed, 600.0 + seed, steps=steps)
    verdict = judge(tmp_path, claim_of("rcrl_sac > curl_sac", 3200))
    assert verdict.state == SUPPORTED
    assert verdict.evidence.difference.estimate == pytest.approx(0.2)
    assert "2 of 6 games" in verdict.sentence


@pytest.mark.parametrize("effect", [0.3, 0.0])
def test_further_seeds_are_those_of_the_rank_test(tmp_path, effect):
    """With an interval that holds 0.5, the number comes from the estimate and is called rough."""
    rng = np.random.default_rng(3)
    for game in FREE_GAMES:
        for seed in range(3):
            for preset, lift in (("rcrl", effect), ("curl", 0.0)):
                score = float(100 * (rng.normal() + lift))
                write_run(tmp_path, preset, game, seed, score, steps=STEPS)
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    improvement = verdict.evidence.improvement
    assert verdict.state == UNDECIDED and improvement.low < 0.5 < improvement.high
    needed = statistics.seeds_to_decide(improvement.estimate, len(FREE_GAMES))
    assert verdict.more_seeds == (needed - 3, needed - 3) and "(rough)" in verdict.sentence


def test_without_any_effect_no_number_of_seeds_is_named(tmp_path):
    for seed in range(3):
        for preset in ("rcrl", "curl"):
            write_run(tmp_path, preset, "Alien", seed, 300.0, steps=STEPS)
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert (verdict.state, verdict.more_seeds) == (UNDECIDED, None)
    assert "cannot be estimated" in verdict.sentence


class TestPreRegisteredClaim:
    CLAIM = claims.ATARI_CLAIMS[0]

    def finish_list(self, root, presets=("rcrl", "erainbow_sa")):
        for preset in presets:
            finish(
                root, preset, 0.9 if preset == "rcrl" else 0.1, steps=100_000,
                games=claims.PREREGISTERED_GAMES, seeds=claims.PREREGISTERED_SEEDS,
            )  # fmt: skip

    def test_the_list_is_that_of_its_command(self):
        assert {self.CLAIM.first, self.CLAIM.second} == set(preregistered.PRESETS)
        assert self.CLAIM.env_steps == preregistered.AGENT_STEPS

    def test_it_is_never_decided_here_and_has_no_p_value(self, tmp_path):
        self.finish_list(tmp_path)
        for preset, level in (("rcrl", 0.9), ("erainbow_sa", 0.1)):
            finish(tmp_path, preset, level, steps=100_000)
        verdict = judge(tmp_path, self.CLAIM)
        assert verdict.state == UNDECIDED and verdict.evidence.p_value is None
        assert verdict.games == len(FREE_GAMES)  # none of the list
        assert "benchmarks.claim" in verdict.sentence and "Exploratory" in verdict.sentence
        assert verdict.more_seeds is None

    def test_runs_of_the_unfinished_list_count_in_no_verdict(self, tmp_path):
        self.finish_list(tmp_path, presets=("rcrl",))
        for games in (FREE_GAMES, claims.PREREGISTERED_GAMES):
            finish(tmp_path, "curl", 0.1, games=games, steps=100_000)
        finish(tmp_path, "rcrl", 0.9, steps=100_000)
        verdict = judge(tmp_path, claim_of("rcrl > curl", 100_000))
        assert verdict.games == len(FREE_GAMES) and "set aside" in verdict.sentence
        self.finish_list(tmp_path / "rest", presets=("erainbow_sa",))
        verdict = judge(tmp_path, claim_of("rcrl > curl", 100_000))
        assert verdict.games == 8 and "set aside" not in verdict.sentence

    def test_another_budget_is_another_claim(self):
        assert self.CLAIM.decided_by and not claims.BUDGET_CLAIMS[0].decided_by
        assert claims.BUDGET_CLAIMS[0]._replace(env_steps=100_000).decided_by


def test_published_figures_of_each_claim():
    """Counts of games as in the published table; interquartile means of game means."""
    published = {claim.name: claims.published(claim) for claim in claims.ATARI_CLAIMS}
    counts = {
        "rcrl > erainbow_sa": "higher in 21 and lower in 5",
        "rcrl_curl > rcrl": "higher in 13 and lower in 13",
        "curl > erainbow": "higher in 18 and lower in 8",
        "rcrl > curl": "higher in 12 and lower in 14",
        "rcrl_curl > curl": "higher in 11 and lower in 15",
        "erainbow_sa = erainbow": "higher in 17 and lower in 9",
    }
    assert {name: count in published[name] for name, count in counts.items()} == {
        name: True for name in published
    }
    assert "20.3 % against 19.9 %" in published["rcrl > erainbow_sa"]
    assert "higher in 4 and lower in 1 of 5" in claims.published(claims.BUDGET_CLAIMS[0])
    assert claims.published(claims.DMC_CLAIMS[0]) == "The paper prints curves and no figures."


def test_the_table_of_verdicts_has_a_row_a_claim(tmp_path):
    finish(tmp_path, "rcrl", 0.5)
    finish(tmp_path, "curl", 0.2)
    judged = [judge(tmp_path, claim_of(name)) for name in ("rcrl > curl", "curl > erainbow")]
    table = verdicts.to_table(judged)
    assert [row.label for row in table.rows] == [
        "rcrl > curl, 500: supported", "curl > erainbow, 500: undecided"
    ]  # fmt: skip
    assert [cell.value for cell in table.rows[0].cells][-2:] == [4, 16]
    assert [cell.value for cell in table.rows[1].cells] == [None] * 7 + [0, 0]
