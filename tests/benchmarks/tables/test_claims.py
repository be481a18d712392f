"""Verdicts on runs whose effect is known: clear, reversed, absent, too few, pre-registered."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.tables import claims, published, registered, runs
from benchmarks.tables.claims import CONTRADICTED, SUPPORTED, UNDECIDED
from rcrl_jax import reference
from tests.benchmarks.tables.synthetic import ACTION_REPEAT, score_at, write_run

STEPS = 500
GAMES = tuple(game for game in reference.games() if game not in registered.GAMES)
FREE_GAMES = GAMES[:4]
"""Outside the pre-registered list."""


def claim_of(name, steps=STEPS):
    (found,) = [c for c in (*claims.ATARI_CLAIMS, *claims.DMC_CLAIMS) if c.name == name]
    return found._replace(env_steps=steps)


def finish(root, preset, level, *, games=FREE_GAMES, seeds=range(4), steps=STEPS, **run):
    """Finishes runs around a human-normalised `level`; noise depends on arm, game and seed."""
    for game in games:
        for seed in seeds:
            noise = np.random.default_rng([*f"{preset} {game}".encode(), seed]).normal(0, 0.02)
            score = score_at(game, level + noise)
            write_run(root, preset, game, seed, score, steps=steps, **run)


def judge(root, claim, **settings):
    return claims.judge(claim, runs.read(root).frame, **settings)


@pytest.mark.parametrize(
    "first, second, state", [(0.5, 0.2, SUPPORTED), (0.2, 0.5, CONTRADICTED), (0.3, 0.3, UNDECIDED)]
)
def test_the_state_follows_the_effect(tmp_path, first, second, state):
    for preset, level in (("rcrl", first), ("curl", second)):
        finish(tmp_path, preset, level, games=reference.games(), seeds=range(5))
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert verdict.state == state and (verdict.games, verdict.pairs) == (26, 130)
    assert "steps: 130 pairs of runs on 26 of 26 games." in verdict.sentence
    assert (verdict.evidence.p_value <= claims.LEVEL) == (state != UNDECIDED)
    # A claim is judged once: neither more seeds nor other ones change the verdict.
    finish(tmp_path, "rcrl", 5.0, seeds=range(5, 8))
    finish(tmp_path, "curl", 0.0, seeds=range(5, 8))
    assert judge(tmp_path, claim_of("rcrl > curl")) == verdict


def test_before_its_last_pair_a_claim_is_undecided_and_has_no_p_value(tmp_path):
    finish(tmp_path, "rcrl", 0.9, games=reference.games(), seeds=range(5))
    finish(tmp_path, "curl", 0.1, games=reference.games(), seeds=range(4))
    finish(tmp_path, "curl", 0.1, games=reference.games()[1:], seeds=[4])
    # Another seed does not stand for the missing one.
    for preset, level in (("rcrl", 0.9), ("curl", 0.1)):
        finish(tmp_path, preset, level, games=reference.games()[:1], seeds=[5, 6])
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert (verdict.state, verdict.pairs, verdict.evidence.p_value) == (UNDECIDED, 129, None)
    assert "judged once seeds 0 to 4 of all 26 games" in verdict.sentence


def test_equal_arms_are_decided_in_at_most_five_percent_of_looks(monkeypatch):
    """Before and after the deciding pair; equal arms, scores drawn from CURL's published seeds."""
    table = published.curl_seeds()
    tasks = reference.tasks()
    population = [table.score[table.game == game].to_numpy() for game in GAMES[:6]]
    monkeypatch.setattr(claims, "_RESAMPLES", 200)
    monkeypatch.setattr(claims, "_PERMUTATIONS", 999)
    claim, rng, decided = claim_of("rcrl_sac > curl_sac"), np.random.default_rng(0), 0
    for _ in range(100):
        states = set()
        scores = [rng.choice(own, (2, 8)) for own in population]
        for pairs in (4, 5, 8):
            rows = [
                {"arm": arm, "game": task, "seed": seed, "score": own[side, seed]}
                for task, own in zip(tasks, scores, strict=True)
                for side, arm in enumerate((claim.first, claim.second))
                for seed in range(pairs)
            ]
            frame = pd.DataFrame(rows).assign(family="dmc", env_steps=STEPS, pool=0, algorithm=2)
            states.add(claims.judge(claim, frame).state)
        decided += states != {UNDECIDED}
    assert decided <= 5


def test_the_estimates_are_those_of_the_scores(tmp_path):
    """Two games, three seeds: 6 of the 9 comparisons of each game are won."""
    for game in ("Alien", "Amidar"):
        for preset, levels in (("rcrl", (0.6, 0.4, 0.2)), ("curl", (0.5, 0.3, 0.1))):
            for seed, level in enumerate(levels):
                write_run(tmp_path, preset, game, seed, score_at(game, level), steps=STEPS)
    evidence = judge(tmp_path, claim_of("rcrl > curl")).evidence
    assert evidence.improvement.estimate == pytest.approx(6 / 9)
    # The middle four of each arm's six average 0.4 and 0.3.
    assert evidence.difference.estimate == pytest.approx(0.1)


def test_intervals_are_paired_by_seed():
    """Seeds differ much, arms by a little on every seed: only pairing sees the difference."""
    second = [np.array([0.1, 0.5, 0.9, 1.3])] * 3
    first = [game + 0.01 for game in second]
    evidence = claims.compare(first, second)
    assert evidence.difference.low == pytest.approx(0.01)
    assert evidence.difference.high == pytest.approx(0.01)


def test_two_separated_pairs_of_one_game_decide_nothing():
    """The intervals exclude no effect; the rank test, whose level holds, cannot reach 5 %."""
    evidence = claims.compare([np.array([0.5, 0.6])], [np.array([0.1, 0.2])])
    assert evidence.improvement.low == 1.0 and evidence.difference.low > 0
    assert claims.decide(claim_of("rcrl > curl"), evidence) == UNDECIDED


def test_two_pairs_a_game_claim_no_interval(tmp_path):
    finish(tmp_path, "rcrl", 0.9)
    finish(tmp_path, "curl", 0.1, seeds=range(2))
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert (verdict.state, verdict.pairs, verdict.evidence) == (UNDECIDED, 8, None)
    assert "There is no interval" in verdict.sentence and "[" not in verdict.sentence
    finish(tmp_path, "curl", 0.1, seeds=[2])
    assert judge(tmp_path, claim_of("rcrl > curl")).evidence is not None


def test_the_larger_set_of_equal_conditions_counts(tmp_path):
    for root, seeds, algorithm in (("a", range(3), 1), ("b", range(3, 5), 2)):
        for preset, level in (("rcrl", 0.5), ("curl", 0.2)):
            finish(tmp_path / root, preset, level, seeds=seeds, algorithm=algorithm)
    claim = claim_of("rcrl > curl")
    assert judge(tmp_path, claim).pairs == 3 * len(FREE_GAMES)
    assert "Not counted, under other conditions: 8 pairs." in judge(tmp_path, claim).sentence


def test_runs_that_change_the_same_fields_are_pairs(tmp_path):
    """More of them than of the presets themselves; a field that one arm changes makes no pair."""
    finish(tmp_path, "rcrl", 0.5, seeds=[0])
    finish(tmp_path, "curl", 0.2, seeds=[0])
    for preset, level in (("rcrl", 0.2), ("curl", 0.5)):
        finish(tmp_path / "a", preset, level, seeds=range(3), changes={"n_step": 5})
    finish(tmp_path / "b", "rcrl", 0.9, seeds=range(4), changes={"n_step": 3})
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert verdict.pairs == 3 * len(FREE_GAMES) and verdict.evidence.difference.estimate < 0
    assert verdict.sentence.startswith("rcrl > curl with n_step=5 after 500 environment steps")
    for preset, level in (("rcrl", 0.5), ("curl", 0.2)):
        finish(tmp_path / "c", preset, level, seeds=[1, 2])
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert verdict.pairs == 3 * len(FREE_GAMES) and verdict.evidence.difference.estimate > 0


@pytest.mark.parametrize("shift, state", [(0.0, SUPPORTED), (0.5, CONTRADICTED), (0.02, UNDECIDED)])
def test_equality_needs_intervals_within_the_margin(shift, state):
    """Scores of a game are equally spaced; the second arm's are the first's in another order."""
    scores = np.linspace(0.2, 0.3, 12)
    first = [scores + shift] * 26
    second = [np.roll(scores, game) for game in range(26)]
    evidence = claims.compare(first, second)
    assert claims.decide(claim_of("erainbow_sa = erainbow"), evidence) == state


def test_dmcontrol_is_judged_on_returns(tmp_path):
    for task in reference.tasks():
        for seed in range(5):
            for preset, score in (("rcrl_sac", 800.0), ("sac_aug", 600.0)):
                steps = 800 // ACTION_REPEAT.get(task, 1)
                write_run(tmp_path, preset, task, seed, score + seed, steps=steps)
    verdict = judge(tmp_path, claim_of("rcrl_sac > sac_aug", 800))
    assert verdict.state == SUPPORTED
    assert verdict.evidence.difference.estimate == pytest.approx(0.2)


class TestPreRegisteredClaim:
    CLAIM = claims.ATARI_CLAIMS[0]

    def finish_list(self, root, presets=("rcrl", "erainbow_sa")):
        for preset in presets:
            finish(
                root, preset, 0.9 if preset == "rcrl" else 0.1, steps=100_000,
                games=registered.GAMES, seeds=registered.SEEDS,
            )  # fmt: skip

    def test_it_is_never_decided_here_and_has_no_p_value(self, tmp_path):
        self.finish_list(tmp_path)
        for preset, level in (("rcrl", 0.9), ("erainbow_sa", 0.1)):
            finish(tmp_path, preset, level, steps=100_000)
        verdict = judge(tmp_path, self.CLAIM)
        assert verdict.state == UNDECIDED and verdict.evidence.p_value is None
        assert verdict.games == len(FREE_GAMES)  # none of the list
        assert "36 of the 36 pairs" in verdict.sentence and "Exploratory" in verdict.sentence
        assert "`python -m benchmarks.claim" in verdict.sentence

    def test_runs_of_the_unfinished_list_count_in_no_verdict(self, tmp_path):
        self.finish_list(tmp_path, presets=("rcrl",))
        for games in (FREE_GAMES, registered.GAMES):
            finish(tmp_path, "curl", 0.1, games=games, steps=100_000)
        finish(tmp_path, "rcrl", 0.9, steps=100_000)
        verdict = judge(tmp_path, claim_of("rcrl > curl", 100_000))
        assert verdict.games == len(FREE_GAMES) and "set aside" in verdict.sentence
        self.finish_list(tmp_path / "rest", presets=("erainbow_sa",))
        verdict = judge(tmp_path, claim_of("rcrl > curl", 100_000))
        assert verdict.games == 8 and "set aside" not in verdict.sentence

    def test_the_larger_experiment_is_not_looked_at(self, tmp_path):
        for preset, level in (("rcrl", 0.9), ("erainbow_sa", 0.1)):
            finish(tmp_path, preset, level, steps=100_000, seeds=range(97, 105))
        verdict = judge(tmp_path, self.CLAIM)
        assert verdict.pairs == 3 * len(FREE_GAMES)  # seeds 97 to 99
        assert "larger pre-registered experiment are set aside" in verdict.sentence

    def test_another_budget_is_another_claim(self):
        assert self.CLAIM.is_preregistered and not claims.BUDGET_CLAIMS[0].is_preregistered
        assert claims.BUDGET_CLAIMS[0]._replace(env_steps=100_000).is_preregistered


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
    table = claims.to_table(judged)
    assert [row.label for row in table.rows] == [
        "rcrl > curl, 500: undecided", "curl > erainbow, 500: undecided"
    ]  # fmt: skip
    assert [cell.value for cell in table.rows[0].cells][-3:] == [None, 4, 16]
    assert [cell.value for cell in table.rows[1].cells] == [None] * 7 + [0, 0]
