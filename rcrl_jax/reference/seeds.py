"""Published scores of single runs, and how each agent's figures were taken.

These rows are other authors' runs, for reference only: no study here counts them as its own. A seed
is the label in the source's file; labels of different agents have nothing in common.
"""

import functools
from typing import NamedTuple

from rcrl_jax.reference import tables


class AtariRunScore(NamedTuple):
    """Final raw score of one published run at 100k agent steps."""

    agent: str
    game: str
    seed: int
    score: float
    source: str


class DmcRunScore(NamedTuple):
    """Return of one published run at the logged step nearest to 100k or 500k environment steps."""

    agent: str
    task: str
    env_steps: int
    seed: int
    score: float
    source: str


class DmcCurvePoint(NamedTuple):
    """Return of one published run after `env_steps` environment steps."""

    agent: str
    task: str
    env_steps: int
    seed: int
    score: float


class ProtocolNote(NamedTuple):
    """How the published figures of one agent were taken.

    Attributes:
        benchmark: `atari` or `dmc`.
        agent: its name in the tables.
        note: runs, policy, last or best, and what differs from our protocol; one short line.
    """

    benchmark: str
    agent: str
    note: str


@functools.cache
def atari100k_runs() -> tuple[AtariRunScore, ...]:
    """14,066 published runs on Atari-100k: 17 agents, 5 to 100 runs on each of the 26 games."""
    return tables.read("atari100k_raw_seeds.csv.gz", AtariRunScore)


@functools.cache
def dmc_runs() -> tuple[DmcRunScore, ...]:
    """Published runs of nine agents on the six DMControl tasks, at 100k and at 500k steps."""
    return tables.read("dmc_raw_seeds.csv.gz", DmcRunScore)


@functools.cache
def dmc_curves() -> tuple[DmcCurvePoint, ...]:
    """The learning curves of the runs of `dmc_runs`, at the steps that their authors logged."""
    return tables.read("dmc_curves.csv.gz", DmcCurvePoint)


@functools.cache
def protocol_notes() -> tuple[ProtocolNote, ...]:
    """A note on every agent of every table."""
    return tables.read("protocol_notes.csv", ProtocolNote)


def protocol_note(benchmark: str, agent: str) -> str:
    """The note on an agent, as a footnote for its row or line.

    Args:
        benchmark: `atari` or `dmc`; some names stand in both.
        agent: its name in the tables.

    Raises:
        LookupError: no table has such an agent.
    """
    notes = {(row.benchmark, row.agent): row.note for row in protocol_notes()}
    if (benchmark, agent) not in notes:
        raise LookupError(f"no published figures of agent {agent!r} on benchmark {benchmark!r}")
    return notes[benchmark, agent]
