r"""Tests the claim "`rcrl` scores higher than `erainbow_sa`" on the finished runs.

    python -m benchmarks.claim --results=results/claim

Reads `<results>/<preset>/<game>/seed_<n>/{scores.json,manifest.json}` and writes
`<results>/README.md`. The list of runs, the test and what counts as a run were fixed beforehand in
docs/preregistration.md. No p value is computed before the list is complete.
"""

import json
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from absl import app, flags

from experiments import command_line
from rcrl_jax import files, reference, statistics

_RESULTS = flags.DEFINE_string("results", "results/claim", "directory of the finished runs")

PRESETS = {"rcrl": ("return_contrast",), "erainbow_sa": ()}
"""The two arms and their auxiliary tasks; the claim is that the first scores higher."""
GAMES = ("Hero", "UpNDown", "Asterix", "MsPacman")
SEEDS = range(9)
AGENT_STEPS = 100_000
EPISODES = 100
ATTEMPTS = 2
"""A run that diverges this often counts as random play."""
LEVEL = 0.05
PERMUTATIONS = 100_000
RESAMPLES = 50_000
SEED = 0
"""Seed of the permutations, and again of the resamples."""

_PAIRS = len(GAMES) * len(SEEDS)
_IDENTITY = ("preset", "game", "seed", "config")
_LOSS_FIELDS = ("auxiliary", "return_contrast")
"""Fields in which the configurations of the two presets may differ."""


class Run(NamedTuple):
    """One finished run.

    Attributes:
        directory: where its files lie.
        preset: one of `PRESETS`.
        game: one of the 26 games.
        seed: the run's seed.
        score: mean return of the final evaluation; the published score of random play if diverged.
        diverged: whether the run diverged in every attempt and has no evaluation.
        conditions: what must be the same in every run: algorithm, backend, steps, protocol.
        config: every hyperparameter.
    """

    directory: pathlib.Path
    preset: str
    game: str
    seed: int
    score: float
    diverged: bool
    conditions: dict[str, Any]
    config: dict[str, Any]


def read_runs(results: pathlib.Path) -> list[Run]:
    """Reads every finished run of the two presets; skips runs without a result.

    Raises:
        ValueError: a file is damaged or at odds with its place, a run has another number of steps
            or episodes, or runs differ in algorithm, protocol or configuration. The message names
            the file.
    """
    if not results.is_dir():
        raise ValueError(f"--results: there is no directory {results}")
    runs = []
    for preset in PRESETS:
        for directory in sorted((results / preset).glob("*/*/")):
            seed = re.fullmatch(r"seed_(0|[1-9]\d*)", directory.name)
            if seed is None or directory.parent.name not in reference.games():
                raise ValueError(f"{directory} is no <game>/seed_<n>")
            run = _read_run(directory, preset, directory.parent.name, int(seed[1]))
            runs += [run] if run else []
    _require_equal(runs, lambda run: run.conditions)
    _require_equal(runs, lambda run: _outside_the_loss(run.config))
    for preset in PRESETS:
        _require_equal([run for run in runs if run.preset == preset], lambda run: run.config)
    return runs


def decide(first: statistics.Scores, second: statistics.Scores) -> str:
    """The verdict on the complete list, with p value and intervals.

    Args:
        first: raw scores of `rcrl`, `[9]` for each game of the list.
        second: raw scores of `erainbow_sa`, the same.
    """
    test = statistics.stratified_rank_test(
        first, second, np.random.default_rng(SEED), permutations=PERMUTATIONS
    )
    normalised = [
        [reference.human_normalised(game, scores) for game, scores in zip(GAMES, arm, strict=True)]
        for arm in (first, second)
    ]
    intervals = statistics.bootstrap_intervals(
        {
            "iqm": statistics.difference(statistics.interquartile_mean),
            "improvement": statistics.probability_of_improvement,
        },
        normalised,
        np.random.default_rng(SEED),
        resamples=RESAMPLES,
    )
    iqm, improvement = intervals["iqm"], intervals["improvement"]
    if test.p_value > LEVEL:
        verdict = "undecided: the test finds no difference between `rcrl` and `erainbow_sa`"
    elif test.statistic > 0:
        verdict = "supported: `rcrl` scores higher than `erainbow_sa`"
    else:
        verdict = "contradicted: `rcrl` scores lower than `erainbow_sa`"
    return (
        f"{verdict} ({_PAIRS} of {_PAIRS} pairs finished; stratified rank test, two-sided "
        f"p = {test.p_value:.5f}); beside it, with 95 % intervals: interquartile mean of "
        f"human-normalised scores, `rcrl` less `erainbow_sa`, {iqm.estimate:+.4f} "
        f"[{iqm.low:+.4f}, {iqm.high:+.4f}]; probability of improvement "
        f"{improvement.estimate:.3f} [{improvement.low:.3f}, {improvement.high:.3f}]."
    )


def sentence(runs: Sequence[Run]) -> str:
    """The verdict on the claim: undecided until every pair of the list is finished."""
    scores = {(run.preset, run.game, run.seed): run.score for run in runs}
    finished = sum(
        all((preset, game, seed) in scores for preset in PRESETS)
        for game in GAMES
        for seed in SEEDS
    )
    if finished < _PAIRS:
        return f"undecided: {finished} of {_PAIRS} pairs finished."
    return decide(
        *[
            [np.array([scores[preset, game, seed] for seed in SEEDS]) for game in GAMES]
            for preset in PRESETS
        ]
    )


def page(runs: Sequence[Run]) -> str:
    """The sentence and the tables, as Markdown."""
    listed = [run for run in runs if run.game in GAMES and run.seed in SEEDS]
    others = [run for run in runs if run not in listed]
    lines = [sentence(runs), "", *_table(GAMES, listed)]
    diverged = [f"{run.preset}/{run.game}/seed_{run.seed}" for run in runs if run.diverged]
    if diverged:
        lines += ["", f"Diverged {ATTEMPTS} times, counted as random play: {', '.join(diverged)}."]
    if others:
        games = [game for game in reference.games() if any(run.game == game for run in others)]
        lines += ["", "Outside the list, exploratory, without a part in the claim:", ""]
        lines += _table(games, others)
    return "\n".join(lines)


def _table(games: Iterable[str], runs: Sequence[Run]) -> list[str]:
    lines = [
        "| game | " + " | ".join(f"`{preset}`, seeds | mean" for preset in PRESETS) + " |",
        "| --- |" + " --- |" * (2 * len(PRESETS)),
    ]
    for game in games:
        cells = [game]
        for preset in PRESETS:
            scores = [run.score for run in runs if (run.preset, run.game) == (preset, game)]
            cells += [str(len(scores)), f"{np.mean(scores):.1f}" if scores else ""]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _read_run(directory: pathlib.Path, preset: str, game: str, seed: int) -> Run | None:
    """Reads one run, or None if it has no result yet."""
    scores, diverged = directory / "scores.json", directory / "diverged.json"
    if not scores.exists() and not diverged.exists():
        return None
    if scores.exists() and diverged.exists():
        raise ValueError(f"{directory} holds both scores.json and diverged.json")
    place = {"preset": preset, "game": game, "seed": seed}
    manifest_path = directory / "manifest.json"
    manifest = _read_object(manifest_path)
    described, protocol = manifest.get("run"), manifest.get("protocol")
    if not isinstance(described, dict) or not isinstance(described.get("config"), dict):
        raise ValueError(f"{manifest_path} describes no run")
    _require(manifest_path, described, {**place, "steps": AGENT_STEPS})
    if type(described.get("algorithm")) is not int:
        raise ValueError(f"{manifest_path} has no algorithm number")
    _require(manifest_path, described["config"], {"auxiliary": list(PRESETS[preset])})
    if diverged.exists():
        _require(diverged, _read_object(diverged), {"attempts": ATTEMPTS})
        score = reference.published(game, "Random")
    else:
        score = _read_score(scores, place)
    conditions = {name: value for name, value in described.items() if name not in _IDENTITY}
    return Run(
        directory,
        preset,
        game,
        seed,
        score,
        diverged.exists(),
        {**conditions, "protocol": protocol},
        described["config"],
    )


def _read_score(path: pathlib.Path, place: dict[str, Any]) -> float:
    """The mean return in a scores.json that belongs to `place` and holds every episode."""
    scores = _read_object(path)
    _require(path, scores, {**place, "agent_steps": AGENT_STEPS, "episodes": EPISODES})
    returns, mean = scores.get("returns"), scores.get("mean")
    numbers = [*returns, mean] if isinstance(returns, list) else [None]
    if not all(type(x) in (int, float) and math.isfinite(x) for x in numbers):
        raise ValueError(f"{path} has a return that is not a number, or none")
    if len(returns) != EPISODES:
        raise ValueError(f"{path} holds {len(returns)} returns, expected {EPISODES}")
    if not math.isclose(np.mean(returns), mean, rel_tol=1e-9, abs_tol=1e-9):
        raise ValueError(f"{path}: the mean is {mean}, but its returns give {np.mean(returns)}")
    return mean


def _read_object(path: pathlib.Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path} is missing") from None
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: not a JSON object")
    return value


def _require(path: pathlib.Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Raises ValueError where `found` differs from `expected`."""
    for name, value in expected.items():
        if found.get(name) != value:
            raise ValueError(f"{path}: {name} is {found.get(name)!r}, expected {value!r}")


def _require_equal(runs: Sequence[Run], fields: Callable[[Run], dict[str, Any]]) -> None:
    """Raises ValueError where a run differs from the first one in one of `fields`."""
    for run in runs[1:]:
        own, first = fields(run), fields(runs[0])
        for name in {**first, **own}:
            if own.get(name) != first.get(name):
                raise ValueError(
                    f"{run.directory}: {name} is {own.get(name)!r}, "
                    f"but {first.get(name)!r} in {runs[0].directory}"
                )


def _outside_the_loss(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name not in _LOSS_FIELDS}


def main(argv: list[str]) -> None:
    """Prints the page and writes it beside the results."""
    del argv
    results = pathlib.Path(_RESULTS.value)
    try:
        text = page(read_runs(results))
        with files.replacing(results / "README.md") as partial:
            partial.write_text(
                "# `rcrl` against `erainbow_sa`\n\n"
                f"Written by `python -m benchmarks.claim --results={_RESULTS.value}`; list and "
                f"test are those of docs/preregistration.md.\n\n{text}\n",
                encoding="utf-8",
            )
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    print(text)


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
