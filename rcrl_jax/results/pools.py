"""Which runs may be pooled, and their scores as `rcrl_jax.statistics` takes them.

    reading = store.read_runs("results")
    at_100k = [run for run in reading.runs if run.family == "atari" and run.env_steps == 100_000]
    pool = pools.of_one_protocol(at_100k)
    for line in pool.left_out:               # one line for each set of runs with other conditions
        print(line)
    games = reference.games()
    scores = pools.scores(pool.runs, ["rcrl", "erainbow_sa"], games)
    scores["rcrl"]                           # 26 arrays [n_g], empty where there is no run
    first, second = pools.paired_scores(pool.runs, "rcrl", "erainbow_sa", games)

Conditions are everything that two runs must have in common to be pooled: `arms.conditions_of`.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax.results.runs import Run

Scale = Callable[[str, np.ndarray], np.ndarray]
"""Makes the raw scores of a game comparable, for example `reference.human_normalised`."""


class Pool(NamedTuple):
    """Runs that may be pooled.

    Attributes:
        runs: in the order given.
        left_out: one line for each set of runs with other conditions.
    """

    runs: tuple[Run, ...]
    left_out: tuple[str, ...]


def of_one_protocol(runs: Iterable[Run], *, mixed: bool = False) -> Pool:
    """Keeps the largest set of runs with equal conditions; one set of each family.

    The budget is a condition, so a table of one budget passes runs of that budget. Of sets of one
    size, the one with longer runs is kept, then the one with the higher algorithm number.

    Args:
        runs: any runs.
        mixed: whether to keep all runs instead; a table then says that it mixes protocols.
    """
    runs = tuple(runs)
    if mixed:
        return Pool(runs, ())
    kept: set[str] = set()
    left_out = []
    for family in dict.fromkeys(run.family for run in runs):
        sets: dict[str, list[Run]] = {}
        for run in runs:
            if run.family == family:
                sets.setdefault(conditions_key(run), []).append(run)
        best, *others = sorted(sets, key=lambda key: _rank(sets[key]), reverse=True)
        kept.add(best)
        left_out += [_describe(sets[key], sets[best]) for key in others]
    return Pool(tuple(run for run in runs if conditions_key(run) in kept), tuple(left_out))


def scores(
    runs: Iterable[Run], arms: Sequence[str], games: Sequence[str], *, scale: Scale | None = None
) -> dict[str, list[np.ndarray]]:
    """The final scores of each arm, game by game; unfinished runs are left out.

    Args:
        runs: of one protocol.
        arms: labels (`Run.arm`).
        games: in the order wanted.
        scale: applied to each game's scores; None for raw scores.

    Returns:
        Arm -> one array `[n_g]` for each game, in the order of seeds; n_g can be 0.
    """
    cells: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for run in runs:
        if run.score is not None:
            cells.setdefault((run.arm, run.game), []).append((run.seed, run.score))
    return {
        arm: [
            _scaled(game, [score for _, score in sorted(cells.get((arm, game), []))], scale)
            for game in games
        ]
        for arm in arms
    }


def paired_scores(
    runs: Iterable[Run],
    first: str,
    second: str,
    games: Sequence[str],
    *,
    scale: Scale | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The final scores of two arms on the seeds that both have under the same conditions.

    Args:
        runs: finished or not; unfinished ones are left out.
        first: label of an arm.
        second: label of the other arm.
        games: in the order wanted.
        scale: applied to each game's scores; None for raw scores.

    Returns:
        For each arm one array `[n_g]` for each game. Position i of both is the same seed; n_g is
        equal and can be 0.
    """
    cells: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
    for run in runs:
        if run.score is not None:
            own = cells.setdefault((run.arm, run.game), {})
            own[run.seed, conditions_key(run)] = run.score
    paired: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for game in games:
        of_arms = [cells.get((arm, game), {}) for arm in (first, second)]
        common = sorted(of_arms[0].keys() & of_arms[1].keys())
        for arrays, own in zip(paired, of_arms, strict=True):
            arrays.append(_scaled(game, [own[pair] for pair in common], scale))
    return paired


def conditions_key(run: Run) -> str:
    """The conditions of a run as one string, equal for runs that may be pooled."""
    return json.dumps(run.conditions, sort_keys=True)


def _scaled(game: str, values: Sequence[float], scale: Scale | None) -> np.ndarray:
    array = np.array(values, np.float64)
    return array if scale is None else scale(game, array)


def _rank(runs: Sequence[Run]) -> tuple[int, int, int]:
    algorithm = runs[0].conditions["algorithm"]
    return len(runs), runs[0].env_steps, algorithm if type(algorithm) is int else 0


def _describe(runs: Sequence[Run], kept: Sequence[Run]) -> str:
    """One line on runs that are left out because they differ from those kept."""
    own, others = runs[0].conditions, kept[0].conditions
    name = next(name for name in {**others, **own} if own.get(name) != others.get(name))
    return (
        f"{_count(runs)} left out: {name} is {_value(own, name)}, not {_value(others, name)} as in "
        f"the {_count(kept)} kept (for example {runs[0].directory})"
    )


def _count(runs: Sequence[Run]) -> str:
    return "1 run" if len(runs) == 1 else f"{len(runs)} runs"


def _value(conditions: Any, name: str) -> str:
    return str(conditions[name]) if conditions.get(name) is not None else "not stated"
