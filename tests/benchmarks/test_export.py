"""Exports read back as their formats' documentation says; the readers share no code with them."""

import collections
import gzip
import json

import numpy as np
import pytest

from benchmarks import export
from benchmarks.tables import runs
from tests.benchmarks.tables.synthetic import edit, write_json, write_run
from tests.experiments import programs
from tests.experiments.test_command_line import assert_refused

GAMES = ("Pong", "RoadRunner")
SCORES = {
    ("rcrl", "Pong"): [10.0, -20.7, 14.6],
    ("rcrl", "RoadRunner"): [11.5, 7845.0, 500.0],
    ("curl", "Pong"): [1.0, 2.0],
    ("curl", "RoadRunner"): [3.0, 4.0],
}


@pytest.fixture
def results(tmp_path):
    """Two arms on two games, three seeds of one and two of the other."""
    for (preset, game), scores in SCORES.items():
        for seed, score in enumerate(scores):
            write_run(tmp_path / "results", preset, game, seed, score)
    return tmp_path / "results"


def exported(results, output, games=GAMES):
    frame, problems = runs.read(results)
    assert problems == ()
    return export.write(frame, games, output)


def load_rliable(path):
    """rliable takes a dict of arrays [runs, games]."""
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays.items())


def test_rliable_matrices_hold_every_score_in_its_row_and_column(results, tmp_path):
    exported(results, tmp_path)
    raw = load_rliable(tmp_path / "rliable_atari_raw.npz")
    described = json.loads((tmp_path / "rliable_atari.json").read_text())
    assert described["games"] == list(GAMES)
    assert described["seeds"] == {"rcrl": [0, 1, 2], "curl": [0, 1]}
    assert described["conditions"]["algorithm"] == 2
    assert raw.keys() == {"rcrl", "curl"}
    assert raw["rcrl"].dtype == np.float64
    assert raw["rcrl"].tolist() == [[10.0, 11.5], [-20.7, 7845.0], [14.6, 500.0]]
    assert raw["curl"].tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_normalised_matrices_are_zero_for_random_play_and_one_for_a_human(results, tmp_path):
    exported(results, tmp_path)
    normalised = load_rliable(tmp_path / "rliable_atari_normalised.npz")["rcrl"]
    assert normalised.shape == (3, 2)
    assert normalised[1, 0] == normalised[0, 1] == 0.0  # random play
    assert normalised[2, 0] == normalised[1, 1] == 1.0  # the human tester
    assert normalised[2, 1] == pytest.approx((500 - 11.5) / (7845.0 - 11.5))


def test_seeds_that_lack_a_game_are_left_out_and_named(results, tmp_path):
    write_run(results, "rcrl", "Pong", 7)
    write_run(results, "der_plus", "Pong", 0)
    _, left_out = exported(results, tmp_path)
    described = json.loads((tmp_path / "rliable_atari.json").read_text())
    assert described["seeds"] == {"rcrl": [0, 1, 2], "curl": [0, 1]}
    assert "rliable: rcrl, seed 7, is left out: it has no run on RoadRunner" in left_out
    assert "rliable: der_plus, seed 0, is left out: it has no run on RoadRunner" in left_out


def load_marl_eval(path):
    """marl-eval's README: environment, task, algorithm, run, step; the last step is absolute.

    Its tools need the same algorithms in every task, the same runs in every algorithm and the same
    steps in every run; names of environments and tasks in lower case.
    """
    data = json.loads(path.read_text())
    returns = {}
    shapes = collections.defaultdict(set)
    for environment, tasks in data.items():
        assert environment == environment.lower()
        for task, algorithms in tasks.items():
            assert task == task.lower()
            shapes["algorithms"].add(tuple(algorithms))
            for algorithm, of_arm in algorithms.items():
                shapes["runs"].add(tuple(of_arm))
                for run, steps in of_arm.items():
                    *periodic, absolute = steps
                    shapes["steps"].add(tuple(steps))
                    assert absolute == "absolute_metrics"
                    counts = [steps[step]["step_count"] for step in periodic]
                    assert counts == sorted(set(counts))
                    shapes["counts"].add(tuple(counts))
                    for step in steps.values():
                        assert set(step) - {"step_count"} == {"return"}
                        assert all(isinstance(x, float) for x in step["return"])
                    returns[environment, task, algorithm, run] = (
                        steps["absolute_metrics"]["return"],
                        [steps[step]["return"] for step in periodic],
                    )
    assert all(len(values) == 1 for values in shapes.values())
    return returns, shapes


def test_marl_eval_file_is_rectangular_and_holds_every_return(results, tmp_path):
    _, left_out = exported(results, tmp_path)
    returns, shapes = load_marl_eval(tmp_path / "marl_eval_atari.json")
    assert shapes["runs"] == {("seed_0", "seed_1")}
    assert shapes["steps"] == {("step_0", "step_1", "absolute_metrics")}
    assert shapes["counts"] == {(500, 1000)}
    assert set(returns) == {
        ("atari", task, arm, f"seed_{seed}")
        for task in ("pong", "road_runner") for arm in ("rcrl", "curl") for seed in (0, 1)
    }  # fmt: skip
    final, periodic = returns["atari", "pong", "rcrl", "seed_0"]
    assert final == [9.0, 11.0] * 5
    assert periodic == [[1.0, 3.0], final]
    assert "marl-eval: seeds 2 are left out: an arm has no such run on a game" in left_out


def test_runs_with_other_steps_have_no_place_in_marl_eval(results, tmp_path):
    old = results / "rcrl" / "Pong" / "seed_0"
    (old / "evaluations.jsonl").unlink()
    edit(old / "manifest.json", "run", format=None)  # a newer run needs them
    diverged = write_run(results, "rcrl", "Pong", 5, None)
    write_json(diverged / "diverged.json", {"attempts": 2})
    _, left_out = exported(results, tmp_path)
    _, shapes = load_marl_eval(tmp_path / "marl_eval_atari.json")
    assert shapes["runs"] == {("seed_1",)}
    for seed in (0, 5):
        assert any(f"rcrl/Pong/seed_{seed} is left out" in line for line in left_out)
    # rliable needs the scores alone.
    assert len(load_rliable(tmp_path / "rliable_atari_raw.npz")["rcrl"]) == 3


def load_dreamer(path):
    """DreamerV3's files: gzipped JSON, a list of task, method, seed, xs and ys."""
    curves = json.loads(gzip.open(path, "rt").read())
    for curve in curves:
        assert list(curve) == ["task", "method", "seed", "xs", "ys"]
        assert len(curve["xs"]) == len(curve["ys"])
        assert curve["xs"] == sorted(curve["xs"])
        assert isinstance(curve["seed"], int)
    return {(curve["task"], curve["method"], curve["seed"]): curve for curve in curves}


def test_dreamer_files_hold_one_curve_a_run(results, tmp_path):
    write_run(results, "rcrl_sac", "cartpole_swingup", 0, 20.0)
    frame = runs.read(results).frame
    export.write(frame[frame.family == "atari"], GAMES, tmp_path)
    export.write(frame[frame.family == "dmc"], ["cartpole_swingup"], tmp_path)
    assert {path.name for path in (tmp_path / "dreamerv3").iterdir()} == {
        "atari-rcrl.json.gz", "atari-curl.json.gz", "dmc-rcrl_sac.json.gz"
    }  # fmt: skip
    curves = load_dreamer(tmp_path / "dreamerv3" / "atari-rcrl.json.gz")
    assert set(curves) == {
        (task, "rcrl", seed) for task in ("atari_pong", "atari_road_runner") for seed in range(3)
    }
    curve = curves["atari_road_runner", "rcrl", 1]
    assert (curve["xs"], curve["ys"]) == ([2000, 4000], [2.0, 7845.0])  # frames
    curves = load_dreamer(tmp_path / "dreamerv3" / "dmc-rcrl_sac.json.gz")
    assert curves["dmc_cartpole_swingup", "rcrl_sac", 0]["xs"] == [4000, 8000]  # environment steps


def test_an_arm_with_changed_fields_keeps_its_name_and_gets_a_plain_file_name(tmp_path):
    write_run(tmp_path / "results", "rcrl", "Pong", changes={"n_step": 5})
    exported(tmp_path / "results", tmp_path, ["Pong"])
    assert list(load_rliable(tmp_path / "rliable_atari_raw.npz")) == ["rcrl(n_step=5)"]
    curves = load_dreamer(tmp_path / "dreamerv3" / "atari-rcrl_n_step_5.json.gz")
    assert set(curves) == {("atari_pong", "rcrl(n_step=5)", 0)}


def test_equal_runs_give_equal_files(results, tmp_path):
    for name in ("a", "b"):
        exported(results, tmp_path / name)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.*"))
    assert len(files) == 6
    for file in files:
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


# The command


def test_the_chosen_runs_are_written_and_what_is_left_out_is_said(results, tmp_path):
    damaged = write_run(results, "erainbow", "Pong", 0)
    (damaged / "scores.json").write_text("{")
    write_run(results / "long", "rcrl", "Pong", 0, steps=2000)
    output = tmp_path / "out"
    lines = export.run([results], output, arms=["rcrl"], games=["RoadRunner", "Pong"])
    problem, left_out, count, *paths = lines
    assert problem.startswith(f"{damaged}/scores.json is damaged")
    assert left_out.startswith("1 run left out: env_steps is 2000, not 1000")
    assert count == "exported runs: 6"
    assert sorted(path.strip() for path in paths) == sorted(map(str, output.rglob("*.*")))
    assert json.loads((output / "rliable_atari.json").read_text())["games"] == list(GAMES)
    *_, count, _, _, _, _, _ = export.run([results], output, steps=2000)
    assert count == "exported runs: 1"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"games": ["Tetris"]}, "--games: unknown game 'Tetris'; there are Alien"),
        ({"arms": ["mine"]}, "--arm: no run of 'mine'; there are curl, rcrl"),
        ({"steps": 7}, "no finished run to export below"),
        ({"games": ["Hero"]}, "10 of other arms, games or budgets, 0 unfinished or damaged"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(results, tmp_path, options, says):
    with pytest.raises(ValueError, match=says):
        export.run([results], tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_the_command_exports_and_refuses_in_one_line(results, tmp_path):
    output = tmp_path / "out"
    done = programs.call(
        "benchmarks.export", f"--results={results}", f"--output={output}", "--steps=1000",
        "--arm=curl", "--games=Pong",
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "exported runs: 2" in done.stdout
    assert load_rliable(output / "rliable_atari_raw.npz")["curl"].tolist() == [[1.0], [2.0]]
    assert_refused(
        programs.call("benchmarks.export", f"--results={results}", "--output=/dev/null/x")
    )
