"""A run of the control on Catch: what it records, and that it resumes exactly."""

import dataclasses
import signal

import pytest

from experiments.returns.permuted import PermutedReturns
from rcrl_jax.runs import records
from rcrl_jax.training import experiment
from rcrl_jax.training.plan import Plan
from tests.training import toy
from tests.training.test_experiment import Interruption

FIELDS = {
    "return_contrast.positives": "equal_return",
    "return_contrast.negative_differs_in_return": True,
}


def make_plan(workdir, **changes) -> Plan:
    plan = toy.make_plan(workdir, overrides=FIELDS, total_steps=120, **changes)
    return dataclasses.replace(plan, sampler=PermutedReturns)


def run(plan) -> None:
    experiment.run(plan, lambda line: None)


def test_the_control_records_its_changed_labels_and_resumes_exactly(tmp_path):
    whole, stopped = make_plan(tmp_path / "whole"), make_plan(tmp_path / "stopped")
    run(whole)
    environment = Interruption(signal.SIGTERM, num_envs=1, step=70)
    with pytest.raises(experiment.Interrupted):
        run(make_plan(tmp_path / "stopped", make_environment=environment))
    run(stopped)
    toy.assert_equal_trees(toy.last_checkpoint(whole), toy.last_checkpoint(stopped))
    lines = records.read_metrics(whole.paths[0].metrics)
    shares = [line["changed_labels"] for line in lines if "changed_labels" in line]
    assert len(shares) > 5 and 0 < min(shares) and max(shares) < 1
