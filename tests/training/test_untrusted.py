"""A checkpoint from somebody else cannot run code: reading one unpickles nothing."""

import pickle

import numpy as np
import pytest

from rcrl_jax.training import build, experiment
from tests.training import toy


class Unpickled(Exception):  # noqa: N818
    """Something has tried to unpickle."""


@pytest.fixture
def nothing_unpickles(monkeypatch):
    def refuse(*arguments, **options):
        raise Unpickled

    class Unpickler:
        __init__ = load = refuse

    for name, replacement in (("load", refuse), ("loads", refuse), ("Unpickler", Unpickler)):
        monkeypatch.setattr(pickle, name, replacement)


def test_unpickling_would_be_noticed(tmp_path, nothing_unpickles):
    np.save(tmp_path / "objects.npy", np.array([{}], object), allow_pickle=True)
    for read in (
        lambda: pickle.loads(pickle.dumps(1)),
        lambda: np.load(tmp_path / "objects.npy", allow_pickle=True),
    ):
        with pytest.raises(Unpickled):
            read()


def test_reading_a_checkpoint_unpickles_nothing(tmp_path, nothing_unpickles):
    """Neither the whole state, as training resumes it, nor the agents alone, as they are scored."""
    plan = toy.make_plan(tmp_path, "erainbow", total_steps=45, checkpoint_period=40)
    experiment.run(plan, say=lambda line: None)
    assert toy.last_checkpoint(plan).step == 45
    fleet, params = build.restore_agents(plan)
    assert fleet.num_runs == 1 and params
    plan.paths[0].scores.unlink()
    said = []
    experiment.run(plan, say=said.append)
    assert "resuming after the last of 45 steps" in said
