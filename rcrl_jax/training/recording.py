"""Records the training of a fleet: one recorder per run."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from rcrl_jax import files, types
from rcrl_jax.envs.agent_view import AgentStep
from rcrl_jax.runs import manifest, parameters, records
from rcrl_jax.runs.recorder import Counters, RunRecorder
from rcrl_jax.training import loop
from rcrl_jax.training.evaluation import Evaluation
from rcrl_jax.training.session import Session


class Recording(contextlib.ExitStack):
    """Writes the episodes, metrics, evaluations and scores of all runs of a session."""

    def __init__(
        self,
        session: Session,
        written: records.RecordState | None,
        described: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Opens the runs' files; see `RunRecorder`.

        Args:
          session: training continues from its step; later records are dropped.
          written: what the runs' files held at that step; None if training begins.
          described: `[R]`, what is about to run, if it is recorded with the scores.

        Raises:
          Damaged: a file to continue does not hold the records of this run.
          OSError: a file cannot be written.
        """
        super().__init__()
        self._session, self._described = session, described
        plan, start, say = session.plan, session.state.step, session.say
        states = [None] * len(plan.paths)
        if written is not None:
            states = [records.RecordState(*values) for values in zip(*written, strict=True)]
        self._recorders = [
            self.enter_context(RunRecorder(paths, resume_at=start or None, written=state, say=say))
            for paths, state in zip(plan.paths, states, strict=True)
        ]
        old = [path for recorder in self._recorders for path in recorder.kept_old]
        if start < plan.total_steps:  # moves away scores of a run that lost its last checkpoints
            results = [path for run in plan.paths for path in (run.scores, run.parameters)]
            old += [files.set_aside(path, "old") for path in results if path.exists()]
        if old:
            more = f" and {len(old) - 1} more" if len(old) > 1 else ""
            since = f"no checkpoint after step {start}" if start else "no checkpoint"
            say(
                f"warning: there is {since}, so training starts at step {start}; files of an "
                f"earlier start are kept: {old[0]}{more}"
            )
        self._last_metrics = start, time.monotonic()

    @property
    def written(self) -> records.RecordState:
        """What the runs' files hold."""
        states = (recorder.written for recorder in self._recorders)
        return records.RecordState(*map(np.stack, zip(*states, strict=True)))

    def restore_deleted(self) -> None:
        """Writes files again that another program has deleted, and says so.

        Raises:
          OSError: a file cannot be written.
        """
        for recorder in self._recorders:
            recorder.restore_deleted()

    def record_step(self, step: loop.Step) -> None:
        """Records the episodes that a step ended, and the first finished update of each period.

        For updates before an action, the period counts updates instead of agent steps.

        Raises:
          NotFinite: a recorded metric of the update is not finite.
        """
        number, early_updates = step.state.step, step.state.early_updates
        period = self._session.plan.record_period
        if step.outcome is None:
            is_first = early_updates % period == 0
        else:
            self._record_episodes(step.outcome)
            is_first = number % period < self._session.fleet.agent.schedule.update_period
        if step.completed_update is not None and is_first:
            self._record_metrics(step.completed_update)
            metrics = step.completed_update.result.metrics.values()
            runs = len(self._recorders)
            if diverged := loop.not_finite(np.asarray(value)[:runs] for value in metrics):
                raise loop.NotFinite("a loss", number, diverged)

    def _record_episodes(self, outcome: AgentStep) -> None:
        for run in np.nonzero(outcome.finished)[0]:
            scalars = {
                "episode_return": outcome.episode_return[run],
                "episode_length": outcome.episode_length[run],
            }
            if outcome.failed[run]:
                scalars["physics_errors"] = 1
                game, seed = self._session.plan.runs[run]
                self._session.say(
                    f"warning: {game}, seed {seed}: a physics error at agent step "
                    f"{self._session.state.step}; the episode is cut there"
                )
            self._recorders[run].record(self._counters, scalars)

    def _record_metrics(self, update: types.Update) -> None:
        session, agent = self._session, self._session.fleet.agent
        step, early_updates = session.state.step, session.state.early_updates
        metrics = jax.tree.map(np.asarray, update.result.metrics)
        if early_updates:
            common = {"early_updates": early_updates}
        else:
            common = {"steps_per_s": self._steps_per_s(step)}
        replay = agent.replay
        for run, recorder in enumerate(self._recorders):
            scalars = {name: float(value[run]) for name, value in metrics.items()}
            if replay.priority_exponent:
                total = session.plan.total_steps
                # The finished update was sampled at agent step `step - 2`.
                scalars["beta"] = loop.importance_exponent(agent, step - 2, total)
            if not (early_updates or agent.action.shape):
                actions = session.history.newest(session.plan.record_period)[run]
                scalars["most_frequent_action"] = np.bincount(actions).max() / len(actions)
            scalars |= common
            if replay.contrast_rule.number:
                lengths = np.quantile(session.replay.segment_lengths(run), (0.1, 0.5, 0.9))
                for percentile, length in zip((10, 50, 90), lengths, strict=True):
                    scalars[f"segment_length_p{percentile}"] = float(length)
                scalars["positive_is_anchor"] = float(update.positive_is_anchor[run])
            recorder.record(self._counters, scalars)

    def _steps_per_s(self, step: int) -> float:
        """Agent steps a second since the last metrics."""
        (last_step, last_s), self._last_metrics = self._last_metrics, (step, time.monotonic())
        return (step - last_step) / (self._last_metrics[1] - last_s)

    def is_evaluated(self, step: int) -> bool:
        """Whether every run's last recorded evaluation is the one after `step` agent steps."""
        self.restore_deleted()
        last = map(records.last_evaluation, self._session.plan.paths)
        return all(line is not None and line["agent_steps"] == step for line in last)

    def record_evaluation(self, result: Evaluation, unseen: Sequence[Mapping[str, float]]) -> None:
        """Records one evaluation of each run.

        Skips a run whose last record is this evaluation: an earlier process wrote it before it was
        killed.

        Args:
          result: the agents' episodes at this step.
          unseen: `[R]`, further metrics of the episodes, value by name.
        """
        self.restore_deleted()
        for paths, recorder, returns, cut, failed, measured in zip(
            self._session.plan.paths,
            self._recorders,
            result.returns,
            result.cut,
            result.failed,
            unseen,
            strict=True,
        ):
            if failed:
                measured = {**measured, "physics_errors": int(failed)}
            last = records.last_evaluation(paths) or {"agent_steps": None}
            step = self._session.state.step
            if last["agent_steps"] != step or last["returns"] != list(returns):
                recorder.record_evaluation(
                    self._counters, returns, episodes_cut=cut, measured=measured
                )

    def write_parameters(self) -> None:
        """Writes the final parameters of every run by their paths; see `parameters.by_name`.

        Raises:
          OSError: they cannot be written.
        """
        session = self._session
        named = parameters.by_name(session.fleet.to_host(session.state.learner.params))
        for run, recorder in enumerate(self._recorders):
            recorder.write_parameters({name: array[run] for name, array in named.items()})

    def write_scores(self, result: Evaluation) -> None:
        """Writes the final evaluation as every run's scores."""
        if self._described is not None:
            manifest.record_resumption(self._session.plan.paths, self._described)
            for recorder in self._recorders:
                recorder.read_manifest()
        for recorder, returns, cut in zip(self._recorders, result.returns, result.cut, strict=True):
            recorder.write_scores(self._counters, returns, episodes_cut=cut)

    @property
    def _counters(self) -> Counters:
        step, spec = self._session.state.step, self._session.environment.spec
        return Counters(step, spec.action_repeat * step, spec.frames_per_step * step)
