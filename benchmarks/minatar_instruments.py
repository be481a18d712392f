"""What the return-contrastive discriminator tells apart on small games: a section of their page.

`rcrl_jax/return_contrast/instruments.py` measured it at every evaluation, on episodes that the
agent has not trained on. The numbers stand in the runs' `evaluations.jsonl`.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from rcrl_jax.programs import markdown
from rcrl_jax.runs import records
from rcrl_jax.training.nulls import plus_minus, with_error

KINDS = {
    "unseen_auc": "one episode",
    "unseen_auc_equal_action": "one episode, equal action",
    "unseen_auc_equal_return": "two episodes, equal or unequal return",
}
"""Name of an AUC -> the pairs that it compares."""
SEEDS = range(10)


def section(runs: pd.DataFrame, arms: Sequence[str], games: Sequence[str]) -> str:
    """A table of the AUC at every evaluation, of each game and arm with a finished run; Markdown.

    Args:
        runs: with columns `arm`, `game`, `seed` and `directory`.
        arms: that have the task.
        games: in the order of rows.
    """
    shown = runs[runs.seed.isin(SEEDS) & runs.arm.isin(arms)]
    rows = []
    for game in games:
        for arm in arms:
            own = shown[(shown.game == game) & (shown.arm == arm)]
            rows += [[game, f"`{arm}`", *row] for row in _rows([*own.directory])]
    head = ["game", "arm", "agent steps", "runs", *KINDS.values()]
    return (
        "Each cell: AUC of the discriminator; in brackets that of a clock on the same pairs; after "
        "the semicolon the discriminator's AUC if an anchor's partners are equally far from it in "
        f"time, where a clock has 0.5. Means over seeds {SEEDS[0]} to {SEEDS[-1]}, ± standard "
        "error; [n] where only n runs had enough pairs. Only an AUC above the clock's, or above "
        "0.5 at equal distance, can come from returns.\n\n"
        f"{markdown.table(head, rows)}"
    )


def _rows(directories: Sequence) -> list[list[str]]:
    """Agent steps, number of runs, and a cell of each of `KINDS`, for each evaluation."""
    runs = [records.read_evaluations(path / "evaluations.jsonl") for path in directories]
    lines = pd.DataFrame([line for lines in runs for line in lines])
    if not len(lines):
        return []
    return [
        [f"{steps:,}", str(len(own)), *(_cell(own, kind) for kind in KINDS)]
        for steps, own in lines.groupby("agent_steps")
    ]


def _cell(lines: pd.DataFrame, kind: str) -> str:
    """The AUC of the discriminator, of the clock, and at equal distance in time."""
    found, clock, matched = (
        _mean(lines.get(f"{kind}{suffix}")) for suffix in ("", "_clock", "_matched_time")
    )
    return f"{found} ({clock}); {matched}"


def _mean(values: pd.Series | None) -> str:
    measured = np.array([] if values is None else values.dropna(), np.float64)
    if not len(measured):
        return "–"
    few = f" [{len(measured)}]" if len(measured) < len(values) else ""
    return plus_minus(with_error(measured), 3) + few
