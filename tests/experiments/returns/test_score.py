"""The study's list, what its scores are made of, and what the program refuses."""

import collections
import dataclasses
import json
import pathlib

import numpy as np
import pytest

from experiments.returns import arms, games, judge, measure, score
from experiments.sweeps import work
from experiments.sweeps.spec import read_spec
from rcrl_jax import files
from rcrl_jax.config import fields
from rcrl_jax.return_contrast import instruments
from tests.experiments import programs
from tests.experiments.test_command_line import assert_refused
from tests.return_contrast.test_instruments import ScriptedFleet, game

LIST = pathlib.Path(__file__).parents[3] / "campaigns" / "returns.toml"
PROGRAM = "experiments.returns.score"


def test_the_list_holds_the_registered_runs():
    spec = read_spec(LIST)
    per_arm = collections.Counter(unit.arm.name for unit in spec.units)
    names = (arms.TODAY, arms.CONTROL_ARM, *arms.CANDIDATES)
    assert per_arm == {arms.PLAYER: 4} | dict.fromkeys(names, 12)
    assert {u.game for u in spec.units} == {"Alien", "Qbert", "RoadRunner", "Seaquest"}
    assert spec.steps == 10_000
    configs = {unit.arm.name: fields.values(spec.make_config(unit)) for unit in spec.units}
    assert configs[arms.TODAY] == fields.values(arms.PRESETS["rcrl"])
    assert configs[arms.CONTROL_ARM] == configs["equal_return"]

    def changed(arm: str, other: str) -> dict:
        return {k: v for k, v in configs[arm].items() if v != configs[other][k]}

    assert changed("equal_return", arms.TODAY) == {
        "return_contrast.positives": "equal_return",
        "return_contrast.negative_differs_in_return": True,
    }
    assert changed("another_episode", "equal_return") == {
        "return_contrast.positives": "another_episode"
    }
    assert changed("concatenation", "equal_return") == {
        "return_contrast.discriminator_input": "concatenation"
    }


def title(rng, first_pixel: int = 0) -> games.Title:
    """Six games with pairs of one policy; the second policy has none."""
    played = [
        game(rng.random(20) < 0.2, rng.integers(0, 2, 20), first_pixel + 20 * i) for i in range(6)
    ]
    drawn = measure.draw(instruments.as_played(played), 40, 0.0, rng)
    return games.Title(
        played, drawn, np.zeros(40, np.int64), {"random": 1.0}, 0.5, str(first_pixel)
    )


@pytest.fixture
def spec(tmp_path):
    """The study's list, with its results in an empty folder."""
    return dataclasses.replace(read_spec(LIST), results=tmp_path)


@pytest.fixture
def titles(monkeypatch):
    """Fixed games of two titles; those of the others cannot be asked for."""
    rng = np.random.default_rng(0)
    own = {"Alien": title(rng), "Qbert": title(rng, 120)}
    monkeypatch.setattr(games, "title_of", lambda _, player: own[player.game])
    return own


def finish(monkeypatch, spec, units) -> None:
    """Lets these runs count as finished."""
    for unit in units:
        spec.result_paths(unit).directory.mkdir(parents=True, exist_ok=True)
    monkeypatch.setattr(work, "is_finished", lambda _, unit: unit in units)


def units_of(spec, arm, *titles) -> list:
    return [unit for unit in spec.units if unit.arm.name == arm and unit.game in titles]


@pytest.mark.parametrize("perfect", [True, False])
def test_runs_are_judged_on_the_pairs_of_their_titles(monkeypatch, spec, titles, perfect):
    return_of = {}
    for own in titles.values():
        pixels = np.concatenate([g.frames[:, 0, 0] for g in own.games])
        return_of |= dict(
            zip(pixels.tolist(), instruments.as_played(own.games).returns, strict=True)
        )
    logit = (
        (lambda a, b: return_of[a] != return_of[b]) if perfect else (lambda a, b: a % 20 + b % 20)
    )
    fleet = ScriptedFleet(lambda a, b: float(logit(a, b)))
    monkeypatch.setattr(games, "make_fleet", lambda *_: (None, fleet))
    monkeypatch.setattr(games, "read_parameters", lambda *_: None)
    runs = units_of(spec, arms.TODAY, *titles)
    finish(monkeypatch, spec, runs + units_of(spec, arms.PLAYER, *titles))
    assert judge.judge(spec) == len(runs) == 6
    expected = 1.0 if perfect else 0.5  # the other one is a clock
    for unit in runs:
        areas = score._areas(spec, unit, titles[unit.game])
        assert areas == {"auc": expected, "auc_random": expected, f"auc_{arms.PLAYER}": 0.5}
    with pytest.raises(files.Damaged, match="other games"):
        score._areas(spec, runs[0], titles["Qbert"])


def test_only_what_is_missing_is_judged(monkeypatch, spec, titles):
    alien, qbert = (units_of(spec, arms.TODAY, name)[0] for name in titles)
    player = units_of(spec, arms.PLAYER, "Alien")
    monkeypatch.setattr(judge, "logits", lambda _, units, title: np.zeros((len(units), 2, 40)))
    finish(monkeypatch, spec, [alien, qbert])  # no title has its player
    assert judge.judge(spec) == 0
    finish(monkeypatch, spec, [alien, qbert, *player])
    assert judge.judge(spec) == 1
    assert judge.logits_path(spec, alien).exists() and not judge.logits_path(spec, qbert).exists()
    games.path_of(spec, *player).touch()
    monkeypatch.setattr(games, "title_of", None)  # is not called: nothing is missing
    assert judge.judge(spec) == 0


def outcome(spec, monkeypatch, auc_of: dict[str, float], diverged=()) -> dict:
    """The result if every run of an arm has the AUC `auc_of[arm]`."""
    rng = np.random.default_rng(0)
    monkeypatch.setattr(games, "title_of", lambda *_: title(rng))
    monkeypatch.setattr(score, "_areas", lambda spec, unit, title: {"auc": auc_of[unit.arm.name]})
    share = {arms.CONTROL_ARM: {"changed_labels": 0.7}}
    monkeypatch.setattr(score, "_recorded", lambda spec, unit: share.get(unit.arm.name, {}))
    return score.score(spec, [unit for unit in spec.units if unit.name not in diverged])


AUCS = dict.fromkeys((arms.TODAY, arms.CONTROL_ARM, *arms.CANDIDATES), 0.55)


def test_the_outcome_and_its_table(monkeypatch, spec):
    found = outcome(spec, monkeypatch, AUCS | {"another_episode": 0.66})
    assert found["chosen"] == "another_episode"
    text = score.table(json.loads(json.dumps(found)))
    assert "**`another_episode` becomes `rcrl_returns`.**" in text
    assert "| `another_episode` | 0.660 | 0.660 | 0.660 | 0.660 | 0.660 |" in text
    assert "| a clock | 0.500 | 0.500 | 0.500 | 0.500 | 0.500 |" in text
    assert "Alien 70 % (no control)" in text
    assert len(found["runs"]) == 60

    assert outcome(spec, monkeypatch, AUCS)["chosen"] is None
    lost = [f"another_episode-{name}-{seed}" for name in ("Alien", "Qbert") for seed in range(3)]
    found = outcome(spec, monkeypatch, AUCS | {"another_episode": 0.66}, lost)
    assert found["means"]["another_episode"]["Alien"] == 0.5 and found["chosen"] is None


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "64 of 64 runs are not finished"),
        (["--diverged=segment-Alien-7"], "no run of the list"),
    ],
)
def test_an_incomplete_list_is_not_scored(tmp_path, arguments, says):
    path = tmp_path / "list.toml"
    path.write_text(LIST.read_text().replace('"results/returns"', f'"{tmp_path / "results"}"'))
    result = programs.call(PROGRAM, f"--spec={path}", *arguments)
    assert_refused(result)
    assert says in result.stderr and not (tmp_path / "results").exists()


def test_the_runs_are_scored_once(tmp_path):
    path = tmp_path / "list.toml"
    path.write_text(LIST.read_text().replace('"results/returns"', f'"{tmp_path}"'))
    (tmp_path / score.TABLE).touch()
    result = programs.call(PROGRAM, f"--spec={path}")
    assert_refused(result)
    assert "scored once" in result.stderr
