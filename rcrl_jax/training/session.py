"""A run under way: what it trains with, and where it stands."""

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from rcrl_jax import types, words
from rcrl_jax.envs.frame_log import FrameLog, StepLog
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.training import build
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Moment, Plan


class LoopState(NamedTuple):
    """What the loop carries from step to step besides environment, replay and history."""

    step: int  # agent steps taken
    learner: types.LearnerState  # leading axis R' (see `Fleet`)
    observation: np.ndarray  # [R, C, *frame_shape], to act on next
    pending_update: types.Update | None  # the last update; the replay lacks its priorities
    memory: types.Memory  # of acting
    early_updates: int = 0  # updates made at this step so far, before its action


class Session(contextlib.ExitStack):
    """A plan that is carried out. Closing it ends the emulators and all entered contexts.

    Attributes:
      plan: the experiment.
      say: prints a line for the user.
      environment: of all runs.
      fleet: the agents of all runs.
      history: the actions so far.
      frame_log: where the environments keep their frames; None if the agent wants no log.
      step_log: the steps in `frame_log`, of environments that do not repeat; else None.
      initial: parameters of other runs that new runs start from; None if there are none.
      state: where the loop stands; None before the start.
    """

    def __init__(self, plan: Plan, say: Callable[[str], None] = words.say) -> None:
        """Makes environments and fleet; writes nothing, takes no step.

        Raises:
          Incompatible: the configuration, its tasks and the environments do not work together.
          ImportError: the environments' backend is not installed.
        """
        super().__init__()
        self.plan, self.say = plan, say
        self.environment, self.fleet = build.make_fleet(plan)
        self.callback(self.environment.close)
        self.history = History(len(plan.runs), plan.total_steps, self.fleet.agent.action.shape)
        self.frame_log: FrameLog | None = None
        self.step_log: StepLog | None = None
        self.initial: Mapping[str, np.ndarray] | None = None
        self.state: LoopState | None = None

    @functools.cached_property
    def replay(self) -> SegmentReplay:
        """Made when first needed, so that a refused run takes no memory for a replay."""
        return build.make_replay(self.fleet, self.plan.frame_store)

    @property
    def early_updates(self) -> tuple[int, int] | None:
        """Updates made before the next action, and updates due; None if none has been made."""
        step, made = self.state.step, self.state.early_updates
        return (made, self.fleet.agent.schedule.due(step)) if made else None

    def observe_if_due(self) -> None:
        """Calls the plan's observer at the start, after every period and after the last step."""
        plan, state = self.plan, self.state
        if plan.observe is None or state.early_updates:
            return
        if state.step == plan.total_steps or state.step % plan.observe_period == 0:
            plan.observe(Moment(state.step, self.fleet, state.learner.params, self.replay))
