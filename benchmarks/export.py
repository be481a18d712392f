r"""Writes our runs as score files of rliable, marl-eval and DreamerV3.

    python -m benchmarks.export --results=results --steps=100000 --output=runs/export

Exports the largest set of finished runs with equal conditions, for Atari and for DMControl, and
prints what is left out. Files, for `atari` and `dmc`:

    rliable_atari_{raw,normalised}.npz   arm -> scores [runs, games]
    rliable_atari.json                   the games and seeds of the arrays, and their conditions
    marl_eval_atari.json                 every evaluation
    dreamerv3/atari-<arm>.json.gz        learning curves
"""

import pathlib
from collections.abc import Sequence

from absl import app, flags

from benchmarks.tables import formats, pools, runs
from experiments import command_line
from rcrl_jax import reference


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
        of_family = reference.games() if own.family.iloc[0] == "atari" else reference.tasks()
        wanted = games or [*own.game]
        columns = [game for game in of_family if game in wanted]
        paths, left_out = formats.write(own, columns, pathlib.Path(output))
        written += paths
        lines += left_out
    return [*lines, f"exported runs: {len(pool.runs)}", *(f"  {path}" for path in written)]


def main(argv: list[str]) -> None:
    """Exports what the flags say."""
    del argv
    given = flags.FLAGS
    try:
        lines = run(
            given.results,
            given.output,
            steps=given.steps,
            arms=given.arm,
            games=given.games,
        )
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    print("\n".join(lines))


if __name__ == "__main__":
    flags.DEFINE_list("results", ["results"], "directories of runs, at any depth")
    flags.DEFINE_string("output", "runs/export", "directory to write to")
    flags.DEFINE_integer("steps", None, "budget of the runs [environment steps]; without it any", 1)
    flags.DEFINE_multi_string(
        "arm", [], "arm to export, for example rcrl; may be given again; without it all"
    )
    flags.DEFINE_list(
        "games", [], "columns of the matrices; without it all games that an exported run has"
    )
    app.run(main, flags_parser=command_line.parse)
