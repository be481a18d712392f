"""Simulated power: the models of spread, the command, and the preregistered numbers."""

import json
import re

import numpy as np
import pytest

from benchmarks import power
from benchmarks.tables import registered
from rcrl_jax import reference
from tests.experiments import programs
from tests.experiments.test_command_line import ROOT


def test_published_effect_by_hand():
    seeds = power.curl_seeds("Hero")
    assert len(seeds) == 20 and seeds.mean() == pytest.approx(reference.published("Hero", "CURL"))
    assert power.published_effect("Hero") == pytest.approx((6454.1 - 4787.9) / seeds.std(ddof=1))


@pytest.mark.parametrize("model", power.MODELS)
@pytest.mark.parametrize("game", registered.GAMES)
def test_every_model_has_the_effect_as_its_mean_and_a_deviation_of_one(model, game):
    rng = np.random.default_rng(0)
    drawn = power.draw(power.curl_seeds(game), 0.5, model, (4000, 10), rng)
    assert drawn.shape == (4000, 10)
    assert drawn.mean() == pytest.approx(0.5, abs=0.02)
    assert drawn.std() == pytest.approx(1, abs=0.02)
    assert (len(np.unique(drawn)) <= 20) == (model == "resampled")


@pytest.mark.parametrize("model", power.MODELS)
def test_power_is_half_the_level_without_an_effect_and_grows_with_it(model):
    none, some, large = (power.power([effect] * 4, model, 1000, 499) for effect in (0, 0.5, 1.5))
    assert 0.01 <= none <= 0.04
    assert none < some < large and large > 0.99


def test_command_writes_what_it_prints(tmp_path):
    result = programs.call(
        "benchmarks.power", "--simulations=50", "--permutations=99", f"--output={tmp_path}"
    )
    assert result.returncode == 0, result.stderr
    assert rows_of(result.stdout) == rows_of_file(tmp_path / "power.json")


def test_the_preregistered_table_equals_the_recorded_one():
    page = (ROOT / "docs" / "preregistration.md").read_text()
    recorded = ROOT / "results" / "power" / "power.json"
    assert rows_of(page) == rows_of_file(recorded)
    value = json.loads(recorded.read_text())
    assert (value["games"], value["runs_per_arm_and_game"]) == (list(registered.GAMES), 9)
    # Named in the text: the differences in the list's order, and those of all 26 games.
    effects = value["rows"][0]["effects"]
    assert effects == pytest.approx([power.published_effect(game) for game in registered.GAMES])
    assert "0.89, 0.83, 0.79 and 0.43 SD" in page
    assert [round(effect, 2) for effect in effects] == [0.89, 0.83, 0.79, 0.43]
    every_game = sorted(map(power.published_effect, reference.games()), reverse=True)
    assert [every_game.index(effect) for effect in effects] == [0, 1, 2, 6]
    assert (round(np.mean(every_game), 3), round(np.std(every_game, ddof=1), 2)) == (0.175, 0.45)


def rows_of(text: str) -> dict[str, list[str]]:
    rows = re.findall(r"^\| (published differences|\S+ SD in every game) \| (.+) \|$", text, re.M)
    return {name: cells.split(" | ") for name, cells in rows}


def rows_of_file(path) -> dict[str, list[str]]:
    rows = json.loads(path.read_text())["rows"]
    return {
        row["difference"]: [f"{row['power'][model]:.3f}" for model in power.MODELS] for row in rows
    }
