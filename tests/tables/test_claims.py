"""Verdicts on runs whose effect is known: clear, reversed, absent, too few, pre-registered."""

import numpy as np
import pandas as pd
import pytest

from rcrl_jax import reference
from rcrl_jax.programs import compare
from rcrl_jax.tables import claims, pools, published, registered, runs
from rcrl_jax.tables.claims import CONTRADICTED, SUPPORTED, UNDECIDED
from rcrl_jax.tables.statistics import Interval
from tests.tables.synthetic import ACTION_REPEAT, score_at, write_run

STEPS = 500
GAMES = tuple(game for game in reference.games() if game not in registered.CLAIM.games)
FREE_GAMES = GAMES[:4]
"""Outside the pre-registered list."""


def claim_of(name, steps=STEPS):
    (found,) = [c for c in (*claims.ATARI_CLAIMS, *claims.DMC_CLAIMS) if c.name == name]
    return found._replace(env_steps=steps)


def finished(preset, level, *, games=FREE_GAMES, seeds=range(4)) -> list[tuple]:
    """Arm, game, seed and score of runs around a human-normalised `level`; noise is their own."""
    found = []
    for game in games:
        for seed in seeds:
            noise = np.random.default_rng([*f"{preset} {game}".encode(), seed]).normal(0, 0.02)
            found.append((preset, game, seed, score_at(game, level + noise)))
    return found


def write(root, rows, **run):
    """Writes such runs."""
    for preset, game, seed, score in rows:
        write_run(root, preset, game, seed, score, steps=STEPS, **run)


def frame_of(rows, steps=STEPS, family="atari") -> pd.DataFrame:
    """Such runs under equal conditions as if they had been read."""
    frame = pd.DataFrame(rows, columns=["arm", "game", "seed", "score"])
    return frame.assign(settings=frame.arm, family=family, env_steps=steps, pool=0, algorithm=2)


def judge(root, claim):
    return claims.judge(claim, runs.read(root).frame)


@pytest.mark.parametrize(
    "first, second, state", [(0.5, 0.2, SUPPORTED), (0.2, 0.5, CONTRADICTED), (0.3, 0.3, UNDECIDED)]
)
def test_the_state_follows_the_effect(first, second, state):
    every = {"games": reference.games(), "seeds": range(5)}
    rows = finished("rcrl", first, **every) + finished("curl", second, **every)
    verdict = claims.judge(claim_of("rcrl > curl"), frame_of(rows))
    assert verdict.state == state and (verdict.games, verdict.pairs) == (26, 130)
    assert "steps: 130 pairs of runs on 26 of 26 games." in verdict.sentence
    assert (verdict.evidence.p_value <= claims.LEVEL) == (state != UNDECIDED)
    # A claim is judged once: neither more seeds nor other ones change the verdict.
    rows += finished("rcrl", 5.0, seeds=range(5, 8)) + finished("curl", 0.0, seeds=range(5, 8))
    assert claims.judge(claim_of("rcrl > curl"), frame_of(rows)) == verdict


def test_games_outside_a_claim_choose_no_runs():
    claim = claims.BUDGET_CLAIMS[0]

    def rows(**which):
        return finished("rcrl", 0.5, **which) + finished("erainbow_sa", 0.2, **which)

    own = frame_of(rows(games=claims.games(claim), seeds=range(5)), claim.env_steps)
    verdict = claims.judge(claim, own)
    assert verdict.state == SUPPORTED
    others = [game for game in reference.games() if game not in claims.games(claim)]
    newer = frame_of(rows(games=others, seeds=range(5)), claim.env_steps).assign(pool=1)
    assert claims.judge(claim, pd.concat([own, newer], ignore_index=True)) == verdict


def test_before_its_last_pair_a_claim_is_undecided_and_has_no_p_value():
    games = reference.games()
    rows = finished("rcrl", 0.9, games=games, seeds=range(5))
    rows += finished("curl", 0.1, games=games, seeds=range(4))
    rows += finished("curl", 0.1, games=games[1:], seeds=[4])
    # Another seed does not stand for the missing one.
    for preset, level in (("rcrl", 0.9), ("curl", 0.1)):
        rows += finished(preset, level, games=games[:1], seeds=[5, 6])
    verdict = claims.judge(claim_of("rcrl > curl"), frame_of(rows))
    assert (verdict.state, verdict.pairs, verdict.evidence.p_value) == (UNDECIDED, 129, None)
    assert "judged once seeds 0 to 4 of all 26 games" in verdict.sentence


def test_equal_arms_are_decided_in_at_most_five_percent_of_looks(monkeypatch):
    """Before and after the deciding pair; equal arms, scores drawn from published runs of CURL."""
    tasks = reference.tasks()
    population = [published.curl_runs()[game] for game in GAMES[:6]]
    monkeypatch.setattr(claims, "_RESAMPLES", 200)
    monkeypatch.setattr(claims, "_PERMUTATIONS", 999)
    claim, rng, decided = claim_of("rcrl_sac > curl_sac"), np.random.default_rng(0), 0
    for _ in range(100):
        states = set()
        scores = [rng.choice(own, (2, 8)) for own in population]
        for pairs in (4, 5, 8):
            rows = [
                (arm, task, seed, own[side, seed])
                for task, own in zip(tasks, scores, strict=True)
                for side, arm in enumerate((claim.first, claim.second))
                for seed in range(pairs)
            ]
            states.add(claims.judge(claim, frame_of(rows, family="dmc")).state)
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


def test_the_level_is_shared_by_the_eight_claims_that_are_judged_here():
    assert claims.LEVEL == 0.05 / 8


def test_two_pairs_a_game_claim_no_interval():
    rows = finished("rcrl", 0.9) + finished("curl", 0.1, seeds=range(2))
    verdict = claims.judge(claim_of("rcrl > curl"), frame_of(rows))
    assert (verdict.state, verdict.pairs, verdict.evidence) == (UNDECIDED, 8, None)
    assert "There is no interval" in verdict.sentence and "[" not in verdict.sentence
    rows += finished("curl", 0.1, seeds=[2])
    assert claims.judge(claim_of("rcrl > curl"), frame_of(rows)).evidence is not None


def test_the_larger_set_of_equal_conditions_counts(tmp_path):
    for root, seeds, algorithm in (("a", range(3), 1), ("b", range(3, 5), 2)):
        for preset, level in (("rcrl", 0.5), ("curl", 0.2)):
            write(tmp_path / root, finished(preset, level, seeds=seeds), algorithm=algorithm)
    claim = claim_of("rcrl > curl")
    assert judge(tmp_path, claim).pairs == 3 * len(FREE_GAMES)
    assert "Not counted, under other conditions: 8 pairs." in judge(tmp_path, claim).sentence


def test_runs_that_change_the_same_fields_are_pairs(tmp_path):
    """More of them than of the presets themselves; a field that one arm changes makes no pair."""
    write(tmp_path, finished("rcrl", 0.5, seeds=[0]) + finished("curl", 0.2, seeds=[0]))
    for preset, level in (("rcrl", 0.2), ("curl", 0.5)):
        write(tmp_path / "a", finished(preset, level, seeds=range(3)), changes={"n_step": 5})
    write(tmp_path / "b", finished("rcrl", 0.9), changes={"n_step": 3})
    verdict = judge(tmp_path, claim_of("rcrl > curl"))
    assert verdict.pairs == 3 * len(FREE_GAMES) and verdict.evidence.difference.estimate < 0
    assert verdict.sentence.startswith("rcrl > curl with n_step=5 after 500 environment steps")
    assert verdict.evidence.p_value is None  # a claim is tested once, on the presets themselves
    for preset, level in (("rcrl", 0.5), ("curl", 0.2)):
        write(tmp_path / "c", finished(preset, level, seeds=[1, 2]))
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
    LEVELS = {"rcrl": 0.9, "erainbow_sa": 0.1}

    def finished(self, *presets, **which):
        return [row for name in presets for row in finished(name, self.LEVELS[name], **which)]

    def finished_list(self, *presets):
        return self.finished(*presets, games=registered.CLAIM.games, seeds=registered.CLAIM.seeds)

    def test_it_is_never_decided_here_and_has_no_p_value(self):
        rows = self.finished_list(*self.LEVELS) + self.finished(*self.LEVELS)
        verdict = claims.judge(self.CLAIM, frame_of(rows, registered.STEPS))
        assert verdict.state == UNDECIDED and verdict.evidence.p_value is None
        assert verdict.games == len(FREE_GAMES)  # none of the list
        assert "36 of the 36 pairs" in verdict.sentence and "Exploratory" in verdict.sentence
        assert "`python -m benchmarks.claim" in verdict.sentence

    def test_runs_of_the_unfinished_list_count_in_no_verdict(self):
        claim = claim_of("rcrl > curl", registered.STEPS)
        rows = self.finished_list("rcrl") + self.finished("rcrl")
        rows += finished("curl", 0.1, games=(*FREE_GAMES, *registered.CLAIM.games))
        verdict = claims.judge(claim, frame_of(rows, registered.STEPS))
        assert verdict.games == len(FREE_GAMES) and "set aside" in verdict.sentence
        rows += self.finished_list("erainbow_sa")
        verdict = claims.judge(claim, frame_of(rows, registered.STEPS))
        assert verdict.games == 8 and "set aside" not in verdict.sentence

    def test_the_larger_experiment_is_not_looked_at(self):
        rows = self.finished(*self.LEVELS, seeds=range(97, 105))
        verdict = claims.judge(self.CLAIM, frame_of(rows, registered.STEPS))
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
    assert "40.6 % against 25.8 %" in claims.published(claims.BUDGET_CLAIMS[0])
    assert claims.published(claims.DMC_CLAIMS[0]) == "The paper prints curves and no figures."


def test_the_table_of_verdicts_has_a_row_a_claim():
    frame = frame_of(finished("rcrl", 0.5) + finished("curl", 0.2))
    names = ("rcrl > curl", "curl > erainbow")
    judged = [claims.judge(claim_of(name), frame) for name in names]
    table = claims.to_table(judged)
    assert [row.label for row in table.rows] == [
        "rcrl > curl, 500: undecided", "curl > erainbow, 500: undecided"
    ]  # fmt: skip
    assert [cell.value for cell in table.rows[0].cells][-3:] == [None, 4, 16]
    assert [cell.value for cell in table.rows[1].cells] == [None] * 7 + [0, 0]
    improvement, difference, _ = judged[0].evidence
    names = [column.name for column in table.columns]
    found = dict(zip(names, (cell.value for cell in table.rows[0].cells), strict=True))
    assert [found[n] for n in ("P(better)", "P low", "P high")] == pytest.approx([*improvement])
    estimates = [found[n] for n in ("IQM diff.", "diff. low", "diff. high")]
    assert estimates == pytest.approx([*difference])
    assert difference.low < difference.estimate < difference.high


def test_changed_presets_are_never_judged_and_equality_takes_ten_seeds():
    every = {"games": reference.games(), "seeds": range(5)}
    own = finished("rcrl", 0.5, **every) + finished("curl", 0.2, **every)
    changed = frame_of([(f"{arm}(n_step=5)", *rest) for arm, *rest in own])
    verdict = claims.judge(claim_of("rcrl > curl"), changed)
    assert (verdict.pairs, verdict.state, verdict.evidence.p_value) == (130, UNDECIDED, None)
    assert "judged once" not in verdict.sentence
    newer = changed.assign(pool=1, algorithm=3, directory="changed")
    both = pd.concat([frame_of(own).assign(directory="own"), newer], ignore_index=True)
    assert claims.judge(claim_of("rcrl > curl"), both).state == SUPPORTED
    assert claim_of("erainbow_sa = erainbow").seeds == range(10)


@pytest.mark.parametrize(
    ("improvement", "difference", "p_value", "state"),
    [
        ((0.6, 0.8), (0.1, 0.2), 0.001, SUPPORTED),
        ((0.45, 0.8), (0.1, 0.2), 0.001, UNDECIDED),
        ((0.6, 0.8), (-0.1, 0.2), 0.001, UNDECIDED),
        ((0.6, 0.8), (0.1, 0.2), 0.04, UNDECIDED),
        ((0.2, 0.4), (-0.2, -0.1), 0.001, CONTRADICTED),
    ],
)
def test_arms_differ_where_the_test_and_both_intervals_agree(
    improvement, difference, p_value, state
):
    one, other = (Interval(sum(ends) / 2, *ends) for ends in (improvement, difference))
    evidence = claims.Evidence(one, other, p_value)
    assert claims.decide(claim_of("rcrl > curl"), evidence) == state


def test_a_run_under_two_names_counts_once_and_stays_on_the_list(tmp_path):
    for arm in (None, "mine"):
        for preset in registered.PRESETS:
            root = tmp_path / str(arm)
            write_run(
                root, preset, "Hero", 3, 5.0, steps=registered.STEPS, arm=arm and f"a{preset}"
            )
    frame = runs.read(tmp_path).frame
    assert frame.arm.nunique() == 4 and registered.CLAIM.finished_pairs(frame) == 1
    named = pools.pairs(frame, *(f"a{preset}" for preset in registered.PRESETS))
    assert len(named) == 2 and compare.is_early_look(named, frame)
    own = frame.assign(arm=frame.settings)
    assert len(pools.pairs(own, *registered.PRESETS)) == 2
