"""The first command for a lent machine."""

import jax
import numpy as np
import pytest

from benchmarks import first_look
from rcrl_jax import types
from rcrl_jax.config import fields
from rcrl_jax.training.fleet import Fleet
from tests.programs import programs
from tests.training import toy, toy_control

SMALL = fields.replace(first_look.RAINBOW, toy.SMALL)
SMALL_SAC = fields.replace(first_look.SAC, toy_control.SMALL)


@pytest.fixture
def device_update(monkeypatch):
    """Replaces what the device makes of an update; the CPU's reference is the first of two."""

    def plant(change):
        original, calls = Fleet.update, []

        def update(self, state, batch, kind=0):
            calls.append(self)
            new, result = original(self, state, batch, kind)
            return (new, result) if self is calls[0] else change(new, result)

        monkeypatch.setattr(Fleet, "update", update)

    return plant


def test_the_cpu_agrees_with_itself():
    """For SAC in tf32; for Rainbow, `test_a_wrong_update_is_found` gives the planted errors."""
    measured = first_look.check_update(SMALL_SAC, "tf32")
    assert set(measured) == {"loss", "gradient", "step"} and max(measured.values()) < 1e-5


def scaled_loss(new, result):
    return new, result._replace(transition_loss=result.transition_loss * 1.001)


def scaled_gradient(new, result):
    def change(path, leaf):
        return leaf * 1.02 if any(getattr(key, "name", "") == "mu" for key in path) else leaf

    moments = jax.tree_util.tree_map_with_path(change, new.opt_state)
    return new._replace(opt_state=moments), result


def no_step(new, result):
    return new._replace(params=jax.tree.map(np.zeros_like, new.params)), result


def not_a_number(new, result):
    return new, result._replace(transition_loss=result.transition_loss.at[0, 1].set(np.nan))


@pytest.mark.parametrize(
    "change, message",
    [
        (scaled_loss, r"the loss differs from the CPU's by 0.001 \(> 0.0001\)"),
        (scaled_gradient, r"the gradient differs from the CPU's by 0.02 \(> 0.01\)"),
        (no_step, r"the step differs from the CPU's"),
        (not_a_number, r"1.transition_loss is not finite"),
    ],
)
def test_a_wrong_update_is_found(device_update, change, message):
    device_update(change)
    with pytest.raises(first_look.Wrong, match=message):
        first_look.check_update(SMALL, "float32")


def test_a_wrong_gradient_of_equal_embeddings_is_found(monkeypatch):
    assert first_look.check_ties()["gradient"] < 1e-5
    right = first_look._gradient_of_ties(jax.devices()[0])
    answers = iter([right, np.where(np.arange(right.size).reshape(right.shape) % 9, right, -right)])
    monkeypatch.setattr(first_look, "_gradient_of_ties", lambda device: next(answers))
    with pytest.raises(first_look.Wrong, match="equal embeddings differs from the CPU's by 0"):
        first_look.check_ties()


def test_the_compared_vectors_are_those_of_every_parameter():
    """Adam's first moment has one number for each parameter, in both families."""
    for settings in (SMALL, SMALL_SAC):
        cpu = jax.devices("cpu")[0]
        state = first_look._make_fleet(settings, "float32", "map", cpu).init()
        result = types.UpdateResult(np.ones((2, 3), np.float32), {})
        compared = dict(first_look._compared(state, state, result))
        assert len(compared["gradient"]) == len(compared["step"]) > 1000
        assert not compared["step"].any()


def test_a_fleet_is_timed_with_frames_on_the_host_and_on_the_device():
    times = first_look.time_fleet(SMALL, runs=1)
    assert set(times) == {"host", "device"} and min(times.values()) > 0


def test_sac_starts_and_two_runs_of_rainbow_are_trained_to_their_scores(monkeypatch):
    assert first_look.check_start(SMALL_SAC) == {}
    assert first_look.check_run(SMALL) == {"devices": 1}
    monkeypatch.setattr(first_look, "_not_finite", lambda tree: "an action")
    with pytest.raises(first_look.Wrong, match="an action is not finite"):
        first_look.check_start(SMALL_SAC)


def test_other_frames_on_the_device_are_found(monkeypatch):
    def train(settings, runs, store):
        return np.full((runs, 3), 1.01 if store == "device" else 1.0), 5.0

    monkeypatch.setattr(first_look, "_train", train)
    with pytest.raises(first_look.Wrong, match="frames on the device change the first losses"):
        first_look.time_fleet(SMALL, runs=1)


def test_every_check_is_carried_out_after_a_failure_and_the_last_line_says_stop(monkeypatch):
    def fail(*_, **options):
        raise RuntimeError("no\nkernel image")

    monkeypatch.setattr(Fleet, "__init__", fail)
    done = programs.call("benchmarks.first_look", "--runs=1")
    assert done.returncode == 1
    failed = [line for line in done.stdout.splitlines()[:-1] if "RuntimeError" in line]
    assert failed[0].startswith("update of rcrl in float32: RuntimeError: no kernel image")
    assert len(failed) == len(first_look.CHECKS) + 3
    assert "GiB" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("stop: update of rcrl in float32: ")
