"""Evaluates the agents of a training run, measures their representations, and records both."""

import functools
from collections.abc import Callable

import jax

from rcrl_jax.return_contrast import episodes, instruments
from rcrl_jax.training import evaluation, loop
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan
from rcrl_jax.training.recording import Recording


class Assessor:
    """Evaluates a fleet during and after training."""

    def __init__(
        self,
        plan: Plan,
        fleet: Fleet,
        recording: Recording,
        action_repeat: int,
        before_step: Callable[[loop.LoopState], None],
    ) -> None:
        """Plays nothing yet.

        Args:
          plan: the experiment.
          fleet: plays.
          recording: where results go.
          action_repeat: environment steps of an agent step.
          before_step: called before every step of a game; an exception in it ends the evaluation.
        """
        self._plan, self._fleet, self._recording = plan, fleet, recording
        self._before_step = before_step
        # The period is in environment steps.
        self._period = max(fleet.agent.evaluation.period // action_repeat, 1)

    def assess_if_due(self, state: loop.LoopState) -> float | None:
        """Carries out the periodic evaluation of this step, unless it is recorded already.

        Returns:
          The mean return, or None if no evaluation was due or it had been recorded.

        Raises:
          NotFinite: a parameter or an action is not finite.
        """
        step = state.step
        if step in (0, self._plan.total_steps) or step % self._period:
            return None
        if self._recording.is_evaluated(step):
            return None
        result = self._assess(state, self._fleet.agent.evaluation.episodes, film=0)
        return float(result.returns.mean())

    def assess_finally(self, state: loop.LoopState) -> evaluation.Evaluation:
        """Carries out the final evaluation and writes the scores.

        Raises:
          NotFinite: a parameter or an action is not finite.
        """
        result = self._assess(state, self._plan.eval_episodes, film=int(self._plan.film))
        self._recording.write_scores(state.step, result)
        return result

    def _assess(
        self, state: loop.LoopState, num_episodes: int, *, film: int
    ) -> evaluation.Evaluation:
        fleet, plan = self._fleet, self._plan
        # Metrics are checked only now and then, and discrete actions are finite in any case.
        leaves = jax.tree.leaves(fleet.to_host(state.learner.params))
        if diverged := loop.not_finite(leaves):
            raise loop.NotFinite("a parameter", state, diverged)
        num_recorded = min(num_episodes, evaluation.GAMES_AT_ONCE)
        recorder = episodes.Recorder(
            fleet.num_runs * num_recorded,
            fleet.agent.replay.contrast_rule.tolerance,
            fleet.agent.protocol,
            instruments.MOST_BYTES,
        )
        play = functools.partial(
            evaluation.evaluate,
            state.learner.params.agent,
            fleet,
            plan.make_environment,
            state.step,
            range(num_episodes),
            before_step=lambda: self._before_step(state),
        )
        try:
            result = play(film=film, after_step=recorder)
            others = {
                name: play(policy_name=name).returns.mean(axis=1)
                for name in fleet.agent.evaluation.others
            }
        except FloatingPointError:
            raise loop.NotFinite("an action of an evaluation", state) from None
        games, n = recorder.episodes, num_recorded
        unseen = instruments.measure(
            fleet,
            state.learner.params,
            [games[run * n : (run + 1) * n] for run in range(fleet.num_runs)],
            seeds=plan.seeds,
            agent_steps=state.step,
        )
        for name, means in others.items():
            for measured, mean in zip(unseen, means, strict=True):
                measured[f"mean_{name}"] = float(mean)
        self._recording.record_evaluation(state.step, result, unseen)
        return result
