"""Fleets: they hold every run once, and one that was begun keeps its runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from experiments.sweeps import collection, fleets, reading
from experiments.sweeps.spec import Arm, Fleet, SweepError
from rcrl_jax import files
from tests.experiments import toy_sweep
from tests.experiments.toy_sweep import alone

RCRL = Arm("rcrl", "rcrl")
BOTH = ("Pong", "Alien")


def make(directory, *, games=BOTH, seeds="0:3", steps=2000):
    table = {
        "experiment": "atari100k",
        "steps": steps,
        "eval_episodes": 3,
        "results": str(directory / "results"),
        "blocks": [{"presets": ["rcrl"], "games": list(games), "seeds": seeds}],
    }
    return reading.make_spec(table)


def test_a_grid_is_split_by_seeds_if_all_games_fit_else_by_games(tmp_path):
    spec = make(tmp_path, seeds="0:5")
    (fleet,) = fleets.group(spec, spec.units, 130)
    assert fleet == Fleet(RCRL, BOTH, (0, 1, 2, 3, 4))
    assert spec.make_command(fleet, tmp_path)[4:6] == ["--games=Pong,Alien", "--seeds=0,1,2,3,4"]
    # 4 runs are 2 games x 2 seeds; three parts of nearly equal size.
    assert fleets.group(spec, spec.units, 4) == [
        Fleet(RCRL, BOTH, (0,)), Fleet(RCRL, BOTH, (1, 2)), Fleet(RCRL, BOTH, (3, 4))
    ]  # fmt: skip
    assert fleets.group(spec, spec.units, 1) == [
        Fleet(RCRL, (game,), (seed,)) for seed in range(5) for game in BOTH
    ]


SPEC = reading.make_spec(
    {
        "experiment": "dmc",
        "steps": 8000,
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
    }
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
    with pytest.raises(SweepError, match="holds another run than rcrl-Pong-0: steps 2000 -> 5000"):
        fleets.plan(make(tmp_path, steps=5000), directory, 130)


def test_a_fleet_that_wrote_no_manifest_is_planned_anew_and_its_directory_deleted(tmp_path):
    directory = tmp_path / "runs"
    spec = make(tmp_path, seeds="0:2")
    (fleet,) = fleets.plan(spec, directory, 130)
    begin(spec, fleet, directory, manifests=0)
    assert [len(fleet.units) for fleet in fleets.plan(spec, directory, 2)] == [2, 2]
    fleets.tidy(spec, directory)
    assert not list(directory.iterdir())


def test_fleets_start_in_the_order_of_the_runs_and_one_of_one_run_stays_alone(tmp_path):
    directory = tmp_path / "runs"
    spec = make(tmp_path, seeds="0:2")
    assert fleets.plan(spec, directory, 1) == [alone(unit) for unit in spec.units]
    begin(spec, alone(spec.units[1]), directory, manifests=1)
    planned = fleets.plan(spec, directory, 130)
    assert alone(spec.units[1]) in planned
    assert sorted(len(fleet.units) for fleet in planned) == [1, 1, 2]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"arm": "rcrl", "games": [3], "seeds": [0]}'])
def test_a_damaged_record_is_refused(tmp_path, text):
    directory = tmp_path / "runs"
    spec = make(tmp_path)
    (fleet,) = fleets.plan(spec, directory, 130)
    record = fleets.begin(directory, fleet) / "fleet.json"
    record.write_text(text)
    with pytest.raises(SweepError, match="is not the record of a fleet") as raised:
        fleets.plan(spec, directory, 130)
    assert str(record) in str(raised.value) and "\n" not in str(raised.value)
