"""The paper's claims as records, and what its own figures say about them."""

from typing import NamedTuple

import numpy as np
import pandas as pd

from benchmarks.tables import published as published_data
from benchmarks.tables import statistics
from rcrl_jax import reference

BUDGET = {"atari": 100_000, "dmc": 500_000}
"""Environment steps of the paper's experiments."""
PREREGISTERED_GAMES = ("Hero", "UpNDown", "Asterix", "MsPacman")
PREREGISTERED_SEEDS = range(9)
"""The list of docs/preregistration.md."""
PREREGISTERED_ARMS = ("rcrl", "erainbow_sa")
PREREGISTERED_STEPS = 100_000


class Claim(NamedTuple):
    """One claim of the paper.

    Attributes:
        first: label of an arm.
        relation: `>` or `=`.
        second: label of the other arm.
        family: `atari` or `dmc`.
        env_steps: budget of the runs, in environment steps.
        statement: the paper's sentence, paraphrased.
        table: number of the paper's table that prints game means for both; None if none does.
    """

    first: str
    relation: str
    second: str
    family: str
    env_steps: int
    statement: str
    table: int | None

    @property
    def decided_by(self) -> str:
        """The command that alone decides the claim, if it is pre-registered; else empty."""
        is_listed = {self.first, self.second} == set(PREREGISTERED_ARMS)
        if is_listed and self.env_steps == PREREGISTERED_STEPS:
            return "python -m benchmarks.claim --results=results/claim"
        return ""

    @property
    def seeds(self) -> range:
        """The seeds on which every game is played under both arms before the claim is judged.

        A claim is judged once, on these seeds: looks at every added pair would decide claims that
        are not so. Equality takes more, because no test stands behind it and intervals of fewer
        pairs cover clearly less than 95 % (`statistics.bootstrap_intervals`).
        """
        return range(10 if self.relation == "=" else 5)

    @property
    def name(self) -> str:
        """The claim in symbols."""
        return f"{self.first} {self.relation} {self.second}"


_ON_ATARI = "on the 26 games of Atari-100k"
ATARI_CLAIMS = (
    Claim(
        "rcrl", ">", "erainbow_sa", "atari", 100_000,
        f"The return-contrastive task raises the median of ERainbow-sa {_ON_ATARI} (Table 1).",
        1,
    ),
    Claim(
        "rcrl_curl", ">", "rcrl", "atari", 100_000,
        f"Adding CURL's task to RCRL raises its score further {_ON_ATARI} (Table 1).",
        1,
    ),
    Claim(
        "curl", ">", "erainbow", "atari", 100_000,
        f"CURL's task raises the score of ERainbow {_ON_ATARI} (Table 1).",
        1,
    ),
    Claim(
        "rcrl", ">", "curl", "atari", 100_000,
        f"RCRL has a higher median than CURL {_ON_ATARI} (Table 1).",
        1,
    ),
    Claim(
        "rcrl_curl", ">", "curl", "atari", 100_000,
        f"RCRL with CURL's task has a higher median than CURL alone {_ON_ATARI} (Table 1).",
        1,
    ),
    Claim(
        "erainbow_sa", "=", "erainbow", "atari", 100_000,
        "A state-action embedding in place of the state embedding changes the performance of "
        f"ERainbow not significantly {_ON_ATARI} (Table 1).",
        1,
    ),
)  # fmt: skip
BUDGET_CLAIMS = (
    Claim(
        "rcrl", ">", "erainbow_sa", "atari", 1_500_000,
        "After 1.5 million interactions RCRL still scores higher than ERainbow-sa on 4 of 5 games "
        "(Table 2).",
        2,
    ),
)  # fmt: skip
DMC_CLAIMS = (
    Claim(
        "rcrl_sac", ">", "sac_aug", "dmc", 500_000,
        "The return-contrastive task raises the score of SAC from pixels on DMControl (figure). "
        "`sac_aug` is `rcrl_sac` without the task.",
        None,
    ),
    Claim(
        "rcrl_sac", ">", "curl_sac", "dmc", 500_000,
        "RCRL scores higher than CURL on DMControl (figure).",
        None,
    ),
)  # fmt: skip
CLAIMS = (*ATARI_CLAIMS, *BUDGET_CLAIMS, *DMC_CLAIMS)


def games(claim: Claim) -> tuple[str, ...]:
    """The games or tasks that the claim is about."""
    return tuple(_published_means(claim)) or reference.tasks()


def published(claim: Claim) -> str:
    """A sentence on the paper's own figures: means of games, without any spread."""
    means = _published_means(claim)
    if not means:
        return "The paper prints curves and no figures."
    first, second = (np.array(scores) for scores in zip(*means.values(), strict=True))
    iqm = [
        100
        * statistics.interquartile_mean_of_game_means(
            [np.array([reference.human_normalised(*one)]) for one in zip(means, arm, strict=True)]
        )
        for arm in (first, second)
    ]
    names = [reference.PAPER_COLUMN[arm] for arm in (claim.first, claim.second)]
    return (
        f"Published: {names[0]} is higher in {np.sum(first > second)} and lower in "
        f"{np.sum(first < second)} of {len(means)} games; interquartile mean of games "
        f"{iqm[0]:.1f} % against {iqm[1]:.1f} %."
    )


def _published_means(claim: Claim) -> dict[str, tuple[float, float]]:
    """Game -> published means of both arms; empty if there are none."""
    if claim.table is None:
        return {}
    columns = [reference.PAPER_COLUMN[arm] for arm in (claim.first, claim.second)]
    if claim.table == 2:
        long = published_data.atari_budgets().query("env_interactions == 1_500_000")
        means = long.pivot(index="game", columns="agent", values="score")[columns]
        return {game: tuple(means.loc[game]) for game in long.game.unique()}
    return {
        game: tuple(reference.published(game, column) for column in columns)
        for game in reference.games()
    }


def listed(frame: pd.DataFrame) -> pd.Series:
    """Whether the pre-registration lists each run, wherever it lies: equal runs are equal."""
    return (
        frame.arm.isin(PREREGISTERED_ARMS)
        & (frame.env_steps == PREREGISTERED_STEPS)
        & frame.game.isin(PREREGISTERED_GAMES)
        & frame.seed.isin(PREREGISTERED_SEEDS)
    )


def is_list_complete(frame: pd.DataFrame) -> bool:
    """Whether every run of the pre-registered list is finished."""
    finished = frame[listed(frame) & frame.score.notna()].groupby(["arm", "game", "seed"])
    expected = len(PREREGISTERED_ARMS) * len(PREREGISTERED_GAMES) * len(PREREGISTERED_SEEDS)
    return finished.ngroups == expected
