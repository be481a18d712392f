"""The table of the discriminator's instruments on small games."""

import math
import pathlib

import pandas as pd

from benchmarks import minatar_instruments
from tests.tables.synthetic import write_lines


def write(directory: pathlib.Path, *lines: dict[str, float]) -> pathlib.Path:
    directory.mkdir(parents=True)
    write_lines(
        directory / "evaluations.jsonl",
        [{"env_steps": 1, "frames": 1, "returns": [1.0], "mean": 1.0, "episodes_cut": 0} | line
         for line in lines],
    )  # fmt: skip
    return directory


def test_means_over_the_first_seeds_stand_beside_their_nulls(tmp_path):
    runs = [
        write(
            tmp_path / f"{arm}_{seed}",
            {"agent_steps": 6000, "unseen_auc": auc, "unseen_auc_clock": 0.5,
             "unseen_auc_matched_time": math.nan},
            {"agent_steps": 12_000, "unseen_auc_equal_return": auc},
        )
        for arm, seed, auc in (("a", 0, 0.7), ("a", 9, 0.9), ("a", 10, 0.1), ("b", 0, 0.6))
    ]  # fmt: skip
    frame = pd.DataFrame(
        {"arm": ["a", "a", "a", "b"], "game": "Breakout", "seed": [0, 9, 10, 0], "directory": runs}
    )
    text = minatar_instruments.section(frame, ("a", "b", "c"), ("Seaquest", "Breakout"))
    # Half the difference of 0.7 and 0.9 is the standard error of their mean.
    assert [line for line in text.splitlines() if "Breakout" in line] == [
        "| Breakout | `a` | 6,000 | 2 | 0.800 ± 0.100 (0.500 ± 0.000); – | – (–); – | – (–); – |",
        "| Breakout | `a` | 12,000 | 2 | – (–); – | – (–); – | 0.800 ± 0.100 (–); – |",
        "| Breakout | `b` | 6,000 | 1 | 0.600 (0.500); – | – (–); – | – (–); – |",
        "| Breakout | `b` | 12,000 | 1 | – (–); – | – (–); – | 0.600 (–); – |",
    ]
    assert "Seaquest" not in text
