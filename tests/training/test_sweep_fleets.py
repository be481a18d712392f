"""Fleets: they hold every run once, and one that was begun keeps its runs."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import files
from rcrl_jax.training.sweep import collection, fleets
from rcrl_jax.training.sweep.reading import make_spec
from rcrl_jax.training.sweep.spec import Arm, Fleet, SweepError
from tests.training import toy_sweep
from tests.training.toy_sweep import alone


def make(directory, *, games=("Pong", "Alien"), seeds="0:3", presets=("rcrl",), **changes):
    table = {
        "experiment": "atari100k",
        "steps": 100,
        "eval_episodes": 3,
        "results": str(directory / "results"),
        "blocks": [{"presets": list(presets), "games": list(games), "seeds": seeds}],
        **changes,
    }
    return make_spec(table, toy_sweep.EXPERIMENTS)


def test_a_grid_is_split_by_seeds_if_all_games_fit_else_by_games(tmp_path):
    spec, rcrl = make(tmp_path, seeds="0:5"), Arm("rcrl", "rcrl")
    both = ("Pong", "Alien")
    assert fleets.group(spec, spec.units, 130) == [Fleet(rcrl, both, (0, 1, 2, 3, 4))]
    # 4 runs are 2 games x 2 seeds; three parts of nearly equal size.
    assert fleets.group(spec, spec.units, 4) == [
        Fleet(rcrl, both, (0,)), Fleet(rcrl, both, (1, 2)), Fleet(rcrl, both, (3, 4))
    ]  # fmt: skip
    assert fleets.group(spec, spec.units, 1) == [
        Fleet(rcrl, (game,), (seed,)) for seed in range(5) for game in both
    ]


def test_what_is_missing_of_a_grid_is_split_into_grids(tmp_path):
    spec, rcrl = make(tmp_path), Arm("rcrl", "rcrl")
    missing = [u for u in spec.units if (u.game, u.seed) not in [("Pong", 0), ("Alien", 2)]]
    assert fleets.group(spec, missing, 130) == [
        Fleet(rcrl, ("Alien",), (0, 1)), Fleet(rcrl, ("Pong",), (1, 2))
    ]  # fmt: skip


SPEC = make_spec(
    {
        "experiment": "dmc",
        "steps": 1000,
        "eval_episodes": 1,
        "results": "r",
        "arms": {"wide": {"preset": "rcrl_sac", "config": {"hidden_size": 16}}},
        "blocks": [
            {
                "presets": ["rcrl_sac", "sac_aug"],
                "arms": ["wide"],
                "games": ["cheetah_run", "walker_walk"],
                "seeds": "0:4",
            }
        ],
    },
    toy_sweep.EXPERIMENTS,
)


@given(st.sets(st.sampled_from(SPEC.units)), st.integers(1, 9))
def test_fleets_hold_every_run_once_and_only_runs_that_can_share_a_program(units, max_runs):
    ordered = [unit for unit in SPEC.units if unit in units]
    made = fleets.group(SPEC, ordered, max_runs)
    assert sorted(u.name for fleet in made for u in fleet.units) == sorted(u.name for u in units)
    for fleet in made:
        assert 1 <= len(fleet.units) <= max_runs
        # Tasks differ in action repeat and learning rate.
        assert len({SPEC.make_config(unit) for unit in fleet.units}) == 1
        assert len({SPEC.agent_steps(unit.game) for unit in fleet.units}) == 1
    assert len({fleet.name for fleet in made}) == len(made)


@given(st.sets(st.sampled_from(SPEC.units)))
def test_fleets_of_one_start_in_the_order_of_the_runs(units):
    missing = [unit for unit in SPEC.units if unit in units]
    place = {unit: index for index, unit in enumerate(SPEC.units)}
    made = sorted(fleets.group(SPEC, missing, 1), key=lambda fleet: place[fleet.units[0]])
    assert made == [alone(unit) for unit in missing]
    assert [fleet.name for fleet in made] == [unit.name for unit in missing]


def test_names_tell_fleets_apart_and_stay_short():
    rcrl = Arm("rcrl", "rcrl")
    assert Fleet(rcrl, ("Pong",), (3,)).name == "rcrl-Pong-3"
    name = Fleet(rcrl, ("Pong", "Alien"), (0, 1)).name
    assert name.startswith("rcrl-Pong+Alien-0+1-")
    assert name != Fleet(rcrl, ("Alien", "Pong"), (0, 1)).name  # runs are in another order
    games = tuple(f"Game{i}" for i in range(26))
    names = {
        Fleet(rcrl, games[:count], tuple(range(first, first + 5))).name
        for count, first in itertools.product((25, 26), (0, 5))
    }
    assert len(names) == 4 and all(len(name) < 40 for name in names)


def test_the_command_of_a_fleet_names_its_games_and_seeds(tmp_path):
    spec = make(tmp_path)
    (fleet,) = fleets.group(spec, spec.units, 130)
    command = spec.make_command(fleet, tmp_path)
    assert command[3:6] == ["--preset=rcrl", "--games=Pong,Alien", "--seeds=0,1,2"]
    (fleet, *_) = fleets.group(SPEC, [u for u in SPEC.units if u.game == "cheetah_run"], 130)
    assert "--tasks=cheetah_run" in SPEC.make_command(fleet, tmp_path)


def begin(spec, fleet, directory, *, manifests):
    """A fleet's work directory with the manifests of some of its runs."""
    fleets.begin(directory, fleet)
    for unit in fleet.units[:manifests]:
        paths = collection.work_paths(directory, fleet, unit)
        paths.directory.mkdir(parents=True)
        files.write_json_atomically(paths.manifest, {"run": toy_sweep.describe(spec, unit)})


@pytest.mark.parametrize("manifests", [1, 4])
def test_a_fleet_that_was_begun_keeps_its_runs(tmp_path, manifests):
    directory = tmp_path / "runs"
    short = make(tmp_path, seeds="0:2")
    (begun,) = fleets.plan(short, directory, 130)
    begin(short, begun, directory, manifests=manifests)

    assert fleets.plan(short, directory, 1) == [begun]
    spec = make(tmp_path, seeds="0:4")
    added = Fleet(begun.arm, begun.games, (2, 3))
    assert fleets.plan(spec, directory, 130) == [begun, added]
    # A sweep of fewer runs goes on with all that the fleet has; one of none leaves it alone.
    assert fleets.plan(make(tmp_path, seeds=[1]), directory, 1) == [begun]
    (other,) = fleets.plan(make(tmp_path, seeds=[7], games=["Pong"]), directory, 1)
    assert other.name == "rcrl-Pong-7"
    fleets.tidy(spec, directory)
    assert fleets.plan(short, directory, 1) == [begun]


def test_a_fleet_that_wrote_no_manifest_is_planned_anew_and_its_directory_deleted(tmp_path):
    directory = tmp_path / "runs"
    spec = make(tmp_path, seeds="0:2")
    (fleet,) = fleets.plan(spec, directory, 130)
    begin(spec, fleet, directory, manifests=0)
    assert [len(fleet.units) for fleet in fleets.plan(spec, directory, 2)] == [2, 2]
    fleets.tidy(spec, directory)
    assert not list(directory.iterdir())


def test_a_single_run_that_was_begun_stays_alone(tmp_path):
    """Also one that an older version of this program began, without a record."""
    directory = tmp_path / "runs"
    spec = make(tmp_path, seeds="0:2")
    begin(spec, alone(spec.units[1]), directory, manifests=1)
    assert not list(directory.rglob("fleet.json"))
    planned = fleets.plan(spec, directory, 130)
    assert alone(spec.units[1]) in planned
    assert sorted(len(fleet.units) for fleet in planned) == [1, 1, 2]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"arm": "rcrl", "games": [3], "seeds": [0]}'])
def test_a_damaged_record_is_refused(tmp_path, text):
    directory = tmp_path / "runs"
    spec = make(tmp_path)
    (fleet,) = fleets.plan(spec, directory, 130)
    record = fleets.begin(directory, fleet) / "fleet.json"
    assert json.loads(record.read_text())["games"] == ["Pong", "Alien"]
    record.write_text(text)
    with pytest.raises(SweepError, match="is not the record of a fleet") as raised:
        fleets.plan(spec, directory, 130)
    assert str(record) in str(raised.value) and "\n" not in str(raised.value)


def test_a_fleet_begun_with_other_steps_is_refused(tmp_path):
    directory = tmp_path / "runs"
    spec = make(tmp_path)
    (fleet,) = fleets.plan(spec, directory, 130)
    begin(spec, fleet, directory, manifests=6)
    with pytest.raises(SweepError, match="holds another run than rcrl-Pong-0: steps 100 -> 50"):
        fleets.plan(make(tmp_path, steps=50), directory, 130)
