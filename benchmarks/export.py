r"""Writes our runs as score files of rliable, marl-eval and DreamerV3.

    python -m benchmarks.export --results=results --steps=100000 --output=runs/export

Exports the largest set of finished runs with equal conditions, for Atari and for DMControl, and
prints what is left out. Files, for `atari` and `dmc`:

    rliable_atari_{raw,normalised}.npz   arm -> scores [runs, games]
    rliable_atari.json                   the games and seeds of the arrays, and their conditions
    marl_eval_atari.json                 every evaluation, as the README of marl-eval says
    dreamerv3/atari-<arm>.json.gz        learning curves, as in `scores/` of DreamerV3

The first two are rectangular: every run on every game. A run that has no counterpart is left out,
and a line says so. The third takes any runs.
"""

import gzip
import io
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from absl import flags

from benchmarks.tables import command, pools, runs
from rcrl_jax import files, reference

_FRAME_SKIP = {"atari": 4, "dmc": 1}
"""Steps of DreamerV3's files in an environment step: frames on Atari."""


def run(
    results: Sequence[str | pathlib.Path],
    output: str | pathlib.Path,
    *,
    steps: int | None = None,
    arms: Sequence[str] = (),
    games: Sequence[str] = (),
) -> list[str]:
    """Exports runs and says in lines what was written and what is left out.

    Args:
        results: directories of runs, at any depth.
        output: directory to write to.
        steps: budget of the runs, in environment steps; None for any.
        arms: labels of arms; empty for all.
        games: columns of the matrices; empty for all that an exported run has.

    Raises:
        ValueError: an unknown game or arm, or no run to export.
        OSError: a file cannot be written.
    """
    known = (*reference.games(), *reference.tasks())
    for game in games:
        if game not in known:
            raise ValueError(f"--games: unknown game {game!r}; there are {', '.join(known)}")
    frame, problems = runs.read(*results)
    found = frame.arm.unique()
    for arm in arms:
        if arm not in found:
            raise ValueError(f"--arm: no run of {arm!r}; there are {', '.join(found) or 'none'}")
    chosen = frame[
        frame.env_steps.isin([steps] if steps else frame.env_steps)
        & frame.arm.isin(arms or found)
        & frame.game.isin(games or known)
    ]
    if chosen.empty:
        places = ", ".join(map(str, results))
        raise ValueError(
            f"no finished run to export below {places}: {len(frame)} of other arms, games "
            f"or budgets, {len(problems)} unfinished or damaged"
        )
    pool = pools.largest(chosen)
    lines = [*problems, *pool.left_out]
    written: list[pathlib.Path] = []
    for _, own in pool.runs.groupby("family", sort=False):
        wanted = games or [*own.game]
        paths, left_out = write(own, [game for game in known if game in wanted], output)
        written += paths
        lines += left_out
    return [*lines, f"exported runs: {len(pool.runs)}", *(f"  {path}" for path in written)]


def write(
    frame: pd.DataFrame, games: Sequence[str], output: str | pathlib.Path
) -> tuple[list[pathlib.Path], list[str]]:
    """Writes every format below `output`; replaces files of an earlier export.

    Args:
        frame: finished runs of one pool and one family.
        games: the columns of the matrices; games of another family have no run and no column.
        output: directory, made if missing.

    Returns:
        The files, and one line for each thing that a format leaves out.

    Raises:
        OSError: a file cannot be written.
    """
    (pathlib.Path(output) / "dreamerv3").mkdir(parents=True, exist_ok=True)
    family = frame.family.iloc[0]
    of_family = reference.games() if family == "atari" else reference.tasks()
    games = [game for game in games if game in of_family]
    matrices, left_out = _rliable(frame, games)
    evaluations, others = _marl_eval(frame, games)
    written = []
    for name, content in (matrices | evaluations | _dreamer(frame)).items():
        written.append(pathlib.Path(output) / name.format(family))
        with files.replacing(written[-1]) as partial:
            partial.write_bytes(content)
    return written, [
        *(f"rliable: {line}" for line in left_out),
        *(f"marl-eval: {line}" for line in others),
    ]


def _rliable(frame: pd.DataFrame, games: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """A matrix an arm, of the seeds that it has on all games."""
    raw, left_out = {}, []
    for arm, own in frame.groupby("arm", sort=False):
        scores = own.pivot(index="seed", columns="game", values="score").reindex(columns=games)
        if len(complete := scores.dropna()):
            raw[arm] = complete
        left_out += [
            f"{arm}, seed {seed}, is left out: it has no run on {_names(missing.index[missing])}"
            for seed, missing in scores.isna().iterrows()
            if missing.any()
        ]
    if not raw:
        return {}, left_out
    normalised = {
        arm: scores.apply(lambda of_game: reference.normalised(of_game.name, of_game))
        for arm, scores in raw.items()
    }
    conditions = frame.iloc[0][frame.columns.difference([*runs.COLUMNS], sort=False)].dropna()
    description = {
        "games": list(games),
        "seeds": {arm: own.index.tolist() for arm, own in raw.items()},
        "conditions": json.loads(conditions.to_json()),
    }
    return {
        "rliable_{}_raw.npz": _npz(raw),
        "rliable_{}_normalised.npz": _npz(normalised),
        "rliable_{}.json": _json(description),
    }, left_out


def _marl_eval(frame: pd.DataFrame, games: Sequence[str]) -> tuple[dict[str, bytes], list[str]]:
    """All evaluations in marl-eval's nesting: environment, task, algorithm, run, step.

    marl-eval needs the same runs and the same steps everywhere. Kept are the runs with the most
    frequent steps, and of them the seeds that every arm has on every game. Counts are environment
    steps; the metric is `return`; the absolute metric is the final evaluation.
    """
    steps = frame.evaluations.map(lambda own: tuple(e["env_steps"] for e in own))
    counts = steps.value_counts()
    # Of equally frequent steps, those of the run with more evaluations.
    usual = max(counts.index, key=lambda own: (counts[own], len(own)))
    is_kept = (steps == usual) & (steps.map(len) > 0) & frame.returns.notna()
    left_out = [
        f"{directory} is left out: it lacks evaluations that others have"
        for directory in frame.directory[~is_kept]
    ]
    kept = frame[is_kept].sort_values("seed", kind="stable")
    is_common = kept.groupby("seed").seed.transform("size") == kept.arm.nunique() * len(games)
    if rest := sorted({*kept.seed[~is_common]}):
        left_out.append(f"seeds {_names(rest)} are left out: an arm has no such run on a game")
    tasks: dict[str, dict[str, dict[str, Any]]] = {}
    for game in games:
        for own in kept[is_common & (kept.game == game)].itertuples():
            numbered = {
                f"step_{number}": {"step_count": e["env_steps"], "return": list(e["returns"])}
                for number, e in enumerate(own.evaluations)
            }
            numbered["absolute_metrics"] = {"return": list(own.returns)}
            of_arm = tasks.setdefault(_snake(game), {}).setdefault(own.arm, {})
            of_arm[f"seed_{own.seed}"] = numbered
    family = frame.family.iloc[0]
    return {"marl_eval_{}.json": _json({family: tasks})} if tasks else {}, left_out


def _dreamer(frame: pd.DataFrame) -> dict[str, bytes]:
    """Learning curves as DreamerV3's score files hold them, a file an arm, an entry a run.

    `xs` counts frames on Atari and environment steps on DMControl; `ys` are mean returns.
    """
    of_names: dict[str, list[dict[str, Any]]] = {}
    for own in frame[frame.evaluations.map(len) > 0].itertuples():
        name = re.sub(r"[^\w.+]+", "_", own.arm).strip("_")
        curve = {
            "task": f"{own.family}_{_snake(own.game)}",
            "method": own.arm,
            "seed": own.seed,
            "xs": [e["env_steps"] * _FRAME_SKIP[own.family] for e in own.evaluations],
            "ys": [e["score"] for e in own.evaluations],
        }
        of_names.setdefault(name, []).append(curve)
    return {
        # Without a time, equal runs give equal files.
        f"dreamerv3/{{}}-{name}.json.gz": gzip.compress(json.dumps(curves).encode(), mtime=0)
        for name, curves in of_names.items()
    }


def _npz(arrays: dict[str, pd.DataFrame]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **{arm: own.to_numpy() for arm, own in arrays.items()})
    return file.getvalue()


def _json(value: Any) -> bytes:
    return (json.dumps(files.to_json_value(value), indent=2) + "\n").encode()


def _snake(game: str) -> str:
    """`RoadRunner` -> `road_runner`; tasks of DMControl are in this form."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", game).lower()


def _names(values: Sequence[Any]) -> str:
    """The first three of them, and how many more."""
    more = len(values) - 3
    return ", ".join(map(str, values[:3])) + (f" and {more} more" if more > 0 else "")


def _export(given: flags.FlagValues) -> None:
    lines = run(given.results, given.output, steps=given.steps, arms=given.arm, games=given.games)
    print("\n".join(lines))


if __name__ == "__main__":
    command.define_flags(output="runs/export")
    flags.DEFINE_integer("steps", None, "budget of the runs [environment steps]; without it any", 1)
    flags.DEFINE_multi_string(
        "arm", [], "arm to export, for example rcrl; may be given again; without it all"
    )
    flags.DEFINE_list(
        "games", [], "columns of the matrices; without it all games that an exported run has"
    )
    command.carry_out(_export)
