"""Aggregates of the published columns alone, against figures worked out once outside this code."""

import numpy as np
import pytest

from benchmarks.tables import statistics
from rcrl_jax import reference

# Agent: median, mean and interquartile mean over games, optimality gap, games at human level.
_AGGREGATES = {
    "SimPLe": (0.1436, 0.4427, 0.2390, 0.6659, 2),
    "Rainbow": (-0.0002, -0.0900, -0.0026, 1.0900, 0),
    "ERainbow": (0.1614, 0.2854, 0.1424, 0.7299, 2),
    "ERainbow-sa": (0.1686, 0.3029, 0.1989, 0.7006, 2),  # the paper prints a median of 16.7 %
    "CURL": (0.1753, 0.3814, 0.1890, 0.6986, 2),
    "RCRL": (0.1850, 0.3182, 0.2035, 0.6954, 2),
    "RCRL+CURL": (0.1959, 0.3839, 0.2196, 0.6889, 2),
    "DER": (0.1614, 0.2854, 0.1424, 0.7299, 2),
    "OTRainbow": (0.2037, 0.2641, 0.1860, 0.7579, 1),
    "DrQ": (0.2676, 0.3573, 0.2469, 0.6966, 2),
    "SPR": (0.4153, 0.7034, 0.4503, 0.5202, 7),
    "MuZero": (0.2275, 0.5620, 0.2880, 0.6164, 5),
    "EfficientZero": (1.0902, 1.9426, 1.0472, 0.3667, 14),
    "DrQ(eps) [rliable]": (0.3123, 0.4647, 0.3209, 0.6209, 3),
    "SPR [rliable]": (0.3958, 0.6159, 0.4149, 0.5356, 6),
    "SimPLe [per-run]": (0.1341, 0.3322, 0.2089, 0.7089, 1),
    "IRIS": (0.2888, 1.0461, 0.5432, 0.4816, 10),
    "CURL [rliable, final]": (0.0920, 0.2614, 0.1316, 0.7564, 2),
    "CURL [rliable, max of 10 evals]": (0.1512, 0.3225, 0.1762, 0.7239, 2),
    "TWM": (0.5053, 0.9562, 0.5303, 0.4784, 8),
    "DIAMOND": (0.3734, 1.4591, 0.7570, 0.4705, 11),
    "DreamerV3": (0.5599, 1.1296, 0.5995, 0.4596, 9),
    "STORM": (0.5804, 1.2658, 0.6790, 0.4166, 10),
    "SR-SPR": (0.6845, 1.2714, 0.6996, 0.4066, 9),
    "BBF": (0.9171, 2.2474, 1.1393, 0.3114, 12),
}


def normalised(agent):
    """The agent's column, `[1]` for each of the 26 games, human-normalised."""
    return [
        np.array([reference.human_normalised(game, reference.published(game, agent))])
        for game in reference.games()
    ]


def test_every_agent_but_the_two_scales_is_listed():
    agents = {row.agent for row in reference.atari100k_scores()}
    assert agents - {"Random", "Human"} == set(_AGGREGATES)


@pytest.mark.parametrize("agent", _AGGREGATES)
def test_aggregates_over_games(agent):
    scores = np.concatenate(normalised(agent))
    found = (
        np.median(scores),
        np.mean(scores),
        statistics.interquartile_mean(normalised(agent)),
        np.mean(1 - np.minimum(scores, 1)),
        np.sum(scores >= 1),
    )
    # Every figure is printed with four decimals.
    assert found == pytest.approx(_AGGREGATES[agent], abs=0.5001e-4)
