r"""Tabulates how well the discriminator of each reading separates pairs of unseen episodes.

    python -m benchmarks.mechanism --results=results/mechanism

Reads the runs of `campaigns/mechanism_*.toml`, `<results>/<stage>/<arm>/<preset>/<game>/seed_<n>`,
and writes `<results>/table.md`, every run at its last step, and `<results>/auc.png`, the same over
training. The score of a reading is the mean over seeds of its worst game. Beside each area stand
that of a clock on the same pairs and that of pairs at matched time, where a run recorded them.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import app, flags
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from experiments import command_line
from rcrl_jax import files
from rcrl_jax.runs import records
from rcrl_jax.training import curves

MEASURE = "unseen_auc_equal_action"
_AUCS = {
    MEASURE: "AUC, equal action",
    "unseen_auc": "AUC, all pairs",
    "unseen_auc_equal_return": "AUC across games",
}
_COLUMNS = {
    name + kind: words or own
    for name, own in _AUCS.items()
    for kind, words in (("", ""), ("_clock", "its clock"), ("_matched_time", "at matched time"))
} | {
    "unseen_auc_action": "AUC of actions alone",
    "unseen_cosine_positive_equal_action": "cosine, positive",
    "unseen_cosine_negative_equal_action": "cosine, negative",
}
_COLORS = ("C0", "C1", "C2", "C3", "C4", "black", "C9", "C8")  # easily told apart


class Run(NamedTuple):
    """A finished run and its evaluations, the last of which counts."""

    stage: str
    arm: str
    game: str
    seed: int
    evaluations: Sequence[Mapping[str, float | None]]

    @property
    def value(self) -> float:
        """The measure at the last step; NaN if the games had too few pairs to measure."""
        return _number(self.evaluations[-1][MEASURE])


def read_runs(results: pathlib.Path) -> list[Run]:
    """The finished runs below `results`, in the order of stage, arm, game and seed.

    Raises:
      ValueError: there is none, or a file is damaged; the message names it.
    """
    runs = []
    for scores in sorted(results.glob("*/*/*/*/seed_*/scores.json")):
        stage, arm, _, game, seed = scores.relative_to(results).parts[:5]
        evaluations = records.read_records(scores.with_name("evaluations.jsonl"))
        if not evaluations or MEASURE not in evaluations[-1]:
            raise ValueError(f"{scores.parent}: the last evaluation has no {MEASURE}")
        runs.append(Run(stage, arm, game, int(seed.removeprefix("seed_")), evaluations))
    if not runs:
        raise ValueError(f"{results} holds no finished run of a stage")
    return runs


def worst_game(runs: Sequence[Run]) -> tuple[str, float]:
    """The game with the smallest mean over seeds of the measure, and that mean.

    Runs with nothing to measure are left out; NaN if no run is left.
    """
    means = {
        game: np.mean([r.value for r in runs if r.game == game and np.isfinite(r.value)])
        for game in dict.fromkeys(r.game for r in runs if np.isfinite(r.value))
    }
    if not means:
        return "-", float("nan")
    game = min(means, key=means.__getitem__)
    return game, float(means[game])


def table(runs: Sequence[Run]) -> str:
    """Markdown: for each stage one row per arm, then one row per run."""
    text = []
    for stage in dict.fromkeys(run.stage for run in runs):
        own = [run for run in runs if run.stage == stage]
        text += [f"## Stage {stage}", "", "| reading | worst game | mean over its seeds | runs |",
                 "| --- | --- | --- | --- |"]  # fmt: skip
        for arm in dict.fromkeys(run.arm for run in own):
            of_arm = [run for run in own if run.arm == arm]
            game, mean = worst_game(of_arm)
            text.append(f"| `{arm}` | {game} | {_cell(mean)} | {len(of_arm)} |")
        columns = ["reading", "game", "seed", "steps", *_COLUMNS.values()]
        text += ["", f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
        for run in own:
            last = run.evaluations[-1]
            cells = [f"`{run.arm}`", run.game, str(run.seed), str(last["agent_steps"])]
            cells += [_cell(_number(last.get(name))) for name in _COLUMNS]
            text.append(f"| {' | '.join(cells)} |")
        text.append("")
    return "\n".join(text)


def draw(runs: Sequence[Run], path: pathlib.Path) -> None:
    """Draws the measure over training: a row for each stage, a panel for each of its games.

    Dotted: a clock on the same pairs, where it was recorded.
    """
    games: dict[str, dict[str, None]] = {}  # of each stage, in their order
    for run in runs:
        games.setdefault(run.stage, {})[run.game] = None
    stages, most = list(games), max(len(of_stage) for of_stage in games.values())
    arms = list(dict.fromkeys(run.arm for run in runs))
    size = (1.5 + 3.5 * most, 1 + 2.6 * len(stages))
    figure = Figure(figsize=size, dpi=100, layout="constrained")
    panels = figure.subplots(len(stages), most, squeeze=False, sharey=True)
    for run in runs:
        panel = panels[stages.index(run.stage), list(games[run.stage]).index(run.game)]
        steps = [record["agent_steps"] for record in run.evaluations]
        color = _COLORS[arms.index(run.arm) % len(_COLORS)]
        clock = [_number(record.get(f"{MEASURE}_clock")) for record in run.evaluations]
        panel.plot(steps, clock, ":", color=color, linewidth=1, label="_clock")
        values = [_number(record.get(MEASURE)) for record in run.evaluations]
        panel.plot(steps, values, "o-", color=color, markersize=3, label=run.arm)
        panel.set_title(f"{run.game}, stage {run.stage}")
    handles = {line.get_label(): line for panel in panels.flat for line in panel.lines}
    for panel in panels.flat:
        if not panel.lines:
            panel.remove()
            continue
        panel.axhline(0.5, color="#888888", linewidth=0.8)
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        panel.grid(color="#eeeeee")
    named = [arm for arm in arms if arm in handles]
    figure.legend([handles[arm] for arm in named], named, loc="outside lower center", ncols=3)
    figure.supylabel("AUC, equal action", fontsize=10)
    curves.save_figure(figure, path)


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _cell(value: float) -> str:
    return f"{value:.3f}" if np.isfinite(value) else "–"


def main(argv: list[str]) -> None:
    """Writes the table and the figure."""
    del argv
    results = pathlib.Path(flags.FLAGS.results)
    try:
        runs = read_runs(results)
        text = table(runs)
        with files.replacing(results / "table.md") as partial:
            head = (
                "# Every run at its last step\n\n–: its games left nothing to measure. Of clock "
                "and matched time: the run is older than this record.\n\n"
            )
            partial.write_text(head + text, encoding="utf-8")
        draw(runs, results / "auc.png")
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    print(text)


if __name__ == "__main__":
    # Defined here, because another imported program may define a flag of the same name.
    flags.DEFINE_string("results", "results/mechanism", "directory of the stages")
    app.run(main, flags_parser=command_line.parse)
