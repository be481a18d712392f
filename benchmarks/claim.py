r"""Tests the claim "`rcrl` scores higher than `erainbow_sa`" on the finished runs.

    python -m benchmarks.claim --results=results/claim

Reads `<results>/<preset>/<game>/seed_<n>/{scores.json,manifest.json}` and writes
`<results>/README.md`. The list of runs, the test and what counts as a run were fixed beforehand in
docs/preregistration.md. No p value is computed before the list is complete.
"""

import pathlib
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from experiments import command_line
from rcrl_jax import files, reference, statistics
from rcrl_jax.report import claims
from rcrl_jax.results.runs import ATTEMPTS, Run, read_run

_RESULTS = flags.DEFINE_string("results", "results/claim", "directory of the finished runs")

PRESETS = {"rcrl": ("return_contrast",), "erainbow_sa": ()}
"""The two arms and their auxiliary tasks; the claim is that the first scores higher."""
GAMES, SEEDS = claims.PREREGISTERED_GAMES, claims.PREREGISTERED_SEEDS
AGENT_STEPS = 100_000
EPISODES = 100
LEVEL = 0.05
PERMUTATIONS = 100_000
RESAMPLES = 50_000
SEED = 0
"""Seed of the permutations, and again of the resamples."""

_PAIRS = len(GAMES) * len(SEEDS)
_IDENTITY = ("preset", "game", "seed", "config")
_LOSS_FIELDS = ("auxiliary", "return_contrast")
"""Fields in which the configurations of the two presets may differ."""


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
            if (
                not re.fullmatch(r"seed_(0|[1-9]\d*)", directory.name)
                or directory.parent.name not in reference.games()
            ):
                raise ValueError(f"{directory} is no <game>/seed_<n>")
            run = _read_run(directory)
            runs += [run] if run else []
    _require_equal(runs, _conditions)
    _require_equal(runs, lambda run: _outside_the_loss(_config(run)))
    for preset in PRESETS:
        _require_equal([run for run in runs if run.preset == preset], _config)
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


def _read_run(directory: pathlib.Path) -> Run | None:
    """Reads one run, or None if it has no result yet."""
    if not any((directory / name).exists() for name in ("scores.json", "diverged.json")):
        return None
    # Evaluations during training take no part in the claim.
    run = read_run(directory, with_evaluations=False)
    manifest = directory / "manifest.json"
    described = run.manifest["run"]
    _require(manifest, described, {"steps": AGENT_STEPS})
    if "algorithm" not in described:
        raise ValueError(f"{manifest} has no algorithm number")
    _require(manifest, _config(run), {"auxiliary": list(PRESETS[run.preset])})
    if not run.diverged:
        _require(directory / "scores.json", {"episodes": len(run.returns)}, {"episodes": EPISODES})
    return run


def _config(run: Run) -> dict[str, Any]:
    """Every hyperparameter."""
    return run.manifest["run"]["config"]


def _conditions(run: Run) -> dict[str, Any]:
    """What must be the same in every run: algorithm, backend, steps, protocol."""
    described = run.manifest["run"].items()
    own = {name: value for name, value in described if name not in _IDENTITY}
    return {**own, "protocol": run.manifest["protocol"]}


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
