"""The contents of manifests, and when a work directory is refused."""

import dataclasses
import json
import os
import re
import subprocess
import sys

import jax
import pytest

import rcrl_jax
from rcrl_jax import files
from rcrl_jax.config import fields
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.ops import native
from rcrl_jax.runs import manifest
from rcrl_jax.runs.paths import RunPaths


@dataclasses.dataclass(frozen=True)
class _Config:
    n_step: int = 20
    learning_rate: float = 1e-4
    auxiliary: tuple[str, ...] = ("return_contrast",)
    head: str = "state_action"
    bound: float = float("inf")


def _make(**changes):
    run = {
        "preset": "rcrl",
        "config": _Config(),
        "game": "Pong",
        "seed": 0,
        "steps": 100_000,
        "backend": "envpool",
    }
    return {
        "run": manifest.describe_run(**{**run, **changes}),
        "environment": {"resize": "area", "noop_max": 30},
        "protocol": {"epsilon": 0.001, "episodes": 10},
        **manifest.circumstances(),
    }


def test_the_contents_of_a_manifest(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
    monkeypatch.setattr(
        sys, "orig_argv", ["/some/where/python3", "-m", "experiments.atari100k", "--game=My Game"]
    )
    made = _make()
    assert tuple(made) == manifest.SECTIONS
    assert made["run"] == {
        "format": manifest.FORMAT,
        "preset": "rcrl",
        "game": "Pong",
        "seed": 0,
        "steps": 100_000,
        "backend": "envpool",
        "algorithm": 2,
        "config": {
            "n_step": 20,
            "learning_rate": 1e-4,
            "auxiliary": ["return_contrast"],
            "head": "state_action",
            "bound": None,
        },
    }
    assert made["versions"]["rcrl_jax"] == rcrl_jax.__version__
    assert made["versions"]["jax"] == jax.__version__
    assert set(made["versions"]) == {
        "rcrl_jax", "jax", "jaxlib", "flax", "optax", "rlax", "numpy", "envpool", "ale_py",
        "dm_control", "mujoco",
        "python", "git_commit",
    }  # fmt: skip
    assert made["device"] == {
        "platform": jax.devices()[0].platform,
        "kind": jax.devices()[0].device_kind,
        "count": jax.device_count(),
        "host_cores": os.cpu_count(),
        "xla_flags": "--xla_gpu_deterministic_ops=true",
        **{f"cpu_{kernel}": by for kernel, by in native.describe().items()},
    }
    assert made["launch"]["command"] == "python -m experiments.atari100k '--game=My Game'"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", made["launch"]["started_utc"])
    assert made == json.loads(json.dumps(made, allow_nan=False))


@pytest.fixture
def stored(tmp_path):
    """The path of a manifest that `_make()` wrote."""
    path = tmp_path / "manifest.json"
    files.write_json_atomically(path, _make())
    return path


def test_the_same_run_later_is_no_conflict(stored):
    later = _make()
    later["launch"] = {"command": "another", "started_utc": "2031-01-01T00:00:00+00:00"}
    assert manifest.check_same_run(stored, later) is None


@pytest.mark.parametrize("value", ["none", "unit"])
def test_a_field_that_is_gone_makes_another_run_only_where_it_changed_the_agent(stored, value):
    old = _make()
    old["run"]["config"]["return_contrast"] = {"discriminator_norm": value}
    files.write_json_atomically(stored, old)
    assert manifest.read(stored, as_written=True) == old
    new = _make()
    new["run"]["config"]["return_contrast"] = {}
    if value == "none":
        assert manifest.check_same_run(stored, new) is None
    else:
        with pytest.raises(manifest.WorkdirMismatch, match=r"discriminator_norm unit -> absent"):
            manifest.check_same_run(stored, new)


def test_where_a_resumption_takes_frames_from_makes_no_other_run():
    config = DMC_PRESETS["rcrl_sac"]
    rendered = fields.replace(config, {"replay.resumed_frames": "rendered"})
    old, new = (_make(config=one)["run"] for one in (config, rendered))
    assert manifest.describe_other_run(files.to_json_value(old), new) == ""
    other = _make(config=rendered, seed=1)["run"]
    assert manifest.describe_other_run(files.to_json_value(old), other) == "seed 0 -> 1"


def test_a_preset_has_an_algorithm_number_of_its_own():
    assert _make()["run"]["algorithm"] == _make(preset="a preset of one's own")["run"]["algorithm"]
    for preset in ("dreamer", "dreamer_rcrl", "simple", "simple_small", "simple_catch"):
        assert _make(preset=preset)["run"]["algorithm"] == 3


def change_algorithm(old, new):
    old["algorithm"] -= 1


def forget_algorithm(old, new):
    """As manifests before there were algorithms."""
    del old["algorithm"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"preset": "erainbow"}, "preset rcrl -> erainbow"),
        ({"backend": "ale_py"}, "backend envpool -> ale_py"),
        ({"config": _Config(auxiliary=())}, "config.auxiliary ['return_contrast'] -> []"),
        ({"config": _Config(bound=1.0)}, "config.bound None -> 1.0"),
        (
            {"game": "Boxing", "seed": 7, "config": _Config(n_step=1, learning_rate=1.0, head="s")},
            "game Pong -> Boxing, seed 0 -> 7, config.n_step 20 -> 1 and 2 more",
        ),
        (change_algorithm, "algorithm 1 -> 2"),
        (forget_algorithm, "algorithm absent -> 2"),
        (lambda old, new: new["config"].update(new_field=5), "config.new_field absent -> 5"),
        (lambda old, new: new["config"].pop("head"), "config.head state_action -> absent"),
    ],
)
def test_another_run_is_refused_in_one_line(stored, change, message):
    """Three differences are named, and the others counted."""
    old, new = _make(), _make(**change) if isinstance(change, dict) else _make()
    if callable(change):
        change(old["run"], new["run"])
        files.write_json_atomically(stored, old)
    before = stored.read_bytes()
    with pytest.raises(manifest.WorkdirMismatch) as raised:
        manifest.check_same_run(stored, new)
    assert str(raised.value) == (
        f"{stored.parent} belongs to another configuration: {message}; "
        "choose another --workdir or repeat the old command"
    )
    assert stored.read_bytes() == before


def test_a_work_directory_of_another_format_is_refused_in_one_line(stored):
    old = json.loads(stored.read_text())
    old["run"]["format"] = 1
    old["run"]["config"] = {"contrast_batch_size": 64}
    files.write_json_atomically(stored, old)
    with pytest.raises(manifest.WorkdirMismatch) as raised:
        manifest.check_same_run(stored, _make())
    assert f": format 1 -> {manifest.FORMAT}, " in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        ("versions", "jax", "99.0", f"versions.jax {jax.__version__} -> 99.0"),
        ("device", "kind", "TPU v5e", "-> TPU v5e"),
        ("environment", "resize", "bilinear", "environment.resize area -> bilinear"),
        ("protocol", "episodes", 100, "protocol.episodes 10 -> 100"),
    ],
)
def test_other_circumstances_are_a_warning(stored, section, field, value, message):
    changed = _make()
    changed[section][field] = value
    warning = manifest.check_same_run(stored, changed)
    assert warning.startswith("resumed under other circumstances: ")
    assert warning.endswith(message)
    assert "\n" not in warning


def test_a_manifest_keeps_under_which_other_circumstances_a_run_went_on(tmp_path):
    paths = [RunPaths(tmp_path, "rcrl", "Pong", 0)]
    first, other = _make(), _make()
    other["versions"]["jax"], other["launch"]["command"] = "99.0", "python again"
    manifest.claim(paths, [first])
    before = manifest.read(paths[0].manifest)
    manifest.record_resumption(paths, [first])  # nothing has changed
    assert manifest.read(paths[0].manifest) == before
    for _ in range(2):  # the second time nothing has changed since the first
        manifest.record_resumption(paths, [other])
        after = manifest.read(paths[0].manifest)
        (resumed,) = after["launch"].pop("resumed")
        assert after == before
        assert resumed["versions"]["jax"] == "99.0" and resumed["command"] == "python again"
    manifest.record_resumption(paths, [first])
    third = manifest.read(paths[0].manifest)["launch"]["resumed"]
    assert [one["versions"]["jax"] for one in third] == ["99.0", jax.__version__]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A git repository with one committed file, which replaces the manifest module."""
    module = tmp_path / "manifest.py"
    module.write_text("one\n")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "measured.json").write_text("1\n")

    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)  # a hook that runs tests names its repository there
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")

    def git(*arguments):
        identity = ("-c", "user.name=n", "-c", "user.email=e@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, timeout=30)

    git("init", "--quiet")
    git("add", "manifest.py", "results")
    git("commit", "--quiet", "-m", "one")
    monkeypatch.setattr(manifest, "__file__", str(module))
    return tmp_path


def test_commit_of_a_clean_and_of_an_edited_tree(repository):
    clean = manifest.git_commit()
    assert re.fullmatch(r"[0-9a-f]{40}", clean)
    (repository / "results" / "measured.json").write_text("2\n")
    assert manifest.git_commit() == clean
    (repository / "manifest.py").write_text("two\n")
    assert manifest.git_commit() == f"{clean}-dirty"


def test_a_repository_of_another_user_has_a_commit(repository, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    assert len(manifest.git_commit()) == 40


def test_the_repository_is_only_read(repository):
    """Git would write times of files into its index, and leave a lock if it cannot."""
    index = repository / ".git" / "index"
    before = index.read_bytes()
    os.utime(repository / "manifest.py", (1, 1))
    assert manifest.git_commit() is not None
    assert index.read_bytes() == before


def test_a_copy_installed_inside_another_repository_has_no_commit(repository, monkeypatch):
    installed = repository / ".venv" / "manifest.py"
    installed.parent.mkdir()
    installed.write_text("one\n")
    monkeypatch.setattr(manifest, "__file__", str(installed))
    assert manifest.git_commit() is None


def test_without_git_there_is_no_commit(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    assert manifest.git_commit() is None


def test_a_refused_fleet_leaves_no_manifest(tmp_path):
    new, old = (RunPaths(tmp_path, "rcrl", "Pong", seed) for seed in (0, 1))
    manifest.claim([old], [_make(seed=1)])
    with pytest.raises(manifest.WorkdirMismatch):
        manifest.claim([new, old], [_make(seed=0), _make(seed=1)])
    assert not new.directory.exists()
    manifest.claim([old], [_make(seed=1)])  # the old command goes on
