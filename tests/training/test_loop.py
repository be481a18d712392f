"""The loop's order of events, its schedule, and the replay rebuilt from logged actions."""

from collections import deque

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.training import loop
from rcrl_jax.training.history import History
from rcrl_jax.training.session import Session
from tests.training import toy

RUNS = (4, 9)
LEARN_START, STEPS = 6, 16


class ScriptedFleet:
    """Its actions depend only on the step's number, and updates only count."""

    num_runs, seeds = len(RUNS), RUNS

    def __init__(self, agent, log):
        self.agent = agent
        self._log = log

    def init(self, initial=None):
        assert initial is None
        return types.LearnerState(types.TrainableParams("agent", {}), None, None, None, 0, {})

    def init_memory(self, number):
        return types.Memory(0, np.ones((self.num_runs, number), bool))

    def act(self, params, frames, memory, *counters, policy_name="training"):
        self._log.append(("act", params, frames, counters, policy_name, memory))
        rng = np.random.default_rng(counters)
        action = rng.integers(0, 3, frames.shape[:2]).astype(np.int32)
        return action, types.Memory(memory.state + 1, np.zeros(frames.shape[:2], bool))

    def update(self, state, batch, kind):
        assert kind == 0
        self._log.append(("update", state.updates, batch))
        shape = batch.transitions.action.shape
        transition_loss = np.random.default_rng(state.updates).uniform(0.1, 3.0, shape)
        result = types.UpdateResult(transition_loss.astype(np.float32), {})
        updates = state.updates + 1
        params = types.TrainableParams(f"agent {updates}", {})
        return state._replace(params=params, updates=updates), result


class Spy:
    """Logs calls of some methods of an object, with arguments and results."""

    def __init__(self, target, log, names):
        self._target, self._log, self._names = target, log, names

    def __getattr__(self, name):
        attribute = getattr(self._target, name)
        if name not in self._names:
            return attribute

        def call(*arguments):
            result = attribute(*arguments)
            self._log.append((name, arguments, result))
            return result

        return call


def plan_of(config, total_steps, seeds=RUNS):
    return toy.plan_of("", "rcrl", config, toy.GAME, seeds, total_steps=total_steps,
                       make_environment=toy.make_catch)  # fmt: skip


def _make(config, total_steps):
    """A session with a scripted fleet, and the log of the fleet's calls."""
    session, log = Session(plan_of(config, total_steps)), []
    session.replay  # noqa: B018 (of the true fleet)
    session.fleet = ScriptedFleet(session.fleet.agent, log)
    return session, log


def _train(config, total_steps=STEPS):
    """Runs a scripted loop; returns the log of its events and what it yielded."""
    session, log = _make(config, total_steps)
    session.environment = Spy(session.environment, log, ("reset", "send", "recv"))
    session.replay = Spy(session.replay, log, ("add", "sample", "update_priorities"))
    steps = list(toy.training(session))
    assert log.pop(0)[0] == "reset"
    return log, steps


def _events(log, name):
    return [event for event in log if event[0] == name]


@pytest.mark.parametrize("update_period", [1, 3])
def test_order_of_events(update_period):
    """The order in the module's docstring, with `update_period` steps between updates."""
    config = toy.make_config("rcrl", learn_start=LEARN_START, update_period=update_period)
    log, steps = _train(config)
    expected, pending = [], False
    for step in range(STEPS):
        updates = step >= LEARN_START and step % update_period == 0
        expected += ["act"] + ["sample", "update"] * updates + ["send"]
        expected += ["update_priorities"] * pending + ["recv", "add"]
        pending = updates
    assert [event[0] for event in log] == expected
    assert len(_events(log, "update")) == len(range(LEARN_START, STEPS, update_period))
    assert [step.state.step for step in steps] == list(range(1, STEPS + 1))


def test_priorities_are_written_one_update_later_for_their_own_transitions():
    log, steps = _train(toy.make_config("rcrl", learn_start=LEARN_START))
    sampled = [sample for _, _, sample in _events(log, "sample")]
    pending = [step.state.pending_update for step in steps]
    assert pending[:LEARN_START] == [None] * LEARN_START
    for number, (sample, update) in enumerate(zip(sampled, pending[LEARN_START:], strict=True)):
        assert update.index is sample.index
        assert update.positive_is_anchor is sample.positive_is_anchor
        assert _events(log, "update")[number][1:] == (number, sample.batch)
    written = [arguments for _, arguments, _ in _events(log, "update_priorities")]
    assert len(written) == len(sampled) - 1  # those of the last update are in the last state
    for (index, transition_loss), update in zip(written, pending[LEARN_START:-1], strict=True):
        assert index is update.index
        np.testing.assert_array_equal(transition_loss, update.result.transition_loss)
    # An update is yielded for the records after the next step has waited for it.
    assert [step.completed_update for step in steps[1:]] == pending[:-1]
    assert steps[0].completed_update is None


def test_each_step_acts_with_its_own_counter_and_the_newest_parameters():
    log, _ = _train(toy.make_config("rcrl", learn_start=LEARN_START))
    _, params, _, counters, names, _ = zip(*_events(log, "act"), strict=True)
    assert counters == tuple((t,) for t in range(STEPS)) and set(names) == {"training"}
    learned = [f"agent {n}" for n in range(1, STEPS - LEARN_START)]
    assert [*params] == ["agent"] * (LEARN_START + 1) + learned


def test_an_agent_remembers_from_step_to_step_until_an_episode_ends():
    log, steps = _train(toy.make_config("rcrl", learn_start=LEARN_START))
    first, *memories = (event[5] for event in _events(log, "act"))
    assert first.is_first.all()
    assert [memory.state for memory in (first, *memories)] == list(range(STEPS))
    ended = [step.outcome.terminated | step.outcome.truncated for step in steps]
    assert np.any(ended)
    for memory, of_step in zip(memories, ended, strict=False):
        np.testing.assert_array_equal(memory.is_first[:, 0], of_step)


def test_the_replay_gets_the_frame_acted_on_and_what_followed():
    config = toy.make_config("rcrl", learn_start=LEARN_START)
    log, steps = _train(config)
    resets = 0
    for step, (act, add) in enumerate(zip(_events(log, "act"), _events(log, "add"), strict=True)):
        frame, action, reward, terminated, truncated, next_frame = add[1]
        newest = act[2][:, 0, -1]  # [R, 1, C, 84, 84] -> [R, 84, 84]
        np.testing.assert_array_equal(frame, newest)
        outcome = steps[step].outcome
        np.testing.assert_array_equal(action, _events(log, "send")[step][1][0])
        np.testing.assert_array_equal(reward, outcome.reward)
        np.testing.assert_array_equal(terminated, outcome.terminated)
        np.testing.assert_array_equal(truncated, outcome.truncated)
        np.testing.assert_array_equal(next_frame, outcome.frame)
        resets += outcome.finished.sum()
    assert resets > 0


def test_batch_sizes_and_the_schedule_of_importance_weights():
    sizes = {"replay.importance_exponent": 0.4, "return_contrast.batch_size": 5}
    config = toy.make_config("rcrl", sizes, learn_start=LEARN_START)
    log, _ = _train(config)
    for _, _, sample in _events(log, "sample"):
        assert sample.index.shape == (len(RUNS), 8)
        assert sample.batch.contrast.anchor.action.shape == (len(RUNS), 5)
    np.testing.assert_allclose(
        [beta for _, (beta, _), _ in _events(log, "sample")],
        [0.4, 0.46, 0.52, 0.58, 0.64, 0.7, 0.76, 0.82, 0.88, 0.94],
    )
    _, fleet = toy.make_fleet(config, RUNS)
    assert loop.importance_exponent(fleet.agent, STEPS, STEPS) == 1.0
    log, _ = _train(toy.make_config("erainbow", learn_start=LEARN_START))
    assert all(sample.batch.contrast is None for _, _, sample in _events(log, "sample"))


# --- rebuilding -------------------------------------------------------------------------------


# Games of 6 steps are cut after 5 or played to the end, and the ring wraps several times.
REBUILT = [{"max_episode_steps": 5}, {"max_episode_steps": 100}]


def _trained(config, total_steps):
    session, _ = _make(config, total_steps)
    deque(toy.training(session), maxlen=0)
    return session


@pytest.mark.parametrize("overrides", REBUILT)
@pytest.mark.parametrize("steps", [4, 160])
def test_logged_actions_rebuild_emulators_and_replay(overrides, steps):
    config = toy.make_config("rcrl", {"replay.capacity": 60}, learn_start=LEARN_START, **overrides)
    trained, (again, _) = _trained(config, steps), _make(config, steps)
    state, replay, rebuilt = trained.state, trained.replay, again.replay
    observation = loop.rebuild(again, trained.history.state.actions)
    rebuilt.restore(replay.state)
    np.testing.assert_array_equal(observation, state.observation)
    toy.assert_equal_trees(again.history.state, trained.history.state)
    toy.assert_equal_trees(rebuilt.state, replay.state)
    for run in range(len(RUNS)):
        np.testing.assert_array_equal(rebuilt.segment_lengths(run), replay.segment_lengths(run))

    # From here on both are equal: frames, segments, windows and priorities.
    continued = []
    for session in (trained, again):
        session.fleet, session.history = again.fleet, History(len(RUNS), 30)
        session.state = state._replace(pending_update=None, learner=again.fleet.init())
        session.plan = plan_of(config, steps + 30)
        *_, last = loop.train(session)
        samples = [jax.tree.map(np.array, session.replay.sample(0.5)) for _ in range(4)]
        continued.append((last.state.observation, last.outcome, samples, session.replay.state))
    toy.assert_equal_trees(*continued)


def test_the_checksum_detects_a_changed_action_and_another_emulator():
    config = toy.make_config("rcrl", learn_start=LEARN_START)
    history = _trained(config, 40).history

    def checksum(actions, seeds=RUNS):
        session = Session(plan_of(config, 40, seeds))
        loop.rebuild(session, actions)
        return session.history.checksum

    actions = history.state.actions
    np.testing.assert_array_equal(checksum(actions), history.checksum)
    changed = actions.copy()
    changed[1, 0] = (changed[1, 0] + 1) % 3  # in the paddle's first position every action shows
    assert (checksum(changed) == history.checksum).tolist() == [True, False]
    assert not np.any(checksum(actions, seeds=(5, 10)) == history.checksum)
