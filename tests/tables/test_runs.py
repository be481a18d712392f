"""Runs are found at any depth and read whole; what is wrong with one is one line, and no other."""

import json
import math
import os
import pathlib
import shutil

import pytest

from rcrl_jax import reference
from rcrl_jax.config import presets
from rcrl_jax.runs import workdir
from rcrl_jax.tables import arms, runs
from tests.tables.synthetic import edit, evaluation, write_json, write_lines, write_run

RESULTS = pathlib.Path(__file__).parents[2] / "results"


def only(reading):
    """The one run of a reading without problems."""
    assert reading.problems == ()
    (run,) = reading.frame.itertuples()
    return run


def test_every_field_of_a_finished_run(tmp_path):
    directory = write_run(tmp_path, "rcrl", "Pong", 3, 10.0, changes={"n_step": 5})
    run = only(runs.read(tmp_path))
    assert (run.family, run.preset, run.arm) == ("atari", "rcrl", "rcrl(n_step=5)")
    assert (run.directory, run.game, run.seed) == (directory, "Pong", 3)
    assert (run.agent_steps, run.env_steps) == (1000, 1000)
    assert (run.score, run.diverged) == (10.0, False)
    assert run.returns == (9.0, 11.0) * 5
    assert run.commit == "0123456789"
    assert run.manifest["run"]["config"]["n_step"] == 5
    assert (run.final_episodes, run.algorithm) == (10, 2)
    points = runs.evaluations(runs.read(tmp_path).frame)
    assert [*points.columns[:4]] == ["run", "arm", "game", "seed"]
    assert points.agent_steps.tolist() == points.env_steps.tolist() == [500, 1000]
    assert points.score.tolist() == [2.0, 10.0]
    assert points.returns.tolist() == [(1.0, 3.0), run.returns]
    assert points.unseen_auc.tolist() == [0.75, 0.75]
    assert points.unseen_auc_equal_return.isna().all()
    assert len(points.columns) == 10


def test_runs_are_found_at_any_depth_and_below_any_root(tmp_path, monkeypatch):
    write_run(tmp_path, seed=0)
    write_run(tmp_path / "stage" / "arm", seed=1)
    directory = write_run(tmp_path / "fleet", seed=2)
    for name in ("checkpoints/7", "diverged/7", ".partial.seed_2"):
        # Not runs: a checkpoint, the state of a diverged one, a copy under way.
        shutil.copytree(directory, tmp_path / "fleet" / name)
    assert [*runs.read(tmp_path).frame.seed] == [0, 1, 2]
    roots = (tmp_path / "stage", tmp_path, tmp_path / "fleet")
    reading = runs.read(*roots)
    assert [*reading.frame.seed] == [0, 1, 2]
    assert reading.problems == ()
    assert only(runs.read(directory)).seed == 2
    monkeypatch.chdir(directory)
    assert only(runs.read(".")).seed == 2


def test_order_is_family_preset_arm_game_seed(tmp_path):
    write_run(tmp_path, "rcrl_sac", "cartpole_swingup")
    for preset, game, seed in [
        ("rcrl", "Pong", 10), ("rcrl", "Pong", 9), ("rcrl", "Alien", 0), ("erainbow", "Pong", 0),
    ]:  # fmt: skip
        write_run(tmp_path, preset, game, seed)
    write_run(tmp_path / "changed", "erainbow", "Pong", 0, changes={"n_step": 3})
    assert [*runs.read(tmp_path).frame[["arm", "game", "seed"]].itertuples(index=False)] == [
        ("erainbow", "Pong", 0),
        ("rcrl", "Alien", 0),
        ("rcrl", "Pong", 9),
        ("rcrl", "Pong", 10),
        ("erainbow(n_step=3)", "Pong", 0),
        ("rcrl_sac", "cartpole_swingup", 0),
    ]


def test_an_arm_is_called_as_its_sweep_named_it_and_others_by_their_settings(tmp_path):
    small = {"return_contrast.batch_size": 8, "batch_size": 8}
    for game in ("Pong", "Alien"):
        write_run(tmp_path / "short", game=game, changes=small, arm="short")
    write_run(tmp_path, changes=small, seed=1)  # before names were kept
    write_run(tmp_path, seed=2)
    reading = runs.read(tmp_path)
    assert not reading.problems
    settings = "rcrl(return_contrast.batch_size=8, batch_size=8)"
    assert [*reading.frame.arm] == ["rcrl", settings, "short", "short"]
    assert [*reading.frame.settings] == ["rcrl", settings, settings, settings]
    assert arms.notes(reading.frame) == [f"short: {settings}."]
    assert [*runs.matrices(reading.frame)] == ["rcrl", settings, "short"]


def test_a_name_of_two_settings_gives_way_to_both_in_one_line(tmp_path):
    for batch_size in (8, 16):
        root = tmp_path / f"batch_{batch_size}"
        write_run(root, changes={"batch_size": batch_size}, arm="short")
        write_run(root, "curl", changes={"n_step": 5}, arm="other")
    (line,) = (reading := runs.read(tmp_path)).problems[:1]
    both = ["rcrl(batch_size=16)", "rcrl(batch_size=8)"]
    assert line == f"'short' names {both[0]} and {both[1]}: these runs are called by their settings"
    assert sorted({*reading.frame.arm} - {"other"}) == both


@pytest.mark.parametrize("name", ["curl", "rcrl(n_step=3)", ""])
def test_a_name_that_means_another_arm_is_not_taken(tmp_path, name):
    path = write_run(tmp_path, changes={"n_step": 5}) / "manifest.json"
    edit(path, "launch", arm=name)
    reading = runs.read(tmp_path)
    assert [*reading.frame.arm] == ["rcrl(n_step=5)"] and len(reading.problems) == 1


@pytest.fixture(scope="module")
def repository():
    return runs.read(RESULTS)


def test_games_that_were_played_again_are_no_runs(tmp_path):
    write_run(tmp_path)
    played = tmp_path / "evaluate-x" / "rcrl" / "Pong" / "seed_0"
    played.mkdir(parents=True)
    (played / "evaluation.json").write_text("{}")
    assert (reading := runs.read(tmp_path)).problems == () and len(reading.frame) == 1


def test_every_finished_run_of_the_repository_is_read(repository):
    manifests = {path.parent for path in RESULTS.rglob("manifest.json")}
    unfinished = {path for path in manifests if "unfinished" in path.parts}
    assert {problem.partition(" is not finished")[0] for problem in repository.problems} == {
        str(path) for path in unfinished
    }
    assert {*repository.frame.directory} == manifests - unfinished
    assert len(manifests) >= 54
    for run in repository.frame.itertuples():
        written = json.loads((run.directory / "scores.json").read_text())
        assert run.score == written["mean"]
        assert run.env_steps == written["env_steps"]


def test_old_runs_of_the_repository_have_the_arm_that_they_are_today(repository):
    frame = repository.frame
    places = frame.directory.map(lambda directory: str(directory.relative_to(RESULTS)))
    arms = frame.arm.set_axis(places)
    assert arms["representation/Alien/rcrl/seed_0"] == "rcrl_normal"
    assert arms["mechanism/first/normal_concatenation/rcrl/Alien/seed_0"] == "rcrl_normal"
    assert arms["mechanism/first/ones_difference_product/rcrl/Alien/seed_0"] == "rcrl"
    assert (arms["mechanism/first/uniform_difference_product/rcrl/Alien/seed_0"]
            == "rcrl(embedding_init=uniform)")  # fmt: skip
    assert arms["dmc/state_sac/cartpole_swingup/seed_0"] == "state_sac"
    assert arms["claim/erainbow_sa/Hero/seed_0"] == "erainbow_sa"


def test_of_two_evaluations_at_a_step_the_later_one_counts(tmp_path):
    directory = write_run(tmp_path, score=None)
    lines = [evaluation(500, 1, [5.0]), evaluation(200, 1, [6.0]), evaluation(500, 1, [7.0])]
    write_lines(directory / "evaluations.jsonl", lines)
    points = runs.evaluations(runs.read(tmp_path, unfinished=True).frame)
    assert [*zip(points.agent_steps, points.score, strict=True)] == [(200, 6.0), (500, 7.0)]


# Unfinished and diverged runs


def test_unfinished_runs_are_left_out_unless_asked_for(tmp_path):
    directory = write_run(tmp_path, seed=0, score=None)
    write_run(tmp_path, seed=1)
    reading = runs.read(tmp_path)
    assert [*reading.frame.seed] == [1]
    assert reading.problems == (
        f"{directory} is not finished, its last evaluation is at agent step 500 of 1000; "
        "repeat its command where its checkpoints are",
    )
    unfinished, finished = runs.read(tmp_path, unfinished=True).frame.itertuples()
    assert math.isnan(unfinished.score) and unfinished.returns is None
    assert len(unfinished.evaluations) == 1
    assert unfinished.pool == finished.pool


def test_a_killed_run_keeps_its_evaluations_up_to_the_torn_line(tmp_path):
    directory = write_run(tmp_path, score=None)
    with open(directory / "evaluations.jsonl", "a") as file:
        file.write('{"agent_steps": 1000, "ret')
    run = only(runs.read(tmp_path, unfinished=True))
    assert [e["agent_steps"] for e in run.evaluations] == [500]
    (directory / "evaluations.jsonl").unlink()
    assert only(runs.read(tmp_path, unfinished=True)).evaluations == []


def test_a_run_that_diverged_twice_counts_as_random_play(tmp_path):
    directory = write_run(tmp_path, "rcrl", "Hero", score=None)
    write_json(directory / "diverged.json", {"attempts": 2})
    run = only(runs.read(tmp_path))
    random_play = reference.published("Hero", "Random")
    assert (run.diverged, run.score, run.returns) == (True, random_play, None)
    assert run.final_episodes == 10


# Damage: every kind is one line that names the file, and the other run is still there


def put(name, content):
    return lambda directory: (directory / name).write_bytes(content)


def change(name, section=None, **changes):
    return lambda directory: edit(directory / name, section, **changes)


def remove(name):
    return lambda directory: (directory / name).unlink()


def replace_by(name, make):
    def spoil(directory):
        (directory / name).unlink()
        make(directory / name)

    return spoil


def both(first, second):
    return lambda directory: (first(directory), second(directory))


def move(*names):
    def spoil(directory):
        target = directory.parents[2].joinpath(*names)
        target.parent.mkdir(parents=True, exist_ok=True)
        directory.rename(target)

    return spoil


DAMAGE = {
    "no manifest": (remove("manifest.json"), "manifest.json is missing"),
    "binary manifest": (put("manifest.json", os.urandom(4096)), "manifest.json is damaged"),
    "manifest of others": (put("manifest.json", b"{}"), "manifest.json is damaged: there is no"),
    "manifest is a pipe": (replace_by("manifest.json", os.mkfifo), "is not a regular file"),
    "no config": (change("manifest.json", "run", config=None), "has no configuration"),
    "auxiliary": (change("manifest.json", "run", config={"auxiliary": 1}), "config.auxiliary is 1"),
    "protocol": (change("manifest.json", protocol=[]), "its section 'protocol' is no obj"),
    "game": (change("manifest.json", "run", game="Tetris"), "game is 'Tetris'"),
    "preset": (change("manifest.json", "run", preset="mine"), "preset is 'mine'"),
    "family": (change("manifest.json", "run", preset="rcrl_sac"), "preset is 'rcrl_sac', none of"),
    "seed": (change("manifest.json", "run", seed="0"), "seed is '0'"),
    "no steps": (change("manifest.json", "run", steps=None), "steps is None"),
    "large seed": (change("manifest.json", "run", seed=10**30), "seed is 1000000000"),
    "no source": (change("manifest.json", "run", init_from="x"), "manifest.json is damaged"),
    "algorithm": (change("manifest.json", "run", algorithm="two"), "algorithm is 'two'"),
    "no algorithm": (change("manifest.json", "run", algorithm=None), "algorithm is None"),
    "no format": (change("manifest.json", "run", format=None), "format is None"),
    "repeat": (change("manifest.json", "environment", action_repeat=0), "action_repeat is 0"),
    "half scores": (put("scores.json", b'{"mean": 1'), "scores.json is damaged"),
    "no returns": (change("scores.json", returns=[]), "it has no returns"),
    "NaN mean": (change("scores.json", mean=math.nan), "scores.json is damaged: it has a return"),
    "wrong mean": (change("scores.json", mean=11.0), "the mean is 11.0, but its returns give 10.0"),
    "episodes": (change("scores.json", episodes=9), "episodes is 9, but it holds 10 returns"),
    "cut": (change("scores.json", episodes_cut=1), "episodes_cut is not that of the last line"),
    "steps": (change("scores.json", agent_steps=999), "agent_steps is 999, but steps is 1000"),
    "env steps": (change("scores.json", env_steps=999), "env_steps is 999, but env_steps is 1000"),
    "other seed": (change("scores.json", seed=1), "seed is 1, but seed is 0"),
    "evaluations": (put("evaluations.jsonl", b"\0\n{}\n"), "evaluations.jsonl, line 1 is dam"),
    "torn end": (put("evaluations.jsonl", b'{"agent_steps": 500, "returns": [1], "mean": 1}\n{"'),
                 "agent_steps is not that of the last line of evaluations.jsonl"),
    "other scores": (change("scores.json", returns=[9999.0] * 10, mean=9999.0),
                     "returns is not that of the last line of evaluations.jsonl"),
    "no evaluation": (put("evaluations.jsonl", b""), "holds no evaluation, but the run is fin"),
    "another game": (change("manifest.json", "environment", game="Hero"),
                     "game is 'Pong', but environment has 'Hero'"),
    "evaluation mean": (put("evaluations.jsonl", b'{"agent_steps":1000,"returns":[1],"mean":2}\n'),
                        "line 1 is damaged: the mean is 2, but"),
    "evaluation NaN": (put("evaluations.jsonl", b'{"agent_steps":5,"returns":[NaN],"mean":NaN}\n'),
                       "not a number"),
    "evaluation later": (both(remove("scores.json"), put(
        "evaluations.jsonl", b'{"agent_steps":2000,"returns":[1],"mean":1}\n')),
        "agent_steps is 2000"),
    "no metrics": (remove("metrics.jsonl"), "metrics.jsonl, to which it belongs, is missing"),
    "no evaluations": (remove("evaluations.jsonl"), "evaluations.jsonl, to which it belongs, is"),
    "digests": (change("scores.json", record_digests={}), "record_digests is not a digest of each"),
    "digest": (change("scores.json", record_digests=5), "record_digests is not a digest of each"),
    "both": (put("diverged.json", b'{"attempts": 2}'), "both scores.json and diverged.json"),
    "one attempt": (replace_by("scores.json", lambda path: write_json(
        path.with_name("diverged.json"), {"attempts": 1})), "attempts is 1, expected 2"),
    "place of a seed": (move("rcrl", "Pong", "seed_7"), "but it lies in rcrl/Pong/seed_7"),
    "misspelt place": (move("rcrl", "Pnog", "seed_0"), "but it lies in rcrl/Pnog/seed_0"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("unfinished", [False, True])
def test_damage_is_one_line_and_the_other_run_is_read(tmp_path, kind, unfinished):
    spoil, says = DAMAGE[kind]
    write_run(tmp_path, "erainbow")
    spoil(write_run(tmp_path, "rcrl"))
    reading = runs.read(tmp_path, unfinished=unfinished)
    assert [*reading.frame.arm] == ["erainbow"]
    (line,) = reading.problems
    assert says in line
    assert str(tmp_path) in line
    assert line.isprintable() and len(line) < 600


def test_files_of_a_run_without_a_manifest_are_reported(tmp_path):
    (tmp_path / "rcrl" / "Pong" / "seed_3").mkdir(parents=True)
    write_json(tmp_path / "scores.json", {})
    problems = runs.read(tmp_path).problems
    assert [line.split(";")[0] for line in problems] == [
        f"{tmp_path}/manifest.json is missing",
        f"{tmp_path}/rcrl/Pong/seed_3/manifest.json is missing",
    ]


def test_game_above_preset_and_a_place_of_no_name_are_accepted(tmp_path):
    first = write_run(tmp_path / "a")
    first.rename(tmp_path / "copy")
    second = write_run(tmp_path / "b", seed=1)
    target = tmp_path / "Pong" / "rcrl" / "seed_1"
    target.parent.mkdir(parents=True)
    second.rename(target)
    reading = runs.read(tmp_path)
    assert reading.problems == ()
    assert [*reading.frame.seed] == [0, 1]


# Duplicates


def test_a_copy_counts_once(tmp_path):
    first = write_run(tmp_path / "a")
    second = write_run(tmp_path / "b")
    reading = runs.read(tmp_path)
    assert [*reading.frame.directory] == [first]
    (line,) = reading.problems
    assert line == f"{second} holds the same run as {first}, which counts; remove one"


def test_a_copy_of_a_diverged_run_counts_once(tmp_path):
    for name in ("a", "b"):
        directory = write_run(tmp_path / name, score=None)
        write_json(directory / "diverged.json", {"attempts": 2})
    reading = runs.read(tmp_path)
    assert [*reading.frame.diverged] == [True]
    assert "holds the same run as" in reading.problems[0] and len(reading.problems) == 1


def test_of_runs_with_different_results_none_counts(tmp_path):
    places = [write_run(tmp_path / name, score=score) for name, score in (("a", 1.0), ("b", 2.0))]
    write_run(tmp_path, seed=1)
    reading = runs.read(tmp_path)
    assert [*reading.frame.seed] == [1]
    (line,) = reading.problems
    assert all(str(place) in line for place in places) and "none of them counts" in line


def test_a_finished_run_counts_before_the_same_run_under_way(tmp_path):
    write_run(tmp_path / "a", score=None)
    finished = write_run(tmp_path / "b")
    reading = runs.read(tmp_path, unfinished=True)
    assert [*reading.frame.directory] == [finished]
    assert len(reading.problems) == 1


def test_other_conditions_or_arms_are_no_duplicates(tmp_path):
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", algorithm=1)
    write_run(tmp_path / "c", changes={"n_step": 5})
    write_run(tmp_path / "d", steps=2000)
    frame = runs.read(tmp_path).frame
    assert len(frame) == 4 and frame.pool.nunique() == 3


def test_two_seeds_with_the_same_metrics_count_neither(tmp_path):
    """Seed 1 copied to seed 2, its seed changed wherever it stands."""
    first = write_run(tmp_path, seed=1)
    second = write_run(tmp_path, seed=2)
    shutil.copy(first / "metrics.jsonl", second)
    write_run(tmp_path, seed=3)
    reading = runs.read(tmp_path)
    assert [*reading.frame.seed] == [3]
    (line,) = reading.problems
    assert line.startswith(f"{first} and {second} have the same metrics")


# Trees


def test_runs_without_records_yet_are_not_taken_for_one(tmp_path):
    for seed in range(2):
        directory = write_run(tmp_path, seed=seed, score=None)
        (directory / "metrics.jsonl").write_text("")
    assert runs.read(tmp_path, unfinished=True).problems == ()


def test_a_link_to_a_directory_is_one_line(tmp_path):
    directory = write_run(tmp_path)
    (tmp_path / "rcrl" / "loop").symlink_to(tmp_path)
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    reading = runs.read(tmp_path)
    assert [*reading.frame.directory] == [directory]
    assert reading.problems == (f"{tmp_path}/rcrl/loop is a link and is not followed",)


def test_an_unreadable_directory_is_one_line(tmp_path, monkeypatch):
    write_run(tmp_path)
    (tmp_path / "closed").mkdir()
    scandir = os.scandir

    def refusing(path):
        # The tests may run as root, who may read everything.
        if pathlib.Path(path).name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    reading = runs.read(tmp_path)
    assert len(reading.frame) == 1
    (line,) = reading.problems
    assert line.startswith(f"{tmp_path}/closed cannot be read: Permission denied; change its")


def test_a_root_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for name in ("nowhere", "file"):
        with pytest.raises(ValueError, match=f"there is no directory {tmp_path}/{name}"):
            runs.read(tmp_path, tmp_path / name)


def test_the_agents_of_the_repository_can_be_scored_and_filmed():
    """`make watch` films one of them."""
    kept = (RESULTS.parent / "campaigns" / "parameters").read_text().split()
    assert kept
    for directory in kept:
        path = RESULTS.parent / directory
        assert (path / "parameters.npz").exists()
        assert workdir.read(path).config == presets.ATARI_PRESETS["curl"]
