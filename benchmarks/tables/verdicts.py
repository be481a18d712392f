"""The paper's claims, and what our runs say about them.

    for claim in claims.CLAIMS:
        print(verdicts.judge(claim, frame).sentence)

A claim compares two arms. Runs of both that share game, seed and conditions form a pair; other runs
do not count. Of pairs under several conditions, the largest set counts.

The rule:

* **A claim is judged once**: when every game of it has all seeds of `Claim.seeds` under both arms,
  on exactly these pairs. Before, it is undecided, and estimates are printed without a p value.
  Further seeds change no verdict: judged again at every added pair, equal arms would be called
  different far more often than the level says.
* **The level of each test is 5 % divided by the number of claims** judged here (Bonferroni), so
  that 5 % bounds the chance of one wrong decision among all of them.
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
`benchmarks.claim` alone decides it. Here it stays undecided, without a p value; what is printed are
estimates on runs outside its list. Before its list is complete, no verdict counts a run of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tables import claims, pools, statistics
from benchmarks.tables.claims import Claim
from benchmarks.tables.statistics import Interval
from benchmarks.tables.table import Cell, Column, Row, Table, short_steps

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
LEVEL = 0.05 / sum(not claim.decided_by for claim in claims.CLAIMS)
MARGIN = {"improvement": 0.1, "difference": 0.05}
"""How far from "no effect" two arms still count as alike: a tenth in the probability of
improvement; 5 points of human-normalised score, or 50 of a return on DMControl."""

_RESAMPLES = 10_000
_PERMUTATIONS = 10_000
_SEED = 0


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
        evidence: None where a game has a single pair, which allows no interval.
        sentence: all of it in words.
    """

    claim: Claim
    state: str
    games: int
    pairs: int
    evidence: Evidence | None
    sentence: str


def judge(claim: Claim, frame: pd.DataFrame, *, mixed: bool = False) -> Verdict:
    """Judges a claim on our runs; see the top of the module for the rule.

    Args:
        claim: one of `claims.CLAIMS`, maybe with another budget.
        frame: any runs; those of other arms, budgets or conditions are left out.
        mixed: whether pairs under different conditions count together.
    """
    own = frame[
        (frame.family == claim.family)
        & (frame.env_steps == claim.env_steps)
        & frame.arm.isin([claim.first, claim.second])
    ]
    is_listed = claims.listed(own)
    if not claim.decided_by and claims.is_list_complete(frame):
        is_listed &= False
    own = own[~is_listed]
    if not claim.decided_by:
        own = own[own.seed.isin(claim.seeds)]
    keys = pools.pairs(own, claim.first, claim.second).index
    paired = own[pd.MultiIndex.from_frame(own[["game", "seed", "pool"]]).isin(keys)]
    pool = pools.largest(paired, mixed=mixed).runs
    games = [game for game in claims.games(claim) if (pool.game == game).any()]
    first, second = pools.paired_scores(pool, claim.first, claim.second, games, normalised=True)
    counts = [*map(len, first)]
    needed = len(claims.games(claim)) * len(claim.seeds)
    is_judged = not claim.decided_by and sum(counts) >= needed
    evidence = None
    if min(counts, default=0) > 1:
        evidence = compare(first, second, with_test=is_judged)
    state = decide(claim, evidence) if is_judged else UNDECIDED
    verdict = Verdict(claim, state, len(games), sum(counts), evidence, "")
    others = (len(paired) - len(pool)) // 2
    notes = [
        "Runs of the pre-registered list are set aside"
        + ("." if claim.decided_by else " until it is complete.")
    ] * bool(is_listed.any())
    if others:
        pairs = "1 pair" if others == 1 else f"{others} pairs"
        notes.append(f"Under other conditions there are {pairs} more, which do not count.")
    return verdict._replace(sentence=" ".join([_sentence(verdict, is_judged), *notes]))


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
    is_different = evidence.p_value <= LEVEL
    if claim.relation == ">":
        if is_different and _above(evidence, 0.0):
            return SUPPORTED
        return CONTRADICTED if is_different and _below(evidence, 0.0) else UNDECIDED
    if is_different and (_above(evidence, 1.0) or _below(evidence, 1.0)):
        return CONTRADICTED
    is_within = all(
        -MARGIN[name] <= low and high <= MARGIN[name] for name, low, high in _effects(evidence)
    )
    return SUPPORTED if is_within else UNDECIDED


def to_table(judged: Sequence[Verdict]) -> Table:
    """One row a claim: the estimates with the ends of their intervals; the words stand below."""
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
        label = f"{verdict.claim.name}, {short_steps(verdict.claim.env_steps)}: {verdict.state}"
        rows.append(Row(label, cells, digits=4))
    notes = [
        f"{v.sentence} {claims.published(v.claim)} The paper: {v.claim.statement}" for v in judged
    ]
    return Table("Verdicts", "claim", tuple(map(Column, columns)), rows, notes)


def _effects(evidence: Evidence) -> list[tuple[str, float, float]]:
    """Name and ends of both intervals, moved so that 0 is no effect."""
    improvement, difference = evidence.improvement, evidence.difference
    return [
        ("improvement", float(improvement.low) - 0.5, float(improvement.high) - 0.5),
        ("difference", float(difference.low), float(difference.high)),
    ]


def _above(evidence: Evidence, margins: float) -> bool:
    return all(low > margins * MARGIN[name] for name, low, _ in _effects(evidence))


def _below(evidence: Evidence, margins: float) -> bool:
    return all(high < -margins * MARGIN[name] for name, _, high in _effects(evidence))


def _sentence(verdict: Verdict, is_judged: bool) -> str:
    claim, evidence = verdict.claim, verdict.evidence
    games = len(claims.games(claim))
    pairs = "1 pair" if verdict.pairs == 1 else f"{verdict.pairs} pairs"
    extent = f"{pairs} of runs on {verdict.games} of {games} games"
    start = f"{claim.name} after {claim.env_steps:,} environment steps: "
    if claim.decided_by:
        start += f"pre-registered, decided by `{claim.decided_by}` alone; here undecided"
        start += f". Exploratory, outside its list, {extent}" if verdict.pairs else ""
    elif is_judged:
        start += f"{verdict.state} with {extent}"
    else:
        start += (
            f"undecided, judged once seeds {claim.seeds[0]} to {claim.seeds[-1]} of all {games} "
            f"games are finished under both; so far {extent}"
        )
    if not verdict.pairs:
        return f"{start}."
    if evidence is None:
        return f"{start}. A game with one pair allows no interval."
    improvement, difference, p_value = evidence
    unit = "human-normalised scores" if claim.family == "atari" else "returns / 1000"
    text = (
        f"{start}. Probability of improvement {improvement.estimate:.2f} "
        f"[{improvement.low:.2f}, {improvement.high:.2f}], difference of the interquartile means "
        f"of {unit} {difference.estimate:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    )
    return text + ("." if p_value is None else f", rank test p = {p_value:.4f}, level {LEVEL:.4f}.")
