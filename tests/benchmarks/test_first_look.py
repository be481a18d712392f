"""The first command for a lent machine."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from benchmarks import first_look
from rcrl_jax import types
from rcrl_jax.config import fields
from rcrl_jax.training.fleet import Fleet
from tests.training import toy, toy_control

SMALL = fields.replace(first_look.RAINBOW, toy.SMALL)
SMALL_SAC = fields.replace(first_look.SAC, toy_control.SMALL)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(first_look, "RAINBOW", SMALL)
    monkeypatch.setattr(first_look, "CHECKS", (("rcrl", SMALL, "float32"),))


@pytest.fixture
def device_update(monkeypatch):
    """Replaces what the device makes of an update; the CPU's reference is the first of two."""

    def plant(change):
        original, calls = Fleet.update, []

        def update(self, state, batch):
            calls.append(self)
            new, result = original(self, state, batch)
            return (new, result) if self is calls[0] else change(new, result)

        monkeypatch.setattr(Fleet, "update", update)

    return plant


@pytest.mark.parametrize("settings, precision", [(SMALL, "float32"), (SMALL_SAC, "tf32")])
def test_the_cpu_agrees_with_itself(settings, precision):
    measured = first_look.check_update(settings, precision)
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


def test_the_compared_vectors_are_those_of_every_parameter():
    """Adam's first moment has one number for each parameter, in both families."""
    for settings in (SMALL, SMALL_SAC):
        cpu = jax.devices("cpu")[0]
        state = first_look._make_fleet(settings, "float32", "map", cpu).init()
        result = types.UpdateResult(np.ones((2, 3), np.float32), {})
        compared = dict(first_look._compared(state, state, result))
        assert len(compared["gradient"]) == len(compared["step"]) > 1000
        assert not compared["step"].any()


def test_the_fleet_is_timed_with_frames_on_the_host_and_on_the_device():
    times = first_look.time_fleet(SMALL, runs=2)
    assert set(times) == {"host", "device"} and min(times.values()) > 0


def test_other_frames_on_the_device_are_found(monkeypatch):
    train = first_look._train

    def wrong(settings, runs, store):
        losses, milliseconds = train(settings, runs, "host")
        return losses * (1.01 if store == "device" else 1.0), milliseconds

    monkeypatch.setattr(first_look, "_train", wrong)
    with pytest.raises(first_look.Wrong, match="frames on the device change the first losses"):
        first_look.time_fleet(SMALL, runs=1)


def test_every_check_is_carried_out_after_a_failure_and_named(small, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("no\nkernel image")

    monkeypatch.setattr(first_look, "check_update", fail)
    wrong = first_look.look(runs=1)
    assert wrong == ["update of rcrl in float32: RuntimeError: no kernel image"]
    out = capsys.readouterr().out
    assert "no accelerator" in out and "kernel image" in out
    assert "fleet of 1 runs, ms a step: ok, host " in out


PROGRAM = """
import sys
from absl import app
from benchmarks import first_look
from experiments import command_line
from tests.benchmarks.test_first_look import SMALL

first_look.CHECKS = (("rcrl", SMALL, "float32"),)
first_look.time_fleet = lambda *_: {}  # has a test of its own
first_look.TOLERANCES["float32"] = first_look.Tolerance(-1, -1, -1)
first_look._define_flags()
sys.exit(app.run(first_look.main, flags_parser=command_line.parse))
"""


def test_the_last_line_and_the_exit_code_say_not_to_go_on():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "--runs=1"],
        cwd=toy.ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1].startswith("stop: ")
    assert "GiB" in done.stdout
