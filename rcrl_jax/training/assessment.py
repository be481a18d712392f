"""Evaluates the agents of a training run, measures their representations, and records both."""

import functools
from collections.abc import Callable

import jax

from rcrl_jax import words
from rcrl_jax.return_contrast import episodes, instruments
from rcrl_jax.training import evaluation, loop
from rcrl_jax.training.recording import Recording
from rcrl_jax.training.session import Session


class Assessor:
    """Evaluates the agents of a session during and after training."""

    def __init__(
        self, session: Session, recording: Recording, before_step: Callable[[], None]
    ) -> None:
        """Plays nothing yet.

        Args:
          session: whose agents play.
          recording: where results go.
          before_step: called before every step of an episode; an exception ends the evaluation.
        """
        self._session, self._recording, self._before_step = session, recording, before_step
        # The period is in environment steps.
        action_repeat = session.environment.spec.action_repeat
        self._period = max(session.fleet.agent.evaluation.period // action_repeat, 1)

    def assess_if_due(self) -> float | None:
        """Carries out the periodic evaluation of this step, unless it is recorded already.

        Returns:
          The mean return, or None if no evaluation was due or it had been recorded.

        Raises:
          NotFinite: a parameter or an action is not finite.
        """
        state, last = self._session.state, self._session.plan.total_steps
        if state.early_updates or state.step in (0, last) or state.step % self._period:
            return None
        if self._recording.is_evaluated(state.step):
            return None
        result = self._assess(self._session.fleet.agent.evaluation.episodes, film=0)
        return float(result.returns.mean())

    def assess_finally(self) -> evaluation.Evaluation:
        """Carries out the final evaluation and writes the scores.

        Raises:
          NotFinite: a parameter or an action is not finite.
        """
        plan = self._session.plan
        self._session.say(f"final evaluation: {words.count('episode', plan.eval_episodes)}")
        result = self._assess(plan.eval_episodes, film=int(plan.film))
        self._recording.write_scores(result)
        return result

    def _assess(self, num_episodes: int, *, film: int) -> evaluation.Evaluation:
        fleet, plan, state = self._session.fleet, self._session.plan, self._session.state
        # Needed here: metrics are checked only once a period, discrete actions are always finite.
        leaves = jax.tree.leaves(fleet.to_host(state.learner.params))
        if diverged := loop.not_finite(leaves):
            raise loop.NotFinite("a parameter", state.step, diverged)
        num_recorded = min(num_episodes, evaluation.GAMES_AT_ONCE)
        recorder = episodes.Recorder(
            fleet.num_runs * num_recorded,
            fleet.agent.replay.contrast_rule.tolerance,
            fleet.agent.protocol,
            instruments.MOST_BYTES,
        )
        games = evaluation.Games(plan.make_environment, state.step, range(num_episodes), film=film)
        play = functools.partial(
            evaluation.evaluate, state.learner.params.agent, fleet, before_step=self._before_step
        )
        try:
            result = play(games, after_step=recorder)
            others = {
                name: play(games._replace(policy_name=name, film=0)).returns.mean(axis=1)
                for name in fleet.agent.evaluation.others
            }
        except FloatingPointError:
            raise loop.NotFinite("an action of an evaluation", state.step) from None
        played, n = recorder.episodes, num_recorded
        unseen = instruments.measure(
            fleet,
            state.learner.params,
            [played[run * n : (run + 1) * n] for run in range(fleet.num_runs)],
            seeds=plan.seeds,
            agent_steps=state.step,
        )
        for name, means in others.items():
            for measured, mean in zip(unseen, means, strict=True):
                measured[f"mean_{name}"] = float(mean)
        self._recording.record_evaluation(result, unseen)
        return result
