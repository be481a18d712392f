"""Published runs, curves and notes as data frames; data/README.md says what they are.

These are other authors' runs: no table counts them as ours. A seed is the label in the source's
file; labels of different agents have nothing in common.
"""

import functools
import importlib.resources

import numpy as np
import pandas as pd

from rcrl_jax import reference

BUDGETS = {"atari": (100_000,), "dmc": (500_000, 100_000), "minatar": (30_000,), "own": ()}
"""Budgets of the published scores, in environment steps; on MinAtar, of our runs."""


@functools.cache
def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(importlib.resources.files("rcrl_jax.tables") / "data" / name)


def atari_budgets() -> pd.DataFrame:
    """Table 2: `game, agent, env_interactions, score` of two agents at 100k and 1.5M steps."""
    return _read("atari1p5m_scores.csv")


def atari_runs() -> pd.DataFrame:
    """14,066 runs on Atari-100k, `agent, game, seed, score`: 17 agents, 5 to 100 runs a game."""
    return _read("atari100k_raw_seeds.csv.gz")


def curl_runs() -> dict[str, np.ndarray]:
    """The final scores of 100 runs of CURL on each of the 26 games, `[100]`."""
    own = atari_runs().query("agent == 'CURL [rliable, final]'")
    return {game: own.score[own.game == game].to_numpy() for game in reference.games()}


def dmc_curves() -> pd.DataFrame:
    """Learning curves, `agent, task, env_steps, seed, score`, at the steps that were logged."""
    return _read("dmc_curves.csv.gz")


def notes() -> pd.DataFrame:
    """`benchmark, agent, note`: how the published figures of each agent were taken."""
    return _read("protocol_notes.csv")


def note(benchmark: str, agent: str) -> str:
    """The note on an agent.

    Args:
        benchmark: `atari` or `dmc`; some names stand in both.
        agent: its name in the tables.
    """
    return notes().query("benchmark == @benchmark and agent == @agent").note.item()
