"""Reads the runs of a pre-registered question, more strictly than a table does.

A run that a table would leave out with a line ends the program here: docs/preregistration.md says
what counts, and nothing may be missing without a word.
"""

import pathlib
from collections.abc import Sequence

import pandas as pd

from benchmarks.tables import claims, pools, runs

EPISODES = 100
"""Of the final evaluation."""


def read_runs(results: pathlib.Path, presets: Sequence[str]) -> pd.DataFrame:
    """Reads every finished run of the presets below `<results>/<preset>`.

    Runs without a result are skipped.

    Raises:
        ValueError: a run is damaged, contradicts another one, or has another agent, number of
            steps or episodes than the list; or runs differ in algorithm, backend or protocol. The
            message names the file or directory.
    """
    if not results.is_dir():
        raise ValueError(f"--results: there is no directory {results}")
    roots = [results / preset for preset in presets if (results / preset).is_dir()]
    frame, problems = runs.read(*roots, unfinished=True)
    if problems:
        raise ValueError(problems[0])
    frame = frame[frame.score.notna()]
    for run in frame.itertuples():
        expected = {
            "preset": (run.preset in presets, run.preset),
            "agent": (run.arm == run.preset, run.arm),
            "steps": (run.agent_steps == claims.PREREGISTERED_STEPS, run.agent_steps),
            "episodes": (
                run.diverged or len(run.returns) == EPISODES,
                run.returns and len(run.returns),
            ),
            "algorithm": (type(run.algorithm) is int, run.algorithm),
        }
        for name, (is_listed, value) in expected.items():
            if not is_listed:
                raise ValueError(f"{run.directory}: {name} is {value!r}, not that of the list")
    _require_one_protocol(frame)
    return frame


def _require_one_protocol(frame: pd.DataFrame) -> None:
    """Raises ValueError where runs differ in what docs/preregistration.md refuses."""
    for name in pools.differing(frame):
        if name in ("algorithm", "backend") or name.startswith("protocol."):
            values = frame[name].map(pools.text)
            other = frame[values != values.iloc[0]].iloc[0]
            raise ValueError(
                f"{other.directory}: {name} is {pools.text(other[name])}, but {values.iloc[0]} in "
                f"{frame.directory.iloc[0]}"
            )
