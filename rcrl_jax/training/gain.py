"""What the runs of a game have gained: their scores, compared with play without learning."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rcrl_jax import files, words
from rcrl_jax.runs import records
from rcrl_jax.training import build, curves, evaluation, nulls
from rcrl_jax.training.nulls import with_error
from rcrl_jax.training.plan import Plan
from rcrl_jax.training.progress import Progress


def report(plan: Plan, say: Callable[[str], None] = words.say) -> None:
    """Plays the final evaluation's episodes without learning, and says what was gained.

    Writes `gain.json` and `gain.png` beside the runs of each game and prints one sentence per game.

    Args:
      plan: a finished experiment.
      say: prints a line for the user.

    Raises:
      Damaged: a run's scores or metrics are damaged.
      OSError: a file cannot be read or written.
    """
    measured = _measure(plan)
    for game in dict.fromkeys(run.game for run in plan.runs):
        rows = [row for row, run in enumerate(plan.runs) if run.game == game]
        seeds = [measured[row] for row in rows]
        paths = [plan.paths[row] for row in rows]
        gained = over_seeds(seeds)
        folder = paths[0].directory.parent
        described = {
            "agent_steps": plan.total_steps,
            **gained,
            "runs": {path.directory.name: one for path, one in zip(paths, seeds, strict=True)},
        }
        files.write_json_atomically(folder / "gain.json", files.to_json_value(described))
        lines = {nulls.PLAYS[name]: gained[name]["mean"] for name in nulls.PLAYS}
        picture = folder / "gain.png"
        curves.draw_mean_curve(paths, plan.total_steps, gained["policy"], lines, picture)
        say(f"picture in {picture}")
        say(describe(plan.preset, game, plan.total_steps, gained))


def _measure(plan: Plan) -> list[dict[str, Any]]:
    """`nulls.measure` for all runs, with a progress bar."""
    returns = np.array([records.read_scores(paths.scores)["returns"] for paths in plan.paths])
    environment, fleet = build.make_fleet(plan)
    environment.close()
    games = evaluation.Games(plan.make_environment, plan.total_steps, range(returns.shape[1]))
    number = fleet.num_runs * nulls.count_games(fleet, plan.eval_episodes)
    with Progress(number, unit="episodes") as progress:
        evaluate = functools.partial(
            evaluation.evaluate, after_step=lambda *step: progress.advance(int(step[-1].sum()))
        )
        return nulls.measure(fleet, returns, nulls.play_of(fleet, games, evaluate))


def over_seeds(measured: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compares the agents of R seeds with the best kind of play without learning.

    Args:
      measured: `[R]`, as `nulls.measure` returns them, of the runs of one game.

    Returns:
      `policy` and each kind of play: the mean over seeds of the mean return, with its standard
      error over seeds (None for one seed). `best_null`: the kind with the largest mean. `gain`: the
      mean over seeds of `policy` minus `best_null`, with its standard error. `standard_errors`: the
      gain divided by its standard error; None if that is 0 or unknown.
    """
    means = {
        name: np.array([one[name]["mean"] for one in measured]) for name in ("policy", *nulls.PLAYS)
    }
    best = max(nulls.PLAYS, key=lambda name: means[name].mean())
    gain = with_error(means["policy"] - means[best])
    error = gain["standard_error"]
    return {
        "seeds": len(measured),
        **{name: with_error(values) for name, values in means.items()},
        "best_null": best,
        "gain": gain,
        "standard_errors": gain["mean"] / error if error else None,
    }


def describe(preset: str, game: str, agent_steps: int, gained: Mapping[str, Any]) -> str:
    """What `over_seeds` returns, in one sentence."""
    best = gained["best_null"]
    gain = gained["gain"]["mean"]
    errors = gained["standard_errors"]
    amount = nulls.plus_minus({**gained["gain"], "mean": abs(gain)}, 2)
    far = "" if errors is None else f", {abs(errors):.1f} standard errors over seeds"
    return (
        f"{preset} on {game}, {words.count('seed', gained['seeds'])} of {agent_steps:,} steps: the "
        f"agents score {nulls.plus_minus(gained['policy'], 2)}, the best play without learning "
        f"({nulls.PLAYS[best]}) {nulls.plus_minus(gained[best], 2)}; the agents are {amount} "
        f"{'above' if gain >= 0 else 'below'} it{far}"
    )
