"""The runs of pre-registered questions, for `benchmarks.claim`, `base` and `minatar`.

Where a table leaves out a damaged or deviating run with a note, this stops with an error.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from absl import flags

from rcrl_jax import files, reference
from rcrl_jax.programs import command_line
from rcrl_jax.tables import pools, runs, statistics

# `--help` lists the flags of the program's own module. Flags defined here count as the caller's.
flags.disclaim_key_flags()

PRESETS = ("rcrl", "erainbow_sa")
"""The two arms; the claim is that the first scores higher."""
STEPS = 100_000
"""Agent steps of a run, and environment steps."""
EPISODES = 100
"""Episodes of the final evaluation."""
COMMAND = "python -m benchmarks.claim --results=results/claim"
"""The program that alone decides the claim."""


class Experiment(NamedTuple):
    """Pairs of runs of `PRESETS`, judged once: when all of them are finished."""

    games: tuple[str, ...]
    seeds: range

    @property
    def num_pairs(self) -> int:
        """Pairs of all games and seeds."""
        return len(self.games) * len(self.seeds)

    def holds(self, frame: pd.DataFrame) -> pd.Series:
        """Which runs belong to it, in whatever directory they lie."""
        is_arm = frame.settings.isin(PRESETS) & (frame.env_steps == STEPS)
        return is_arm & frame.game.isin(self.games) & frame.seed.isin(self.seeds)

    def paired_scores(self, frame: pd.DataFrame) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """The raw scores of its finished pairs, in the largest set of equal conditions.

        Returns:
            For each of `PRESETS` one array `[n_g]` for each game; position i is the same seed.
        """
        own = frame[self.holds(frame) & frame.score.notna()]
        own = own.assign(arm=own.settings)  # a run may have a name of its own
        return pools.paired_scores(pools.largest(own).runs, *PRESETS, self.games)

    def finished_pairs(self, frame: pd.DataFrame) -> int:
        """How many of its pairs are finished."""
        return sum(map(len, self.paired_scores(frame)[0]))

    def is_finished(self, frame: pd.DataFrame) -> bool:
        """Whether all of its pairs are."""
        return self.finished_pairs(frame) == self.num_pairs


CLAIM = Experiment(("Hero", "UpNDown", "Asterix", "MsPacman"), range(9))
"""The list of the claim."""
LARGER = Experiment(reference.games(), range(100, 126))
"""The list that could decide the mean published difference."""


def holds_any(frame: pd.DataFrame) -> bool:
    """Whether any run is on a list; lists are judged once, and get no intervals elsewhere."""
    return bool((CLAIM.holds(frame) | LARGER.holds(frame)).any())


def read_runs(results: pathlib.Path, presets: Sequence[str]) -> pd.DataFrame:
    """Reads every finished run of the presets below `<results>/<preset>`.

    Runs without a result are skipped.

    Raises:
        ValueError: a run is damaged, contradicts another one, or has another agent, number of
            steps or episodes than the list; or runs differ in algorithm, backend or protocol. The
            message names the file or directory.
    """
    frame = read_finished(*(results / preset for preset in presets))
    for run in frame.itertuples():
        preset, agent = (run.preset in presets, run.preset), (run.arm == run.preset, run.arm)
        refuse_unlisted(run, {"preset": preset, "agent": agent}, STEPS, EPISODES)
    for name in pools.differing(frame):
        if name in ("algorithm", "backend", "evaluation_period") or name.startswith("protocol."):
            refuse_differing(frame, name)
    return frame


def read_finished(*roots: pathlib.Path) -> pd.DataFrame:
    """Reads every finished run below those of the directories that exist; arms by their settings.

    Raises:
        ValueError: a run is damaged, or contradicts another one.
    """
    frame, problems = runs.read(*filter(pathlib.Path.is_dir, roots), unfinished=True)
    if problems:
        raise ValueError(problems[0])
    return frame[frame.score.notna()].assign(arm=frame.settings)


def refuse_unlisted(run: Any, own: dict[str, tuple[bool, Any]], steps: int, episodes: int) -> None:
    """Raises ValueError unless a run fits its list; `own`: name -> whether it fits, its value."""
    played = run.returns and len(run.returns)
    expected = own | {
        "steps": (run.agent_steps == steps, run.agent_steps),
        "episodes": (run.diverged or played == episodes, played),
        "algorithm": (type(run.algorithm) is int, run.algorithm),
    }
    for name, (is_listed, value) in expected.items():
        if not is_listed:
            raise ValueError(f"{run.directory}: {name} is {value!r}, not that of the list")


def refuse_differing(frame: pd.DataFrame, name: str) -> None:
    """Raises ValueError, which names two runs that differ in a column, if there are any."""
    values = frame[name].map(pools.text)
    for other in frame[values != values.iloc[0]].itertuples() if len(frame) else ():
        raise ValueError(
            f"{other.directory}: {name} is {values[other.Index]}, but {values.iloc[0]} in "
            f"{frame.directory.iloc[0]}"
        )


def verdict(test: statistics.RankTest, level: float, first: str, second: str) -> str:
    """What a test on complete runs says of "the first arm scores higher", in words."""
    if test.p_value > level:
        return f"undecided: the test finds no difference between `{first}` and `{second}`"
    if test.statistic > 0:
        return f"supported: `{first}` scores higher than `{second}`"
    return f"contradicted: `{first}` scores lower than `{second}`"


def start(
    program: str,
    make_page: Callable[[pathlib.Path], str],
    *,
    title: str,
    note: str,
) -> None:
    """Runs a program that reads the list: prints its page and writes it beside the results.

    A mistake is one line and exit code 2.

    Args:
        program: its module in `benchmarks`, and the usual directory in `results`.
        make_page: the page as Markdown, of the directory of the finished runs.
        title: of the page.
        note: follows the command on the page.
    """
    flags.DEFINE_string("results", f"results/{program}", "directory of the finished runs")
    mark = f"# {title}\n\nWritten by `python -m benchmarks.{program}"

    def write(given: flags.FlagValues) -> None:
        results = pathlib.Path(given.results)
        if not results.is_dir():
            raise ValueError(f"--results: there is no directory {results}")
        page = results / "README.md"
        if page.exists() and not files.read_bytes(page).startswith(mark.encode()):
            raise ValueError(f"{page} was not written by this program; move it away")
        text = make_page(results)
        with files.replacing(page) as partial:
            partial.write_text(f"{mark} --results={results}`; {note}\n\n{text}\n", encoding="utf-8")
        print(text)

    command_line.run(write)
