"""What the training programs share."""

import errno
import os

import jax
import pytest

from rcrl_jax.programs import command_line, launch
from rcrl_jax.training import experiment


def test_a_gpu_that_jax_leaves_idle_is_named(tmp_path, monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(command_line, "DEVICES", tmp_path)
    assert command_line.idle_gpu("cpu") == ""
    (tmp_path / "nvidia3").touch()
    assert "make .venv/accelerator-cuda13" in command_line.idle_gpu("cpu")
    assert command_line.idle_gpu("gpu") == ""
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")  # as the user wants it
    assert command_line.idle_gpu("cpu") == ""


@pytest.mark.parametrize(
    "number, code", [(errno.EIO, 1), (errno.ESTALE, 1), (errno.ENOSPC, 2), (errno.EACCES, 2)]
)
def test_a_failing_file_system_is_tried_again_and_a_full_disk_is_not(capsys, number, code):
    with pytest.raises(SystemExit) as ended, launch.ending_cleanly():
        raise OSError(number, os.strerror(number), "runs/metrics.jsonl")
    assert ended.value.code == code
    (line,) = capsys.readouterr().err.splitlines()
    assert "runs/metrics.jsonl" in line and ("the same command resumes" in line) == (code == 1)


@pytest.mark.parametrize(
    "error, code, says",
    [
        (experiment.Diverged("Pong 0: a loss is not finite"), 1, "Pong 0: a loss is not finite"),
        (experiment.NotReproduced("not repeated"), 2, "not repeated"),
        (MemoryError("9 GiB"), 2, "too little memory: 9 GiB; train fewer runs at a time"),
    ],
)
def test_what_ends_a_run_is_one_line_and_its_exit_code(error, code, says, capsys):
    with pytest.raises(SystemExit) as ended, launch.ending_cleanly():
        raise error
    assert ended.value.code == code
    assert capsys.readouterr().err == f"error: {says}\n"


def test_a_full_device_is_refused_in_one_line(capsys):
    full = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 9 bytes.\n...")
    with pytest.raises(SystemExit) as ended, launch.ending_cleanly():
        raise full
    assert ended.value.code == command_line.USAGE_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert "Out of memory" in line and "XLA_PYTHON_CLIENT_MEM_FRACTION" in line
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"), launch.ending_cleanly():
        raise jax.errors.JaxRuntimeError("INTERNAL: a defect")
