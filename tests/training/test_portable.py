"""The updates of presets are, to rounding, the recorded ones, on any processor.

XLA computes them without our kernels, from fixed actions, so that rounding changes no batch.
`python -m tests.training.test_portable record` records the presets that have no numbers or whose
numbers differ by more than rounding, and names them. `record rcrl curl` computes these alone and
keeps all other numbers. Commit new numbers of an old preset separately, and say in the message what
changes the results on purpose.
"""

import json
import pathlib
import sys

import jax
import numpy as np
import pytest

from rcrl_jax.agents import make_agent
from rcrl_jax.agents.simple.settings import IN_MODEL, MODEL, REAL
from rcrl_jax.agents.slac import agent as slac
from rcrl_jax.config.presets import (
    ATARI_PRESETS,
    DMC_PRESETS,
    MINATAR_PRESETS,
    WORLD_MODEL_PRESETS,
)
from rcrl_jax.ops import native
from rcrl_jax.training import build
from tests.training import (
    test_golden,
    test_minatar,
    toy,
    toy_control,
    toy_simple,
    toy_world_models,
)

RECORDED = pathlib.Path(__file__).parents[1] / "golden" / "updates.json"
UPDATES = 3
# All parts of the update of each are parts of others: CURL's of `rcrl_curl`, its head of
# `erainbow_aug`; the discriminator of `rcrl_normal` is that of SAC; `simple_small` is `simple`;
# `dreamer` is `dreamer_rcrl` without its task, `minatar_erainbow_sa` is `minatar_rcrl` without it.
IMPLIED = (
    "erainbow", "erainbow_sa", "erainbow_sa_normal", "curl", "rcrl_normal", "der_plus", "pixel_sac",
    "sac_aug", "curl_sac", "rcrl_sac", "dreamer", "minatar_erainbow_sa",
)  # fmt: skip
SIMPLE = {"simple": "deterministic", "simple, stochastic": "stochastic"}
PRESETS = [
    preset
    for preset in (*ATARI_PRESETS, *MINATAR_PRESETS, *DMC_PRESETS, *WORLD_MODEL_PRESETS)
    if preset not in IMPLIED
]
PRESETS += SIMPLE
NORMS = "gradient_norm", "model_gradient_norm", "q_mean"
# Between AVX2 and AVX-512, with kernels and without, optimised or not, numbers differed by up to
# 1.4e-5 of themselves, and by 1.4e-4 what Dreamer's updates did to the parameters: Adam's first
# steps are as large for a gradient of rounding errors as for any other. An error of a thousandth
# must be noticed.
RELATIVE, ABSOLUTE = 4e-4, 1e-6


def follow(preset: str) -> dict[str, list[float]]:
    """Losses and norms of each of the first updates, and what the updates did to the parameters."""
    kinds = (0,) * UPDATES
    if preset in SIMPLE:
        # The model's first step has size 0. Few steps in it: a pixel's value is a choice, which
        # rounding may turn.
        kinds = (MODEL,) * UPDATES + (REAL, IN_MODEL)
        overrides = {"precision": "float32", "model_rollout": 3}
        plan = toy_simple.make_plan("", SIMPLE[preset], overrides=overrides)
    elif preset in ATARI_PRESETS:
        overrides = test_golden.ATARI | {"target_period": 2, "precision": "float32"}
        plan = toy.make_plan("", preset, overrides=overrides)
    elif preset in MINATAR_PRESETS:
        plan = test_minatar.make_plan("", (3,), preset, target_period=2, precision="float32")
    elif preset in WORLD_MODEL_PRESETS:
        overrides = {"precision": "float32"}
        if preset == "slac":
            kinds = (slac.MODEL, *(slac.JOINT,) * (UPDATES - 1))
        plan = toy_world_models.make_plan("", preset, overrides=overrides)
    else:
        plan = toy_control.make_plan("", preset, overrides={"precision": "float32"})
    environment, fleet = build.make_fleet(plan)
    replay, learner = toy.played(environment, fleet), fleet.init()
    start = fleet.to_host(learner.params)
    seen = {}
    for kind in kinds:
        learner, result = fleet.update(learner, replay.sample(1.0, kind).batch, kind)
        for name, value in result.metrics.items():
            if name.startswith("loss_") or name in NORMS:
                seen.setdefault(name, []).append(float(value[0]))
        seen.setdefault("transition_loss", []).append(float(np.mean(result.transition_loss)))
    end = fleet.to_host(learner.params)
    test_golden.assert_trained(start, end)
    for part in ("agent", "auxiliary"):
        after, before = (jax.tree.leaves(getattr(params, part)) for params in (end, start))
        squares = (np.sum(np.square(a - b)) for a, b in zip(after, before, strict=True))
        seen[f"change of {part}"] = [float(np.sqrt(sum(squares)))]
    return seen


def differing(found, expected) -> set[str]:
    """What of an update differs by more than rounding, or is in one of the two alone."""
    if found.keys() != expected.keys():
        return set(found.keys() ^ expected.keys())
    return {
        name
        for name, values in found.items()
        if not np.allclose(values, expected[name], rtol=RELATIVE, atol=ABSOLUTE)
    }


def renewed(found, recorded) -> dict[str, dict[str, list[float]]]:
    """The numbers to record: those of before where the ones found differ by rounding alone."""
    return {
        preset: numbers
        if preset not in recorded or differing(numbers, recorded[preset])
        else recorded[preset]
        for preset, numbers in found.items()
    }


def test_recording_keeps_what_differs_by_rounding_alone():
    recorded = {"old": {"loss": [1.0]}, "changed": {"loss": [1.0]}, "gone": {"loss": [1.0]}}
    found = {"old": {"loss": [1.00001]}, "changed": {"loss": [1.001]}, "new": {"loss": [2.0]}}
    assert renewed(found, recorded) == {**found, "old": recorded["old"]}
    more = {"old": {"loss": [1.0], "norm": [1.0]}}
    assert renewed(more, recorded) == more


@pytest.fixture(scope="module")
def numbers():
    """The recorded numbers of each preset; the tests run without kernels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "get", lambda name: None)
        jax.clear_caches()  # JAX remembers what each platform computes
        yield json.loads(RECORDED.read_text())


@pytest.fixture
def recorded(numbers, monkeypatch) -> dict[str, dict[str, list[float]]]:
    monkeypatch.setattr(make_agent, "_made", [])  # agents with kernels
    return numbers


@pytest.mark.parametrize("preset", PRESETS)
def test_the_first_updates_are_the_recorded_ones(preset, recorded):
    assert not differing(follow(preset), recorded[preset])


def test_an_error_of_a_thousandth_in_any_loss_is_noticed(numbers):
    """In one preset at least: what is close to zero has larger relative errors by rounding."""
    noticed, losses = set(), set()
    for preset in PRESETS:
        for name in numbers[preset]:
            if name.startswith("loss_"):
                changed = [1.001 * value for value in numbers[preset][name]]
                noticed |= differing(numbers[preset] | {name: changed}, numbers[preset])
                losses.add(name)
    assert losses and noticed == losses


if __name__ == "__main__":
    from tests import conftest  # noqa: F401 - sets the compiler's flags, before JAX starts

    command, names = sys.argv[1:2], sys.argv[2:]
    if command != ["record"]:
        sys.exit("usage: python -m tests.training.test_portable record [PRESET ...]")
    if unknown := set(names) - set(PRESETS):
        sys.exit(f"not recorded here: {', '.join(sorted(unknown))}; only {', '.join(PRESETS)}")
    native.get = lambda name: None
    before = json.loads(RECORDED.read_text())
    found = {}
    for preset in names or PRESETS:
        print("computing", preset, flush=True)
        found[preset] = follow(preset)
    kept = before if names else {}
    made = kept | renewed(found, before)
    RECORDED.write_text(json.dumps(made, indent=1) + "\n")
    print("recorded:", *(preset for preset in made if made[preset] != before.get(preset)))
