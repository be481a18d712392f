"""The paper's claims: what its own figures say, and what our runs say about them.

    for claim in claims.CLAIMS:
        print(claims.judge(claim, frame).text)

A claim compares two presets. Runs of both that share game, seed and conditions form a pair, as do
runs whose configurations change the same fields of both presets; other runs do not count. The
largest set of pairs with equal conditions and equal changes counts, and the verdict names the
changes.

The rule:

* **A claim is judged once**: when every game of it has all seeds of `Claim.seeds` under both arms,
  on exactly these pairs. Before, it is undecided, and estimates are printed without a p value.
  Further seeds change no verdict: judged again at every added pair, equal arms would be called
  different far more often than the level says.
* **The level of each test is 5 % divided by the number of claims** judged here (Bonferroni), so
  that 5 % bounds the chance that any two arms that score alike are called different, at the budgets
  of `CLAIMS`. That two arms score alike rests on the two intervals, without a test.
* **A claim that one arm scores higher** is *supported* if three things agree in its direction: the
  stratified rank test finds a difference, and the 95 % intervals of the probability of improvement
  and of the difference of the interquartile means both exclude "no effect". It is *contradicted* if
  all three agree in the other direction, else *undecided*. Bootstrap intervals of few runs are too
  narrow; the level of the rank test holds for any number of runs, so it bounds the share of wrong
  decisions. It takes paired runs as independent, which rejects less often if equal seeds make
  scores alike.
* **A claim that two arms score alike** is *supported* if both intervals lie within `MARGIN`. It is
  *contradicted* if both lie outside, on the same side, and the rank test finds a difference.

The claim `rcrl > erainbow_sa` at 100,000 steps is pre-registered (docs/preregistration.md), and
`benchmarks.claim` alone decides it. Here it stays undecided, without a p value; the printed
estimates are of runs outside its list. Until the list is complete, no verdict counts its runs.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from rcrl_jax import reference, words
from rcrl_jax.tables import arms, pools, registered, statistics
from rcrl_jax.tables import published as published_data
from rcrl_jax.tables.statistics import Interval
from rcrl_jax.tables.table import Cell, Column, Row, Table, short

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
MARGIN = {"improvement": 0.1, "difference": 0.05}
"""How far from "no effect" two arms still count as alike: a tenth in the probability of
improvement; 5 points of human-normalised score, or 50 of a return on DMControl."""

_RESAMPLES = 10_000
_PERMUTATIONS = 10_000
_SEED = 0


class Claim(NamedTuple):
    """One claim of the paper.

    Attributes:
        first: a preset.
        relation: `>` or `=`.
        second: the other preset.
        statement: the paper's sentence, paraphrased.
        family: `atari` or `dmc`.
        env_steps: budget of the runs, in environment steps.
        table: number of the paper's table that prints game means for both; None if none does.
    """

    first: str
    relation: str
    second: str
    statement: str
    family: str = "atari"
    env_steps: int = 100_000
    table: int | None = 1

    @property
    def is_preregistered(self) -> bool:
        """Whether `benchmarks.claim` alone decides the claim."""
        presets = {self.first, self.second}
        return presets == {*registered.PRESETS} and self.env_steps == registered.STEPS

    @property
    def seeds(self) -> range:
        """The seeds on which every game is played under both arms before the claim is judged.

        Equality takes more seeds, because it has no test, and intervals of fewer pairs cover
        clearly less than 95 % (`statistics.bootstrap_intervals`).
        """
        return range(10 if self.relation == "=" else 5)

    @property
    def name(self) -> str:
        """The claim in symbols."""
        return f"{self.first} {self.relation} {self.second}"


_ON_ATARI = "on the 26 games of Atari-100k (Table 1)."
ATARI_CLAIMS = (
    Claim(
        "rcrl", ">", "erainbow_sa",
        f"The return-contrastive task raises the median of ERainbow-sa {_ON_ATARI}",
    ),
    Claim(
        "rcrl_curl", ">", "rcrl", f"Adding CURL's task to RCRL raises its score further {_ON_ATARI}"
    ),
    Claim("curl", ">", "erainbow", f"CURL's task raises the score of ERainbow {_ON_ATARI}"),
    Claim("rcrl", ">", "curl", f"RCRL has a higher median than CURL {_ON_ATARI}"),
    Claim(
        "rcrl_curl", ">", "curl",
        f"RCRL with CURL's task has a higher median than CURL alone {_ON_ATARI}",
    ),
    Claim(
        "erainbow_sa", "=", "erainbow",
        "A state-action embedding in place of the state embedding changes the performance of "
        f"ERainbow not significantly {_ON_ATARI}",
    ),
)  # fmt: skip
BUDGET_CLAIMS = (
    Claim(
        "rcrl", ">", "erainbow_sa",
        "After 1.5 million interactions RCRL still scores higher than ERainbow-sa on 4 of 5 games "
        "(Table 2).",
        env_steps=1_500_000, table=2,
    ),
)  # fmt: skip
DMC_CLAIMS = (
    Claim(
        "rcrl_sac", ">", "sac_aug",
        "The return-contrastive task raises the score of SAC from pixels on DMControl (figure). "
        "`sac_aug` is `rcrl_sac` without the task.",
        "dmc", 500_000, None,
    ),
    Claim(
        "rcrl_sac", ">", "curl_sac", "RCRL scores higher than CURL on DMControl (figure).",
        "dmc", 500_000, None,
    ),
)  # fmt: skip
CLAIMS = (*ATARI_CLAIMS, *BUDGET_CLAIMS, *DMC_CLAIMS)
LEVEL = 0.05 / sum(not claim.is_preregistered for claim in CLAIMS)


class Evidence(NamedTuple):
    """What paired scores say about two arms; intervals are 95 %.

    Attributes:
        improvement: probability of improvement of the first arm.
        difference: of the interquartile means, first less second.
        p_value: of the stratified rank test; None before the claim is judged.
    """

    improvement: Interval
    difference: Interval
    p_value: float | None


class Verdict(NamedTuple):
    """What our runs say about a claim.

    Attributes:
        claim: the claim.
        state: `supported`, `contradicted` or `undecided`.
        games: number of games with pairs that count.
        pairs: number of these pairs.
        evidence: None where a game has fewer than three pairs, which allow no interval.
        changed: fields that both arms change, `(batch_size=128)`; empty for the presets themselves.
        sentence: all of it but the state, in words.
    """

    claim: Claim
    state: str
    games: int
    pairs: int
    evidence: Evidence | None
    changed: str
    sentence: str

    @property
    def name(self) -> str:
        """The claim in symbols, with these fields."""
        return self.claim.name + (f" with {self.changed[1:-1]}" if self.changed else "")

    @property
    def published(self) -> str:
        """What the paper's own figures say."""
        return published(self.claim)

    @property
    def text(self) -> str:
        """All of it in words."""
        return f"{self.state}: {self.sentence} {self.published}"


def games(claim: Claim) -> tuple[str, ...]:
    """The games or tasks that the claim is about."""
    return tuple(_published_means(claim)) or reference.tasks()


def published(claim: Claim) -> str:
    """A sentence on the paper's own figures: means of games, without any spread."""
    means = _published_means(claim)
    if not means:
        return "The paper prints curves and no figures."
    first, second = (np.array(scores) for scores in zip(*means.values(), strict=True))
    iqm = [
        100
        * statistics.interquartile_mean_of_game_means(
            [np.array([reference.human_normalised(*one)]) for one in zip(means, arm, strict=True)]
        )
        for arm in (first, second)
    ]
    names = [reference.PAPER_COLUMN[arm] for arm in (claim.first, claim.second)]
    steps = 1_500_000 if claim.table == 2 else 100_000
    return (
        f"Published, after {steps:,} steps: {names[0]} is higher in {np.sum(first > second)} and "
        f"lower in {np.sum(first < second)} of {len(means)} games; interquartile mean of games "
        f"{iqm[0]:.1f} % against {iqm[1]:.1f} %."
    )


def _published_means(claim: Claim) -> dict[str, tuple[float, float]]:
    """Game -> published means of both arms; empty if there are none."""
    if claim.table is None:
        return {}
    columns = [reference.PAPER_COLUMN[arm] for arm in (claim.first, claim.second)]
    if claim.table == 2:
        long = published_data.atari_budgets().query("env_interactions == 1_500_000")
        means = long.pivot(index="game", columns="agent", values="score")[columns]
        return {game: tuple(means.loc[game]) for game in long.game.unique()}
    return {
        game: tuple(reference.published(game, column) for column in columns)
        for game in reference.games()
    }


def judge(claim: Claim, frame: pd.DataFrame) -> Verdict:
    """Judges a claim on our runs; see the top of the module for the rule.

    Args:
        claim: one of `CLAIMS`, maybe with another budget.
        frame: any runs; those of other arms, games, budgets or conditions are left out.
    """
    own = frame[(frame.family == claim.family) & (frame.env_steps == claim.env_steps)]
    own = own.assign(
        listed=registered.CLAIM.holds(own),
        larger=registered.LARGER.holds(own),
        arm=own.settings.map(arms.preset_of),
        changed=own.settings.map(arms.changes_of),
    )
    own = own[own.arm.isin([claim.first, claim.second]) & own.game.isin(games(claim))]
    is_complete = registered.CLAIM.is_finished(frame)
    notes = []
    if own.listed.any() and (claim.is_preregistered or not is_complete):
        own = own[~own.listed]
        when = "" if claim.is_preregistered else " until it is complete"
        notes.append(f"Runs of the pre-registered list are set aside{when}.")
    if own.larger.any():
        own = own[~own.larger]
        notes.append("Runs of the larger pre-registered experiment are set aside.")
    if not claim.is_preregistered:
        own = own[own.seed.isin(claim.seeds)]
    own = own.assign(pool=own.groupby(["pool", "changed"], sort=False).ngroup())
    paired = pools.pairs(own, claim.first, claim.second)
    presets = pools.largest(paired[paired.changed == ""]).runs
    is_whole = len(presets) >= 2 * len(games(claim)) * len(claim.seeds)
    pool = presets if is_whole else pools.largest(paired).runs
    changed = "" if pool.empty else pool.changed.iloc[0]
    played = [game for game in games(claim) if (pool.game == game).any()]
    first, second = pools.paired_scores(pool, claim.first, claim.second, played, normalised=True)
    counts = [*map(len, first)]
    # One test per claim: of the presets themselves.
    may_be_judged = not (claim.is_preregistered or changed)
    is_judged = may_be_judged and sum(counts) >= len(games(claim)) * len(claim.seeds)
    evidence = None
    if min(counts, default=0) >= statistics.FEWEST_FOR_INTERVAL:
        evidence = compare(first, second, with_test=is_judged)
    if others := (len(paired) - len(pool)) // 2:
        notes.append(f"Not counted, under other conditions: {words.count('pair', others)}.")
    state = decide(claim, evidence) if is_judged else UNDECIDED
    verdict = Verdict(claim, state, len(played), sum(counts), evidence, changed, "")
    sentence = " ".join([_start(verdict, is_judged, frame), *_estimates(verdict), *notes])
    return verdict._replace(sentence=sentence)


def compare(
    first: statistics.Scores, second: statistics.Scores, *, with_test: bool = True
) -> Evidence:
    """Compares two arms by paired scores.

    Args:
        first: normalised scores of an arm, `[n_g]` each game.
        second: those of the other arm; position i of both is the same seed.
        with_test: whether the rank test is computed.
    """
    found = statistics.bootstrap_intervals(
        {
            "improvement": statistics.probability_of_improvement,
            "difference": statistics.difference(statistics.interquartile_mean),
        },
        (first, second),
        np.random.default_rng(_SEED),
        resamples=_RESAMPLES,
        paired=True,
    )
    p_value = None
    if with_test:
        test = statistics.stratified_rank_test(
            first, second, np.random.default_rng(_SEED), permutations=_PERMUTATIONS
        )
        p_value = float(test.p_value)
    return Evidence(found["improvement"], found["difference"], p_value)


def decide(claim: Claim, evidence: Evidence) -> str:
    """The state of a claim that is judged, by the rule at the top of the module."""
    improvement, difference, p_value = evidence
    # Margin and ends of both intervals, moved so that 0 is no effect.
    effects = [
        (MARGIN["improvement"], improvement.low - 0.5, improvement.high - 0.5),
        (MARGIN["difference"], difference.low, difference.high),
    ]
    is_equality = claim.relation == "="
    if is_equality and all(-margin <= low and high <= margin for margin, low, high in effects):
        return SUPPORTED
    above = all(low > is_equality * margin for margin, low, _ in effects)
    below = all(high < -is_equality * margin for margin, _, high in effects)
    if p_value > LEVEL or not (above or below):
        return UNDECIDED
    return SUPPORTED if above and not is_equality else CONTRADICTED


def to_table(judged: Sequence[Verdict]) -> Table:
    """One row per claim: the estimates with the ends of their intervals; the words stand below."""
    columns = (
        *("P(better)", "P low", "P high", "IQM diff.", "diff. low", "diff. high"),
        *("rank test p", "games", "pairs"),
    )
    rows = []
    for verdict in judged:
        values: list[float | None] = [None] * 7
        if verdict.evidence is not None:
            improvement, difference, p_value = verdict.evidence
            values = [*map(float, (*improvement, *difference)), p_value]
        cells = [*map(Cell, values), Cell(verdict.games), Cell(verdict.pairs)]
        label = f"{verdict.name}, {short(verdict.claim.env_steps)}: {verdict.state}"
        rows.append(Row(label, cells, digits=4))
    notes = [f"{verdict.text} The paper: {verdict.claim.statement}" for verdict in judged]
    return Table("Verdicts", "claim", tuple(map(Column, columns)), rows, notes)


def _start(verdict: Verdict, is_judged: bool, frame: pd.DataFrame) -> str:
    """What was compared, and on how many pairs."""
    claim = verdict.claim
    number, seeds = len(games(claim)), claim.seeds
    extent = f"{words.count('pair', verdict.pairs)} of runs on {verdict.games} of {number} games"
    start = f"{verdict.name} after {claim.env_steps:,} environment steps: "
    if claim.is_preregistered:
        listed = registered.CLAIM
        start += (
            f"{listed.finished_pairs(frame)} of the {listed.num_pairs} pairs of the pre-registered "
            f"list are finished; `{registered.COMMAND}` alone decides it."
        )
        return start + f" Exploratory, outside the list: {extent}." * bool(verdict.pairs)
    if is_judged:
        return f"{start}{extent}."
    if verdict.changed:
        return f"{start}{extent}; not judged, since claims are about the presets themselves."
    return (
        f"{start}judged once seeds {seeds[0]} to {seeds[-1]} of all {number} games are finished "
        f"under both; so far {extent}."
    )


def _estimates(verdict: Verdict) -> list[str]:
    """The estimates in a sentence; none without pairs."""
    if verdict.evidence is None:
        return ["There is no interval, because a game has fewer than three pairs."] * bool(
            verdict.pairs
        )
    p_value = verdict.evidence.p_value
    unit = "human-normalised scores" if verdict.claim.family == "atari" else "returns / 1000"
    test = "" if p_value is None else f", rank test p = {p_value:.4f}, level {LEVEL:.4f}"
    return [f"{describe(verdict.evidence, unit)}{test}."]


def describe(evidence: Evidence, unit: str) -> str:
    """The two estimates in words, with their intervals; `unit` is that of the scores."""
    improvement, difference, _ = evidence
    return (
        f"Probability of improvement {improvement.estimate:.2f} "
        f"[{improvement.low:.2f}, {improvement.high:.2f}], difference of the interquartile means "
        f"of {unit} {difference.estimate:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    )
