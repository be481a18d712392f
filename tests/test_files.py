"""Whatever is wrong with a file is one line that names it; a lock ends with its holder."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import files
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


@pytest.mark.parametrize(
    "error, why",
    [
        (KeyError("mean"), "there is no 'mean'"),
        (ValueError("two\nlines"), "two lines"),
        (RecursionError(), "RecursionError"),
        (MemoryError("x" * 999 + "y" * 140), "x" * 140 + " ... " + "y" * 140),
    ],
)
def test_every_error_in_reading_is_one_bounded_line(error, why):
    with pytest.raises(files.Damaged) as damaged, files.reading("somewhere"):
        raise error
    assert str(damaged.value) == f"somewhere is damaged: {why}"


def test_errors_of_the_operating_system_are_no_damage(tmp_path):
    with pytest.raises(FileNotFoundError):
        files.read_json(tmp_path / "missing", dict)
    with pytest.raises(IsADirectoryError):
        files.read_json(tmp_path, dict)


@pytest.mark.parametrize("content", ["[]", "3", "null", '"text"', "NaN"])
def test_json_without_an_object_is_damage(tmp_path, content):
    (tmp_path / "file").write_text(content)
    with pytest.raises(files.Damaged, match="it is not a JSON object"):
        files.read_json(tmp_path / "file", dict)


def test_deep_nesting_is_damage(tmp_path):
    path = tmp_path / "deep.json"
    path.write_text("[" * 100_000)
    with pytest.raises(files.Damaged, match="recursion"):
        files.read_json(path, dict)


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
