"""The recorded runs have the digests of their first commits, and new ones get digests."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from benchmarks import digests
from rcrl_jax.runs import manifest, records
from rcrl_jax.tables import runs
from tests.tables.synthetic import edit, write_lines, write_run

PATH = digests.ROOT / "results" / records.DIGESTS


def test_every_recorded_run_has_digests_and_its_files_have_them():
    found = {
        str((path.parent / name).relative_to(PATH.parent))
        for path in PATH.parent.rglob("manifest.json")
        for name in records.recorded_files(path.parent)
    }
    assert {*records.read_digests(PATH)} == found and len(found) > 1200
    assert digests.differences(PATH) == []


def test_the_digests_are_those_of_the_first_commits():
    if not (digests.ROOT / ".git").exists():
        pytest.skip("this copy has no history")
    if git(digests.ROOT, "rev-parse", "--is-shallow-repository") == "true":
        pytest.skip("this clone has no whole history")
    expected, comments = digests.from_history(digests.ROOT)
    own = records.read_digests(PATH)
    assert {name: own[name] for name in expected} == expected
    lines = PATH.read_text().splitlines()
    assert [line for line in lines if line.startswith("#")] == [f"# {text}" for text in comments]


def test_only_lists_under_way_write_a_field_that_is_gone():
    holding = {
        path.relative_to(PATH.parent).parts[0]
        for path in PATH.parent.rglob("manifest.json")
        if manifest.read(path) != manifest.read(path, as_written=True)
    }
    assert holding == {"base", "claim"}


def git(root, *arguments):
    """The output of git, with an author."""
    command = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(root, subject="any"):
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", subject)


def content_digests(root, directory):
    """The digests of a run's files as they are now."""
    return {
        str((directory / name).relative_to(root / "results")): records.digest_of(directory / name)
        for name in records.recorded_files(directory)
    }


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    return tmp_path


def test_a_file_has_the_digest_of_its_first_commit_whatever_follows(repository):
    directory = write_run(repository / "results" / "old")
    (directory / "curve.png").write_bytes(b"a picture")
    first = content_digests(repository, directory)
    commit(repository)
    edit(directory / "scores.json", mean=99.0)
    commit(repository)
    moved = repository / "results" / "new" / "rcrl" / "Pong" / "seed_0"
    moved.parent.mkdir(parents=True)
    directory.rename(moved)
    commit(repository)
    found, comments = digests.from_history(repository)
    assert found == {name.replace("old/", "new/", 1): digest for name, digest in first.items()}
    assert comments == []
    path = repository / "results" / records.DIGESTS
    path.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
    assert digests.differences(path) == [f"{moved / 'scores.json'} differs from its digest"]
    (line,) = runs.read(repository / "results").problems
    assert line == (
        f"{moved / 'scores.json'} is damaged: it has changed: {path} has another digest; "
        "restore the file or repeat the run"
    )


def test_a_run_that_was_recorded_unfinished_has_the_digests_of_its_end(repository):
    directory = write_run(repository / "results" / "unfinished", score=None)
    commit(repository)
    shutil.rmtree(directory)
    finished = write_run(repository / "results")
    for name in ("manifest.json", "metrics.jsonl"):
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(finished / name, directory / name)
    commit(repository)
    shutil.rmtree(directory)
    commit(repository)
    assert digests.from_history(repository)[0] == content_digests(repository, finished)


def test_of_manifests_the_commit_that_rewrote_them_counts_and_is_named(repository):
    directory = write_run(repository / "results")
    scores = records.digest_of(directory / "scores.json")
    commit(repository)
    edit(directory / "manifest.json", "run", algorithm=1)
    edit(directory / "scores.json", mean=99.0)
    commit(repository, digests.REWRITING)
    manifest = records.digest_of(directory / "manifest.json")
    edit(directory / "manifest.json", "run", algorithm=2)
    commit(repository)
    found, comments = digests.from_history(repository)
    place = "rcrl/Pong/seed_0"
    assert found[f"{place}/manifest.json"] == manifest
    assert found[f"{place}/scores.json"] == scores
    assert comments == [f"1 manifests: of commit '{digests.REWRITING}'"]


@pytest.fixture
def project(tmp_path):
    """A project with its programs and one recorded run."""
    for name in ("benchmarks", "experiments", "rcrl_jax"):
        (tmp_path / name).symlink_to(digests.ROOT / name)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (tmp_path / "campaigns").mkdir()
    shutil.copy(digests.ROOT / "campaigns" / "collected", tmp_path / "campaigns")
    known = write_run(tmp_path / "results")
    lines = [f"{digest}  {name}\n" for name, digest in content_digests(tmp_path, known).items()]
    (tmp_path / "results" / records.DIGESTS).write_text("# kept\n" + "".join(lines))
    return tmp_path


def collected(project, *arguments):
    return subprocess.run(
        ["campaigns/collected", *arguments], cwd=project, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_runs_that_a_campaign_brings_home_get_digests(project):
    path = project / "results" / records.DIGESTS
    before = records.read_digests(path)
    new = [write_run(project / "results" / "base", seed=seed) for seed in (1, 2)]
    done = collected(project, *(str(run.relative_to(project)) for run in new))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"results/{records.DIGESTS}\n", "")
    wanted = before | content_digests(project, new[0]) | content_digests(project, new[1])
    assert records.read_digests(path) == wanted
    assert path.read_text().startswith("# kept\n")
    assert runs.read(project / "results").problems == ()
    (new[1] / "metrics.jsonl").write_text("")
    assert len(runs.read(project / "results").problems) == 1


def write_minatar_run(project):
    """A run of MinAtar with the files that training leaves, below results/minatar."""
    root = project / "results" / "minatar" / "question"
    run = write_run(
        root, "minatar_erainbow_sa", "Breakout", 0, steps=30_000, episodes=20, backend="minatar"
    )
    episode = {"agent_steps": 2000, "wall_s": 1.26, "episode_return": 3.0}
    update = {"agent_steps": 2000, "wall_s": 1.27, "loss_c51": 1 / 3, "steps_per_s": 9.5}
    write_lines(run / "metrics.jsonl", [episode, update])
    own = {
        name: records.Digest(records.read_records(run / f"{name}.jsonl")).value.hex()
        for name in ("metrics", "evaluations")
    }
    edit(run / "scores.json", record_digests=own)
    for name in ("curve.png", "parameters.npz"):
        (run / name).write_bytes(b"large")
    return run


@pytest.mark.parametrize("is_named", [False, True])
def test_runs_of_minatar_are_packed_before_they_get_digests(project, is_named):
    run, path = write_minatar_run(project), project / "results" / records.DIGESTS
    before = records.read_metrics(run / "metrics.jsonl")
    if is_named:
        names = f"{run.relative_to(project)}\n"
        (project / "campaigns" / "parameters").write_text(names)
    for _ in range(2):  # a second time changes nothing
        found, _ = digests.with_runs(path, [str(run)])
        path.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))
        kept = {"evaluations.jsonl", "manifest.json", "metrics.jsonl.xz", "scores.json"}
        kept |= {"parameters.npz"} if is_named else set()
        assert {file.name for file in run.iterdir()} == kept
        assert content_digests(project, run).items() <= found.items()
    assert runs.read(project / "results" / "minatar").problems == ()
    for line in before:
        line.pop("steps_per_s", None)
        line["wall_s"] = 1
    assert records.read_metrics(run / "metrics.jsonl") == before
    (run / "metrics.jsonl.xz").write_bytes(b"")
    assert len(runs.read(project / "results" / "minatar").problems) == 1


def test_runs_of_minatar_that_come_home_are_judged(project):
    run = write_minatar_run(project)
    done = collected(project, str(run.relative_to(project)))
    files = ["digests.txt", "minatar/README.md", "minatar/curves.png"]
    assert done.stdout.split() == [f"results/{name}" for name in files]
    assert (done.returncode, done.stderr) == (0, "")
    page = (project / "results" / "minatar" / "README.md").read_text()
    assert "not yet asked, 1 of 480 runs finished." in page and "| 3.000 (1) |" in page


@pytest.mark.parametrize(
    "run, says",
    [
        ("results/rcrl/Pong/seed_0", "scores.json is damaged: it has changed"),
        ("results/rcrl/Pong/seed_1", "is no run below"),
        ("elsewhere/rcrl/Pong/seed_0", "is no run below"),
    ],
)
def test_digests_of_no_run_or_of_a_changed_one_are_refused(project, run, says):
    write_run(project / "elsewhere")
    edit(project / "results" / "rcrl" / "Pong" / "seed_0" / "scores.json", mean=99.0)
    before = (project / "results" / records.DIGESTS).read_text()
    done = collected(project, run)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert says in done.stderr
    assert (project / "results" / records.DIGESTS).read_text() == before


def test_a_run_that_lost_records_on_its_way_home_is_refused(project):
    """So is a list with a mistake, before any of its runs is packed."""
    run = write_minatar_run(project)
    good = {path: path.read_bytes() for path in run.iterdir()}
    done = collected(project, str(run.relative_to(project)), "results/nowhere")
    assert done.returncode == 2 and "results/nowhere is no run below" in done.stderr
    assert {path: path.read_bytes() for path in run.iterdir()} == good
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]))
    done = collected(project, str(run.relative_to(project)))
    assert done.returncode == 2 and "metrics.jsonl" in done.stderr
    assert (run / "parameters.npz").exists()


def test_without_a_history_nothing_is_written(tmp_path):
    with pytest.raises(OSError, match="git log: fatal: not a git repository"):
        digests.from_history(pathlib.Path(tmp_path))
