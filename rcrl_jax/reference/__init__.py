"""Published scores that a run is compared with, as typed rows."""

from rcrl_jax.reference.scores import (
    PAPER_COLUMN,
    AtariScore,
    BudgetScore,
    DmcScore,
    SeedScore,
    atari1p5m_scores,
    atari100k_scores,
    comparison,
    curl_seed_scores,
    dmc_scores,
    games,
    human_normalised,
    published,
    tasks,
)

__all__ = (
    "PAPER_COLUMN",
    "AtariScore",
    "BudgetScore",
    "DmcScore",
    "SeedScore",
    "atari100k_scores",
    "atari1p5m_scores",
    "comparison",
    "curl_seed_scores",
    "dmc_scores",
    "games",
    "human_normalised",
    "published",
    "tasks",
)
