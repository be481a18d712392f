"""Every run of a fleet records its own values, and the run that diverges is named."""

import types as python_types

import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.runs import records
from rcrl_jax.training import experiment, loop
from rcrl_jax.training.history import History
from rcrl_jax.training.recording import Recording
from rcrl_jax.training.session import LoopState
from tests.training import toy

SPEC = discrete_spec((84, 84), 3)
STEP = 40  # a line of metrics is due
ACTIONS = np.array([[0] * 30 + [1, 2, 2, 2, 0, 1, 2, 0, 2, 2], [1] * 40])  # of two runs
LENGTHS = (np.arange(1, 12), np.array([2, 2, 2, 30, 90]))  # of the segments of two runs


def state_at(step: int) -> LoopState:
    return LoopState(step, None, None, None, None)


@pytest.fixture
def plan(tmp_path):
    return toy.make_plan(tmp_path, seeds=(3, 5))


@pytest.fixture
def session(plan):
    history = History(2, plan.total_steps)
    for actions in ACTIONS.T:
        history.add(actions, np.zeros((2, 8), np.uint8))
    made = python_types.SimpleNamespace(
        plan=plan,
        fleet=python_types.SimpleNamespace(agent=make_agent(plan.config, SPEC)),
        environment=python_types.SimpleNamespace(spec=SPEC),
        replay=python_types.SimpleNamespace(segment_lengths=lambda run: LENGTHS[run]),
        history=history,
        state=state_at(0),
        say=print,
    )
    return made


@pytest.fixture
def recording(session):
    with Recording(session, None) as opened:
        session.state = state_at(STEP)
        yield opened


def step_of(loss) -> loop.Step:
    """A step of a fleet whose last finished update had these losses `[R]`."""
    result = types.UpdateResult(None, {"loss_c51": np.float32(loss)})
    update = types.Update(None, result, positive_is_anchor=np.float32([0.25, 0.75]))
    outcome = python_types.SimpleNamespace(finished=np.zeros(2, bool))
    return loop.Step(state_at(STEP), outcome, completed_update=update)


def test_each_run_of_a_fleet_records_its_own_loss_contrast_and_actions(plan, recording):
    recording.record_step(step_of([1.5, 2.5]))
    lines = [records.read_records(paths.metrics) for paths in plan.paths]
    assert [[line["agent_steps"] for line in own] for own in lines] == [[STEP]] * 2
    names = (
        "loss_c51", "positive_is_anchor", "most_frequent_action",
        "segment_length_p10", "segment_length_p50", "segment_length_p90",
    )  # fmt: skip
    found = [[own[0][name] for name in names] for own in lines]
    assert found == [
        [1.5, 0.25, 0.6, 2.0, 6.0, 10.0],  # 2 is six of the last ten actions
        [2.5, 0.75, 1.0, 2.0, 2.0, 66.0],
    ]


def test_a_loss_that_is_not_finite_is_that_of_the_runs_that_have_it(plan, recording):
    with pytest.raises(loop.NotFinite) as stop:
        recording.record_step(step_of([1.5, np.nan]))
    assert stop.value.runs == [1]
    assert [records.read_records(p.metrics)[0]["loss_c51"] for p in plan.paths] == [1.5, None]


def test_runs_are_not_finite_where_any_of_their_numbers_is_not():
    fine, both = np.zeros((3, 2)), np.array([[0.0, 0.0], [np.inf, 0.0], [0.0, np.nan]])
    assert loop.not_finite([fine]) == []
    assert loop.not_finite([np.array([[1.0], [np.nan]])]) == [1]
    assert loop.not_finite([both[::-1], fine, both]) == [0, 1, 2]


def test_the_runs_that_diverge_are_named(plan, session, monkeypatch):
    kept, session.state = [], state_at(7)
    store = python_types.SimpleNamespace(save=kept.append, close=lambda: None)
    monkeypatch.setattr(experiment, "CheckpointStore", lambda directory, say: store)
    monkeypatch.setattr(experiment._Saves, "_snapshot", lambda self: self.session.state)
    saves = experiment._Saves(session, *[None] * 5)

    def message(runs) -> str:
        with pytest.raises(experiment.Diverged) as stop, saves.keeping_diverged():
            raise loop.NotFinite("a loss", 7, runs)
        return str(stop.value)

    said = f"a loss is not finite at step 7; the state is kept in {plan.workdir / 'diverged'}"
    assert message([1]) == f"Catch 5: {said}"
    assert message([0, 1]) == f"Catch 3, Catch 5: {said}"
    assert message([]) == said
    assert kept == [state_at(7)] * 3
