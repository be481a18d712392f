"""Compiled programs that are kept on disk."""

import types

import jax

from rcrl_jax import compilation


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
