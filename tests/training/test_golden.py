"""Presets compute, bit for bit, the same as when their digests were recorded on this machine.

`python -m tests.training.test_golden record` adds the digests of another machine. On one that has
some, it replaces them and removes all others, which it cannot renew: commit that separately, and
say in the message what changes the results on purpose. Without digests `test_portable.py` compares.
"""

import collections
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import jax
import jaxlib
import numpy as np
import pytest

from rcrl_jax import compilation
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs import pools
from rcrl_jax.ops import native
from rcrl_jax.runs import records
from rcrl_jax.training import experiment
from rcrl_jax.training.plan import Moment, Plan
from tests.training import toy, toy_control

RECORDED = pathlib.Path(__file__).parents[1] / "golden" / "presets.json"
STEPS = 84  # 54 updates of Rainbow, 64 of SAC
ATARI = {
    "learn_start": 30, "evaluation_period": 60, "update_period": 1, "epsilon_decay": 10,
    "replay.capacity": 64, "curl.hidden_size": 8, "curl.projection_size": 4,
}  # fmt: skip
# `test_control.py` trains `rcrl_sac`, as all presets of DMControl.
EXACT = ("rcrl_curl", "rcrl_sac")
OPTIMISED = ("state_sac", "rcrl")  # XLA optimises the update of `rcrl_sac` for a minute


def machine() -> dict[str, object]:
    """Everything that rounding may depend on."""
    return {
        **compilation.processor(),
        "cores": pools.usable_cores(),  # XLA splits sums between them
        "jaxlib": jaxlib.__version__,
        **native.describe(),
    }


def digest(tree) -> str:
    """Digest of all bytes of a tree's arrays, independent of their names and order."""
    leaves = (np.ascontiguousarray(leaf) for leaf in jax.tree.leaves(tree))
    each = sorted(hashlib.sha256(leaf.tobytes()).hexdigest() for leaf in leaves)
    return hashlib.sha256("".join(each).encode()).hexdigest()[:16]


def run_preset(preset: str, workdir) -> tuple[dict[str, str], Plan]:
    """Trains a preset on its toy; returns the digests and the plan."""
    start, seen = [], {}

    def keep(moment: Moment) -> None:
        params = moment.fleet.to_host(moment.params)
        if moment.step == 0:
            start.append(params)
            return
        seen["params"] = digest(params)
        seen["priorities"] = digest(moment.replay.state.priorities)
        assert_trained(start[0], params)

    changes = {"total_steps": STEPS, "observe": keep, "observe_period": STEPS}
    if preset in ATARI_PRESETS:
        plan = toy.make_plan(workdir, preset, overrides=ATARI, **changes)
    else:
        plan = toy_control.make_plan(workdir, preset, **changes)
    experiment.run(plan, say=lambda line: None)
    evaluations = records.read_records(plan.paths[0].evaluations)
    scores = [line["returns"] for line in evaluations]
    seen["scores"] = digest([np.array(returns, np.float64) for returns in scores])
    return seen, plan


def assert_trained(before, after) -> None:
    """Every parameter has changed."""
    for (path, old), new in zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    ):
        assert np.any(old != new), f"{jax.tree_util.keystr(path)} is untrained"


def recorded() -> dict[str, dict[str, dict[str, str]]]:
    """The recorded digests of each preset by kind; none if other machines made them all."""
    every = json.loads(RECORDED.read_text())
    return next((made for made in every if made["machine"] == machine()), {})


where_recorded = pytest.mark.skipif(
    not recorded(), reason="the digests are of other machines; test_portable.py compares here"
)


@where_recorded
@pytest.mark.usefixtures("undrawn_curves")
@pytest.mark.parametrize("preset", [preset for preset in EXACT if preset in ATARI_PRESETS])
def test_preset_matches_its_recorded_digest(preset, tmp_path):
    found, plan = run_preset(preset, tmp_path)
    *_, last = (line for line in records.read_records(plan.paths[0].metrics) if "loss_c51" in line)
    assert {name for name in last if name.startswith("loss_")} == {
        "loss_c51", *(f"loss_{task}" for task in plan.config.tasks_in_use)
    }  # fmt: skip
    assert found == recorded()["digests"][preset]


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> list[dict]:
    """What two processes print, compiled as users compile: the tests turn optimisation off."""
    environment = os.environ | {
        "XLA_FLAGS": "", "XDG_CACHE_HOME": str(tmp_path_factory.mktemp("cache")),
    }  # fmt: skip
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"):
        del environment[name]  # those of the tests
    command = [sys.executable, "-m", "tests.training.test_golden"]
    done = [
        subprocess.run(
            [*command, *presets], cwd=toy.ROOT, env=environment, capture_output=True, text=True
        )
        for presets in (OPTIMISED if recorded() else OPTIMISED[:1], OPTIMISED[:1])
    ]
    assert not any(one.returncode for one in done), done[-1].stderr[-3000:]
    return [json.loads(one.stdout) for one in done]


@where_recorded
def test_presets_compiled_as_users_run_them_match_their_recorded_digests(starts):
    assert starts[0]["digests"] == recorded()["optimised"]


def test_a_second_start_compiles_nothing_and_computes_the_same_bits(starts):
    first, second = starts
    assert second["digests"] == {name: first["digests"][name] for name in OPTIMISED[:1]}
    assert first["compiled"] > 5 and second["compiled"] == 0


def digests_of(presets) -> dict[str, dict[str, str]]:
    found = {}
    for preset in presets:
        with tempfile.TemporaryDirectory() as directory:
            found[preset], _ = run_preset(preset, directory)
    return found


if __name__ == "__main__":
    if sys.argv[1:] == ["record"]:
        from tests import conftest  # noqa: F401 - sets the compiler's flags, before JAX starts

        made = {"machine": machine(), "digests": digests_of(EXACT)}
        again = [sys.executable, "-m", "tests.training.test_golden", *OPTIMISED]
        environment = {**os.environ, "XLA_FLAGS": ""}
        printed = json.loads(subprocess.check_output(again, env=environment))
        made["optimised"] = printed["digests"]
        others = [] if recorded() else json.loads(RECORDED.read_text())
        RECORDED.write_text(json.dumps([*others, made], indent=1) + "\n")
    else:
        compilation.keep_programs()
        events = collections.Counter()
        jax.monitoring.register_event_listener(lambda event, **_: events.update([event]))
        jax.monitoring.register_event_duration_secs_listener(
            lambda event, seconds, **_: events.update([event])
        )
        digests = digests_of(sys.argv[1:])
        programs = events["/jax/core/compile/backend_compile_duration"]
        found = events["/jax/compilation_cache/cache_hits"]
        print(json.dumps({"compiled": programs - found, "digests": digests}))
