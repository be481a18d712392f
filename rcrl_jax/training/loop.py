"""The training loop.

    step t          host                                     device
                    act(t) dispatched                        ... update(t-1) runs
                    sample the batch of update(t)            act(t)
                    update(t) dispatched                     update(t) starts
                    fetch actions(t), emulators step         .
                    priorities of update(t-1)                .
                    add the transition                       .
    step t+1        act(t+1) dispatched                      .
                    sample the batch of update(t+1)          update(t) ends, act(t+1)

The emulators and the sampling run on the CPU while the device updates. The host waits only for the
actions. The cost is the same on every backend and in every run: a batch is drawn before the replay
holds the transition of this step and the priorities of the last update.

If several updates are due at a step, all but the last come before act(t). The loop yields after
each of these early updates, so that a run can be saved between them. Agents that learn from their
newest actions alone make the last update before act(t), too. They also make the updates that are
due after the last action.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.agent import Agent
from rcrl_jax.envs.agent_view import AgentStep
from rcrl_jax.envs.frame_log import LoggedStep
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.training.session import LoopState, Session


def start(session: Session) -> None:
    """Starts new runs; resets the environment."""
    fleet, observation = session.fleet, begin_episodes(session)
    learner, memory = fleet.init(session.initial), fleet.init_memory(1)
    session.state = LoopState(0, learner, observation, None, memory)


def begin_episodes(session: Session) -> np.ndarray:
    """Resets the environment; returns the observation to act on, `[R, C, *frame_shape]`."""
    observation = session.environment.reset()
    if session.step_log is not None:
        session.step_log.add_starts(observation[:, -1])
    return observation


class Step(NamedTuple):
    """What one step of the loop yields, or one update before the action of a step."""

    state: LoopState  # its learner is consumed by the next step: copy what must last
    outcome: AgentStep | None  # None before the action
    # The update before the newest one: reading its result does not wait. None if there is none.
    # Also None at the action after early updates, unless the schedule makes all updates before the
    # action.
    completed_update: types.Update | None


class NotFinite(Exception):
    """Learning has diverged; the session holds the state to keep."""

    def __init__(self, what: str, step: int, runs: Sequence[int] = ()) -> None:
        """Remembers the rows of the runs that have diverged, if known."""
        super().__init__(f"{what} is not finite at step {step}")
        self.runs = runs


def train(session: Session) -> Iterator[Step]:
    """Trains from the session's state to the plan's last step, yielding after each step.

    Also yields after each early update of a step. Puts the new state into the session before each
    yield.

    Raises:
      NotFinite: an action is not finite; it has not been sent to the environment.
    """
    fleet, environment, replay = session.fleet, session.environment, session.replay
    state, total_steps = session.state, session.plan.total_steps
    agent = fleet.agent
    before_action = agent.schedule.before_action
    for step in range(state.step, total_steps + before_action):
        beta, due = importance_exponent(agent, step, total_steps), agent.schedule.due(step)
        beside_action = due > 0 and not before_action
        while state.early_updates < due - beside_action:
            completed = state.pending_update
            session.state = state = _update_early(session, beta)
            yield Step(state, None, completed)
        if step == total_steps:  # the last updates of an agent that learns before it acts
            return
        learner, pending, observation = state.learner, state.pending_update, state.observation
        actions, memory = fleet.act(learner.params.agent, observation[:, None], state.memory, step)
        update = None
        if beside_action:
            learner, update = _update(session, learner, beta)

        actions = np.asarray(actions)[: fleet.num_runs, 0]
        if diverged := not_finite([actions]):
            # The running update has consumed the learner of `state`: keep the new learner.
            session.state = state._replace(learner=learner)
            raise NotFinite("an action", step, diverged)
        environment.send(actions)
        if pending is not None:
            _update_priorities(replay, pending)
        outcome = environment.recv()
        store_step(session, observation, actions, outcome)

        ended = outcome.terminated | outcome.truncated
        memory = memory._replace(is_first=ended[:, None])
        has_completed = before_action or not state.early_updates
        session.state = state = LoopState(step + 1, learner, outcome.observation, update, memory)
        yield Step(state, outcome, pending if has_completed else None)


def _update(
    session: Session, learner: types.LearnerState, beta: float, kind: int = 0
) -> tuple[types.LearnerState, types.Update]:
    """Samples a batch and begins an update; returns before it is computed."""
    sample = session.replay.sample(beta, kind)
    learner, result = session.fleet.update(learner, sample.batch, kind)
    return learner, types.Update(sample.index, result, sample.positive_is_anchor)


def _update_early(session: Session, beta: float) -> LoopState:
    """The state after one update before the action of a step.

    Fetches the losses of the previous update, and so waits until that update has ended. The next
    draw then fills the buffer that no update reads. Meanwhile the device computes.
    """
    state = session.state
    kind = session.fleet.agent.schedule.kind(state.step, state.early_updates)
    learner, update = _update(session, state.learner, beta, kind)
    if state.pending_update is not None:
        _update_priorities(session.replay, state.pending_update)
    return state._replace(
        learner=learner, pending_update=update, early_updates=state.early_updates + 1
    )


def _update_priorities(replay: SegmentReplay, update: types.Update) -> None:
    """Waits for an update, and gives its transitions their new priorities."""
    runs = len(update.index)
    replay.update_priorities(update.index, np.asarray(update.result.transition_loss)[:runs])


def not_finite(arrays: Iterable[np.ndarray]) -> list[int]:
    """The rows of the runs with a value that is not finite in any of the arrays `[R, ...]`."""
    return sorted({run for x in arrays for run in np.nonzero(~np.isfinite(x))[0].tolist()})


def store_step(
    session: Session, observation: np.ndarray, actions: np.ndarray, outcome: AgentStep
) -> None:
    """Adds one step of all runs to the replay, to the history and to the log of steps."""
    step = LoggedStep(
        observation[:, -1], outcome.reward, outcome.terminated, outcome.truncated, outcome.frame
    )
    _add(session, actions, step)
    if session.step_log is not None:
        session.step_log.add(step, outcome.observation[:, -1])


def _add(session: Session, actions: np.ndarray, step: LoggedStep) -> None:
    observation, *others = step
    session.replay.add(observation, actions, *others)
    session.history.add(actions, step.frame)


def rebuild(session: Session, actions: np.ndarray) -> np.ndarray:
    """Plays logged actions again, which brings back the emulators and the replay's transitions.

    Where environments do not repeat, reads the log of their steps, and begins new episodes.

    Args:
      session: of new runs.
      actions: `[R, steps, *act]`, logged.

    Returns:
      The observation to act on next, `[R, C, *frame_shape]`.

    Raises:
      NotRepeated: rewards, or frames that are rendered again, differ from the log of frames.
      SimulatorFailed: a simulator has ended or hangs.
    """
    if actions.dtype == np.uint8:  # discrete actions, kept in a byte each
        actions = actions.astype(np.int32)
    if session.step_log is not None:
        logged = session.step_log.read()
        # The log may lack steps; the checksum then differs.
        for own_actions, step in zip(actions.swapaxes(0, 1), logged, strict=False):
            _add(session, own_actions, step)
        return begin_episodes(session)
    observation = session.environment.reset()
    for step_actions in actions.swapaxes(0, 1):
        outcome = session.environment.step(step_actions)
        store_step(session, observation, step_actions, outcome)
        observation = outcome.observation
    return observation


def importance_exponent(agent: Agent, step: int, total_steps: int) -> float:
    """beta, rising linearly from its initial value at the first update to 1 at the last step."""
    learn_start, first = agent.schedule.learn_start, agent.replay.importance_exponent
    progress = (step - learn_start) / max(total_steps - learn_start, 1)
    return first + (1.0 - first) * progress
