"""Runs of a fleet equal the runs alone also as users compile; other tests turn optimisation off.

XLA then fuses, and so might round differently in a fleet. It compiles for minutes.
"""

import os
import subprocess
import sys

import pytest

from tests.training.toy import ROOT

pytestmark = pytest.mark.endurance

# `test_fleet_devices.py` compares `rcrl` and `state_sac` in this way, on two devices.
TESTS = (
    "test_control.py::test_a_run_does_not_change_beside_one_with_more_actions",
    "test_world_models.py::test_a_world_model_does_not_change_beside_a_run_with_more_actions",
    "test_simple_training.py::test_a_run_is_the_same_alone_and_in_a_fleet",
)


def test_optimised_programs_give_each_run_its_own_bits():
    command = [sys.executable, "-m", "pytest", "-q", *(f"tests/training/{test}" for test in TESTS)]
    result = subprocess.run(
        command, cwd=ROOT, env=os.environ | {"XLA_FLAGS": ""}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout[-3000:]
