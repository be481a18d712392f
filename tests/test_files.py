"""Whatever is wrong with a file is one line that names it; a lock ends with its holder."""

import errno
import fcntl
import json
import os
import pathlib
import signal
import socket
import stat
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import files
from rcrl_jax.envs import frame_log
from rcrl_jax.runs import manifest, records
from rcrl_jax.runs.paths import RunPaths
from tests.training import toy


@given(
    content=st.binary(max_size=60)
    | st.dictionaries(st.text(), st.integers(), max_size=3).map(lambda d: json.dumps(d).encode())
)
def test_a_json_file_is_read_or_damaged(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(content)
    try:
        value = files.read_json(path, dict)
    except files.Damaged as error:
        assert str(error).startswith(f"{path} is damaged: ")
        assert "\n" not in str(error)
    else:
        assert repr(value) == repr(json.loads(content))


def link_to_an_endless_device(path):
    path.symlink_to("/dev/zero")


NOT_REGULAR = (os.mkdir, os.mkfifo, link_to_an_endless_device)


@pytest.mark.parametrize("make", NOT_REGULAR)
@pytest.mark.parametrize(
    "read",
    [
        manifest.read, records.read_scores, records.read_metrics, records.read_evaluations,
        lambda path: frame_log.FrameLog(path, 100), lambda path: frame_log.FrameLog(path, 0),
    ],
)  # fmt: skip
def test_a_run_s_file_that_is_not_regular_is_damage_and_neither_blocks_nor_is_read(
    tmp_path, make, read
):
    make(tmp_path / "file")
    with pytest.raises((files.Damaged, IsADirectoryError)) as raised:
        read(tmp_path / "file")
    assert str(tmp_path / "file") in str(raised.value)


@pytest.mark.parametrize("make", NOT_REGULAR)
def test_progress_does_not_wait_for_metrics_that_are_no_file(tmp_path, make):
    paths = RunPaths(tmp_path, "rcrl", "Pong", 0)
    paths.directory.mkdir(parents=True)
    make(paths.metrics)
    assert records.read_progress(paths) == (0, 0.0)


def test_a_file_of_absurd_size_is_damage(tmp_path):
    with open(tmp_path / "scores.json", "w") as file:
        file.truncate(2**28 + 1)  # of holes
    with pytest.raises(files.Damaged, match="scores.json is damaged: it has more than 256 MB"):
        files.read_json(tmp_path / "scores.json", dict)


def test_an_open_file_is_named_in_its_errors():
    with pytest.raises(OSError) as full, files.naming("/dev/full"):
        with open("/dev/full", "w", buffering=1) as file:
            file.write("line\n")
    assert full.value.filename == "/dev/full"
    with pytest.raises(FileNotFoundError) as missing, files.naming("other"):
        open("/no/such/file")
    assert missing.value.filename == "/no/such/file"


def test_what_is_set_aside_replaces_nothing(tmp_path):
    for content in ("first", "second", "third"):
        (tmp_path / "file").write_text(content)
        files.set_aside(tmp_path / "file", "old")
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"file.old": "first", "file.old.2": "second", "file.old.3": "third"}


HOLDER = """
import sys, time
from rcrl_jax import files
with files.locked(sys.argv[1], "program"):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_lock_names_its_holder_and_ends_with_its_death(tmp_path):
    directory = tmp_path / "new" / "workdir"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(directory)], cwd=toy.ROOT, stdout=subprocess.PIPE
    )
    assert holder.stdout.readline() == b"locked\n"
    with pytest.raises(files.InUse) as refusal, files.locked(directory, "program"):
        pass
    message = str(refusal.value)
    assert message.startswith(
        f"{directory} is in use by another program, process {holder.pid} on {socket.gethostname()}:"
    )
    assert "python -c" in message and "\n" not in message
    holder.send_signal(signal.SIGKILL)
    holder.communicate()
    with files.locked(directory, "program"):
        assert f"process {os.getpid()} " in (directory / "lock").read_text()
    assert (directory / "lock").read_text() == ""


def test_a_second_lock_in_one_process_is_refused_too(tmp_path):
    with files.locked(tmp_path, "program"):
        with pytest.raises(files.InUse), files.locked(tmp_path, "program"):
            pass
        assert pathlib.Path(tmp_path, "lock").read_text()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_lock_that_was_deleted_is_noticed_before_the_next_save(tmp_path, replaced):
    with files.locked(tmp_path, "program") as check:
        check()
        (tmp_path / "lock").unlink()
        if replaced:
            with files.locked(tmp_path, "program") as check_second:
                check_second()
        with pytest.raises(files.InUse, match="lock was deleted or replaced: another program may"):
            check()


@pytest.mark.parametrize("make", NOT_REGULAR)
def test_a_lock_that_is_not_a_regular_file_is_refused_by_name(tmp_path, make):
    make(tmp_path / "lock")
    with pytest.raises((files.Damaged, IsADirectoryError)) as raised:
        with files.locked(tmp_path, "program"):
            pass
    assert str(tmp_path / "lock") in str(raised.value)


def test_arrays_tuples_and_paths_become_plain_json():
    value = {
        "float32": np.float32(0.5),
        "int64": np.int64(7),
        "bool": np.True_,
        "nan": np.float32("nan"),
        "numpy": np.array([[1.0, np.inf], [-np.inf, 2.0]]),
        "jax": jnp.arange(3),
        "jax_scalar": jnp.float32(1.5),
        "tuple": (1, (2,)),
        "path": pathlib.Path("a/b"),
        1: "number",
    }
    assert files.to_json_value(value) == {
        "float32": 0.5,
        "int64": 7,
        "bool": True,
        "nan": None,
        "numpy": [[1.0, None], [None, 2.0]],
        "jax": [0, 1, 2],
        "jax_scalar": 1.5,
        "tuple": [1, [2]],
        "path": "a/b",
        "1": "number",
    }


def test_a_value_that_json_cannot_hold_leaves_the_old_file(tmp_path):
    path = tmp_path / "scores.json"
    files.write_json_atomically(path, {"mean": 1.0})
    with pytest.raises(TypeError, match="complex"):
        files.write_json_atomically(path, {"mean": 2.0, "bad": 1j})
    assert json.loads(path.read_text()) == {"mean": 1.0}
    assert os.listdir(tmp_path) == ["scores.json"]


def test_what_is_no_file_is_not_replaced_and_a_link_stays(tmp_path):
    """Root could replace `/dev/null`."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(OSError, match=f"it is not a regular file: '.*/{name}'"):
            files.write_json_atomically(tmp_path / name, {})
    (tmp_path / "link").symlink_to("file")
    files.write_json_atomically(tmp_path / "link", {"mean": 1.0})
    assert (tmp_path / "link").is_symlink() and stat.S_ISFIFO(os.stat(tmp_path / "pipe").st_mode)
    assert json.loads((tmp_path / "file").read_text()) == {"mean": 1.0}


def test_a_full_disk_leaves_only_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "scores.json"
    path.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        files.write_json_atomically(path, {"mean": 2.0})
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["scores.json"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_locks_or_sync_is_named_with_what_to_do(
    tmp_path, monkeypatch, number
):
    """NFS without its lock service, and some file systems in user space."""

    def refuse(*arguments):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(os, "fsync", refuse)
    for path, use in (
        (tmp_path / "lock", files.locked(tmp_path, "training")),
        (tmp_path / "scores.json", files.replacing(tmp_path / "scores.json")),
    ):
        with pytest.raises(OSError, match="another file system") as refused, use as partial:
            partial.touch()
        assert refused.value.filename == str(path) and refused.value.errno == number


def test_a_file_is_synced_before_it_is_renamed(tmp_path, monkeypatch):
    path = tmp_path / "scores.json"
    path.write_text("old")
    order = []
    fsync, replace = os.fsync, os.replace

    def noting_fsync(descriptor):
        order.append(("fsync", os.fstat(descriptor).st_size, path.read_text()))
        fsync(descriptor)

    def noting_replace(source, target):
        order.append(("replace", pathlib.Path(source).parent, pathlib.Path(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noting_fsync)
    monkeypatch.setattr(os, "replace", noting_replace)
    with files.replacing(path) as partial:
        assert partial.suffix == ".json"
        partial.write_text("the new one")
    assert order == [("fsync", len("the new one"), "old"), ("replace", tmp_path, path)]
    assert path.read_text() == "the new one"


def test_two_processes_can_replace_one_file_at_the_same_time(tmp_path):
    path = tmp_path / "scores.json"
    with files.replacing(path) as ours:
        ours.write_text("ours")
        program = f"from rcrl_jax import files; files.write_json_atomically({str(path)!r}, 'other')"
        subprocess.run([sys.executable, "-c", program], check=True)
        assert path.read_text() == '"other"\n' and ours.read_text() == "ours"
    assert path.read_text() == "ours"
    assert os.listdir(tmp_path) == ["scores.json"]


def test_a_write_deletes_what_killed_processes_left_of_this_file_only(tmp_path):
    program = (
        "import os, pathlib, signal, sys; from rcrl_jax import files\n"
        "with files.replacing(pathlib.Path(sys.argv[1])) as partial:\n"
        "    partial.write_text('half'); print(os.getpid(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "scores.json"
    killed = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True
    )
    dead = killed.stdout.strip()
    assert os.listdir(tmp_path) == [f".partial.{dead}.scores.json"]
    kept = {f".partial.{os.getppid()}.scores.json", f".partial.{dead}.5.scores.json"}
    for name in kept:
        (tmp_path / name).touch()
    files.write_json_atomically(path, 1)
    assert set(os.listdir(tmp_path)) == {"scores.json", *kept}


def test_a_directory_is_made_and_stays_empty(tmp_path):
    for _ in range(2):
        files.make_writable(tmp_path / "a" / "b")
        assert os.listdir(tmp_path / "a" / "b") == []


def test_a_checked_directory_is_not_made(tmp_path):
    files.check_writable(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == []
    (tmp_path / "a").mkdir()
    files.check_writable(tmp_path / "a")
    files.check_writable(tmp_path / "a" / "b")
    assert os.listdir(tmp_path) == ["a"] and os.listdir(tmp_path / "a") == []


@pytest.mark.parametrize("check", [files.make_writable, files.check_writable])
def test_a_directory_that_cannot_hold_files_is_an_error(tmp_path, check):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", "/proc"):
        with pytest.raises(OSError):
            check(path)
    assert os.listdir(tmp_path) == ["file"]
