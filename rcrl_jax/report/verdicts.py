"""The paper's claims, and what our runs say about them.

    for claim in claims.CLAIMS:
        print(verdicts.judge(claim, reading.runs).sentence)

A claim compares two arms. Runs of both that share game, seed and conditions form a pair; other runs
do not count. Of pairs under several conditions, the largest set counts.

The rule, fixed before there were runs to judge:

* **A claim that one arm scores higher** is *supported* if three things agree in its direction: the
  stratified rank test finds a difference at 5 %, and the 95 % intervals of the probability of
  improvement and of the difference of the interquartile means both exclude "no effect". It is
  *contradicted* if all three agree in the other direction, else *undecided*. Bootstrap intervals of
  few runs are too narrow; the level of the rank test holds for any number of runs, so it bounds
  the share of wrong decisions. It takes paired runs as independent, which rejects less often if
  equal seeds make scores alike. Where arms are equal, with scores drawn from CURL's 20 published
  seeds (400 simulations each), the intervals alone decide in 40 % of cases with 2 pairs of 1 game,
  12 % with 2 pairs of 4 games, 9 % with 5 pairs of 1 game; the whole rule in at most 4 %.
* **A claim that two arms score alike** is *supported* if both intervals lie within `MARGIN`, with
  `ENOUGH_PAIRS` in every game, because no test stands behind it. It is *contradicted* if both
  intervals lie outside, on the same side, and the rank test finds a difference.
* With a single pair in a game there is no interval, and the claim is undecided.
* A verdict is about the games that have pairs, and says how many these are.

The claim `rcrl > erainbow_sa` at 100,000 steps is pre-registered (docs/preregistration.md), and
`benchmarks.claim` alone decides it. Here it stays undecided, without a p value; what is printed are
estimates on runs outside its list. Before its list is complete, no verdict counts a run of it.
"""

import collections
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import reference, statistics
from rcrl_jax.report import claims
from rcrl_jax.report.claims import Claim
from rcrl_jax.report.score_columns import short_steps
from rcrl_jax.report.tables import Cell, Column, Row, Table
from rcrl_jax.results import pools
from rcrl_jax.results.runs import Run
from rcrl_jax.statistics import Interval

SUPPORTED, CONTRADICTED, UNDECIDED = "supported", "contradicted", "undecided"
LEVEL = 0.05
MARGIN = {"improvement": 0.1, "difference": 0.05}
"""How far from "no effect" two arms still count as alike: a tenth in the probability of
improvement; 5 points of human-normalised score, or 50 of a return on DMControl."""
ENOUGH_PAIRS = 10
"""With fewer pairs in a game, intervals cover clearly less than 95 %; see `statistics`."""

_RESAMPLES = 10_000
_PERMUTATIONS = 10_000
_SEED = 0


class Evidence(NamedTuple):
    """What paired scores say about two arms; intervals are 95 %.

    Attributes:
        improvement: probability of improvement of the first arm.
        difference: of the interquartile means, first less second.
        p_value: of the stratified rank test; None where the claim is pre-registered.
    """

    improvement: Interval
    difference: Interval
    p_value: float | None


class Verdict(NamedTuple):
    """What our runs say about a claim.

    Attributes:
        claim: the claim.
        state: `supported`, `contradicted` or `undecided`.
        games: number of games with pairs.
        pairs: number of pairs.
        fewest: pairs of the game that has the fewest.
        evidence: None if there is no interval.
        more_seeds: fewest and most further seeds a game that would decide, with a power of 80 %;
            None if decided or not estimable. Both are equal if they come from the estimate alone.
        published: what the paper's own figures say about it; empty if it prints none.
        sentence: all of it in words.
    """

    claim: Claim
    state: str
    games: int
    pairs: int
    fewest: int
    evidence: Evidence | None
    more_seeds: tuple[int, int] | None
    published: str
    sentence: str


def judge(claim: Claim, runs: Sequence[Run], *, mixed: bool = False) -> Verdict:
    """Judges a claim on our runs; see the top of the module for the rule.

    Args:
        claim: one of `claims.CLAIMS`, maybe with another budget.
        runs: any runs; those of other arms, budgets or conditions are left out.
        mixed: whether pairs under different conditions count together.
    """
    pool, others, is_set_aside = _paired_runs(claim, runs, mixed)
    games = [game for game in claims.games(claim) if any(run.game == game for run in pool)]
    first, second = pools.paired_scores(
        pool, claim.first, claim.second, games, scale=reference.normalised
    )
    counts = [len(game) for game in first]
    fewest = min(counts, default=0)
    evidence = None
    if fewest > 1:
        evidence = compare(first, second, with_test=not claim.decided_by)
    state = decide(claim, evidence, fewest)
    more = None
    if evidence is not None and state == UNDECIDED and not claim.decided_by:
        more = _more_seeds(claim, evidence, len(games), fewest)
    verdict = Verdict(
        claim, state, len(games), sum(counts), fewest, evidence, more, claims.published(claim), ""
    )
    sentence = _sentence(verdict, is_set_aside)
    if others:
        pairs = "1 pair" if others == 1 else f"{others} pairs"
        sentence += f" Under other conditions there are {pairs} more, which do not count."
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


def decide(claim: Claim, evidence: Evidence | None, fewest: int) -> str:
    """The state of a claim, by the rule at the top of the module.

    Args:
        claim: the claim.
        evidence: None if there is no interval.
        fewest: pairs of the game that has the fewest.
    """
    if evidence is None or claim.decided_by:
        return UNDECIDED
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
    return SUPPORTED if is_within and fewest >= ENOUGH_PAIRS else UNDECIDED


def to_table(verdicts: Sequence[Verdict]) -> Table:
    """One row a claim: the estimates with the ends of their intervals; the words stand below."""
    columns = (
        *("P(better)", "P low", "P high", "IQM diff.", "diff. low", "diff. high"),
        *("rank test p", "games", "pairs"),
    )
    rows = []
    for verdict in verdicts:
        values: list[float | None] = [None] * 7
        if verdict.evidence is not None:
            improvement, difference, p_value = verdict.evidence
            values = [*map(float, (*improvement, *difference)), p_value]
        cells = [*map(Cell, values), Cell(verdict.games), Cell(verdict.pairs)]
        label = f"{verdict.claim.name}, {short_steps(verdict.claim.env_steps)}: {verdict.state}"
        rows.append(Row(label, cells, digits=4))
    notes = [f"{v.sentence} {v.published} The paper: {v.claim.statement}" for v in verdicts]
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


def _paired_runs(
    claim: Claim, runs: Sequence[Run], mixed: bool
) -> tuple[tuple[Run, ...], int, bool]:
    """The runs that have a partner, of one protocol.

    Returns:
        The runs; the number of pairs under other conditions; whether runs of the pre-registered
        list are set aside.
    """
    own = [
        run
        for run in runs
        if (run.family, run.env_steps) == (claim.family, claim.env_steps)
        and run.arm in (claim.first, claim.second)
        and run.score is not None
    ]
    listed = [run for run in own if claims.is_listed(run)]
    if listed and (claim.decided_by or not claims.is_list_complete(runs)):
        own = [run for run in own if not claims.is_listed(run)]
    else:
        listed = []
    arms = collections.defaultdict(set)
    for run in own:
        arms[_pair_key(run)].add(run.arm)
    paired = [run for run in own if len(arms[_pair_key(run)]) == 2]
    kept = pools.of_one_protocol(paired, mixed=mixed).runs
    return kept, (len(paired) - len(kept)) // 2, bool(listed)


def _pair_key(run: Run) -> tuple[str, int, str]:
    return run.game, run.seed, pools.conditions_key(run)


def _more_seeds(
    claim: Claim, evidence: Evidence, games: int, fewest: int
) -> tuple[int, int] | None:
    improvement = evidence.improvement
    if claim.relation == "=":
        # A margin is told from no effect by as many seeds as an effect of the margin's size.
        assumed = [0.5 + MARGIN["improvement"]]
    elif improvement.low > 0.5 or improvement.high < 0.5:
        assumed = [improvement.low, improvement.high]
    else:
        assumed = [improvement.estimate]
    needed = statistics.seeds_to_decide(np.array(assumed), games)
    if not np.isfinite(needed).all():
        return None
    least = fewest + 1
    if claim.relation == "=":
        least = max(least, ENOUGH_PAIRS)
    return tuple(max(least, int(bound(needed))) - fewest for bound in (np.min, np.max))


def _sentence(verdict: Verdict, is_set_aside: bool) -> str:
    claim, evidence = verdict.claim, verdict.evidence
    aside = (
        "Runs of the pre-registered list are set aside"
        + (". " if claim.decided_by else " until it is complete. ")
    ) * is_set_aside
    start = f"{claim.name} after {claim.env_steps:,} environment steps"
    if claim.decided_by:
        start += f": pre-registered, decided by `{claim.decided_by}` alone; here undecided"
        if verdict.pairs:
            start += f". Exploratory, outside its list, {_extent(verdict)}"
    elif not verdict.pairs:
        start += ": undecided, no game and seed is finished under both"
    else:
        start += f": {verdict.state} with {_extent(verdict)}"
    if not verdict.pairs:
        return f"{start}. {aside}".strip()
    if evidence is None:
        return f"{start}. A game with one pair allows no interval. {aside}".strip()
    improvement, difference, p_value = evidence
    unit = "human-normalised scores" if claim.family == "atari" else "returns / 1000"
    text = (
        f"{start}. Probability of improvement {improvement.estimate:.2f} "
        f"[{improvement.low:.2f}, {improvement.high:.2f}], difference of the interquartile means "
        f"of {unit} {difference.estimate:+.3f} [{difference.low:+.3f}, {difference.high:+.3f}]"
    )
    text += "." if p_value is None else f", rank test p = {p_value:.4f}."
    if verdict.fewest < ENOUGH_PAIRS:
        text += f" With fewer than {ENOUGH_PAIRS} pairs a game, the 95 % intervals are too narrow."
    return f"{text}{_outlook(verdict)} {aside}".strip()


def _extent(verdict: Verdict) -> str:
    games = len(claims.games(verdict.claim))
    pairs = "1 pair" if verdict.pairs == 1 else f"{verdict.pairs} pairs"
    return f"{pairs} of runs on {verdict.games} of {games} games, at least {verdict.fewest} a game"


def _outlook(verdict: Verdict) -> str:
    if verdict.state != UNDECIDED or verdict.claim.decided_by:
        return ""
    if verdict.more_seeds is None:
        return " How many more seeds would decide cannot be estimated: there is no effect."
    low, high = verdict.more_seeds
    if low < high:
        return f" {low} to {high} more seeds a game would decide (80 % power)."
    seeds = "one more seed" if low == 1 else f"{low} more seeds"
    if verdict.claim.relation == "=":
        return f" About {seeds} a game would decide if there is no difference (rough)."
    return f" About {seeds} a game would decide if the estimate were the truth (rough)."
