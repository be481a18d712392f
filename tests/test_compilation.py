"""Where compiled programs are kept."""

import errno
import fcntl
import os
import pathlib
import subprocess
import sys
import types

import jax
import pytest

from rcrl_jax import compilation


def test_a_user_without_a_home_keeps_no_programs(monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(pathlib.Path, "home", no_home)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", None)
    try:
        compilation.keep_programs()
        assert jax.config.jax_compilation_cache_dir is None
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """What JAX is told; its programs are kept below the test's folder."""
    settings = {}
    config = types.SimpleNamespace(jax_compilation_cache_dir=None, update=settings.__setitem__)
    monkeypatch.setattr(jax, "config", config)
    monkeypatch.setattr(jax.monitoring, "register_event_listener", lambda listener: None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return settings


def test_what_a_killed_process_left_of_a_program_is_deleted(tmp_path, settings):
    """JAX's cache would keep no other program from then on."""
    own = compilation.folder(tmp_path / "rcrl_jax")
    own.mkdir(parents=True)
    whole = ("a-cache", "a-atime")
    for name in (*whole, "b-cache", "other"):
        (own / name).touch()
    compilation.keep_programs()
    assert {path.name for path in own.iterdir()} == {*whole, "other", ".lockfile"}
    assert settings["jax_compilation_cache_dir"] == str(own)


def test_settings_of_the_user_stay(monkeypatch, settings):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_MAX_SIZE", "50000000")
    monkeypatch.delenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", raising=False)
    compilation.keep_programs()
    assert settings.keys() == {
        "jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs"
    }  # fmt: skip


def test_a_file_system_without_locks_keeps_no_programs(monkeypatch, settings):
    """JAX would warn at every program, and wait for a lock."""

    def refuse(*arguments):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    compilation.keep_programs()
    assert not settings


COMPILES = """
import sys
import jax
from rcrl_jax import compilation
compilation.keep_programs()
jax.jit(lambda x: x + 1)(1.0)
folder = compilation.folder(__import__("pathlib").Path(sys.argv[1]) / "rcrl_jax")
(folder / "of_a_killed_process-cache").touch()
before = len(list(folder.glob("*-cache")))
jax.jit(lambda x: x * 3 - 2)(1.0)
print(before, len(list(folder.glob("*-cache"))))
"""


def test_an_orphan_that_appears_later_stops_no_write(tmp_path):
    own = {"JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"}
    environment = {name: value for name, value in os.environ.items() if name not in own}
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", COMPILES, str(tmp_path)],
        env={**environment, "XDG_CACHE_HOME": str(tmp_path)},
        cwd=pathlib.Path(__file__).parents[1], capture_output=True, text=True, check=True,
    )  # fmt: skip
    before, after = map(int, ended.stdout.split())
    assert after >= before  # one is deleted, at least one is kept
    assert not list(tmp_path.rglob("of_a_killed_process-cache"))
