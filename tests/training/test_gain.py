"""What the runs of a game have gained: by hand, and of a fleet on Catch."""

import json

import numpy as np
import pytest
from PIL import Image

from rcrl_jax.training import experiment, gain, nulls
from tests.training import toy


def measured(policy, uniform, constant, untrained):
    """What `nulls.measure` returns of one run, as far as it is read."""
    means = {"policy": policy, "uniform": uniform, "constant": constant, "untrained": untrained}
    return {name: {"mean": mean, "standard_error": None} for name, mean in means.items()}


SEEDS = [measured(3.0, 0.5, 0.9, 0.0), measured(4.0, 0.5, 0.1, 0.2), measured(2.0, 0.8, 0.5, 1.3)]


def test_the_gain_is_over_the_play_that_is_best_in_the_mean_over_seeds():
    """Uniform play is best in no seed, but has the largest mean, 0.6; gains 2.5, 3.5, 1.2."""
    found = gain.over_seeds(SEEDS)
    assert found["seeds"] == 3 and found["best_null"] == "uniform"
    assert found["policy"] == pytest.approx({"mean": 3.0, "standard_error": 1 / np.sqrt(3)})
    assert found["uniform"]["mean"] == pytest.approx(0.6)
    assert found["constant"]["mean"] == found["untrained"]["mean"] == pytest.approx(0.5)
    error = np.sqrt((0.1**2 + 1.1**2 + 1.2**2) / 2 / 3)
    assert found["gain"] == pytest.approx({"mean": 2.4, "standard_error": error})
    assert found["standard_errors"] == pytest.approx(2.4 / error)
    assert gain.describe("rcrl", "Pong", 9000, found) == (
        "rcrl on Pong, 3 seeds of 9,000 steps: the agents score 3.00 ± 0.58, the best play without "
        "learning (uniform actions) 0.60 ± 0.10; the agents are 2.40 ± 0.67 above it, "
        "3.6 standard errors over seeds"
    )


def test_a_loss_is_called_below():
    lost = [measured(-1.0, 0.0, 1.0, 0.0), measured(-2.0, 0.0, 1.0, 0.0)]
    text = gain.describe("rcrl", "Pong", 9000, gain.over_seeds(lost))
    assert text.endswith("the agents are 2.50 ± 0.50 below it, 5.0 standard errors over seeds")


@pytest.mark.parametrize("seeds", [SEEDS[:1], [SEEDS[0]] * 2])
def test_one_seed_or_equal_ones_have_no_number_of_standard_errors(seeds):
    found = gain.over_seeds(seeds)
    assert found["standard_errors"] is None
    assert gain.describe("rcrl", "Pong", 9000, found).endswith(" above it")


@pytest.mark.slow
def test_a_fleet_gets_a_picture_and_a_sentence_for_its_game(tmp_path):
    plan, lines = toy.make_plan(tmp_path, seeds=(3, 4)), []
    scores = experiment.run(plan, lines.append)
    for _ in range(2):  # again: the same
        lines.clear()
        gain.report(plan, lines.append)
        folder = tmp_path / "rcrl" / "Catch"
        found = json.loads((folder / "gain.json").read_text())
        assert found["agent_steps"] == toy.STEPS and [*found["runs"]] == ["seed_3", "seed_4"]
        assert found["policy"]["mean"] == pytest.approx(np.mean(scores))
        assert [one["policy"]["mean"] for one in found["runs"].values()] == pytest.approx(scores)
        best = max(nulls.PLAYS, key=lambda name: found[name]["mean"])
        assert found["gain"]["mean"] == pytest.approx(np.mean(scores) - found[best]["mean"])
        with Image.open(folder / "gain.png") as picture:
            picture.verify()
        assert lines == [
            f"picture in {folder}/gain.png", gain.describe("rcrl", "Catch", toy.STEPS, found)
        ]  # fmt: skip
