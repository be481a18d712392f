"""Where compiled programs are kept."""

import pathlib
import types

import jax

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


def test_what_a_killed_process_left_of_a_program_is_deleted(tmp_path, monkeypatch):
    """JAX's cache would keep no other program from then on."""
    own = compilation.folder(tmp_path / "rcrl_jax")
    own.mkdir(parents=True)
    whole, settings = ("a-cache", "a-atime"), {}
    for name in (*whole, "b-cache", "other"):
        (own / name).touch()
    config = types.SimpleNamespace(jax_compilation_cache_dir=None, update=settings.__setitem__)
    monkeypatch.setattr(jax, "config", config)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    compilation.keep_programs()
    assert {path.name for path in own.iterdir()} == {*whole, "other"}
    assert settings["jax_compilation_cache_dir"] == str(own)
