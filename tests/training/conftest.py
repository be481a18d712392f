"""A finished run that tests compare with. They must not change it."""

import pytest

from rcrl_jax.training import curves, experiment
from tests.training import toy


@pytest.fixture(scope="session")
def reference(tmp_path_factory):
    """A run that is never interrupted."""
    plan = toy.make_plan(tmp_path_factory.mktemp("reference"))
    experiment.run(plan, say=lambda line: None)
    return plan


@pytest.fixture
def undrawn_curves(monkeypatch):
    """Runs draw no learning curve at their end: a third of a second each, and checked elsewhere."""
    monkeypatch.setattr(curves, "draw_learning_curve", lambda paths: None)
