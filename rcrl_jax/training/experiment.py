"""Runs one experiment, from its plan to its scores."""

import contextlib
import dataclasses
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from rcrl_jax import files, native, reference, words
from rcrl_jax.agents.agent import Agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import all_presets, control_presets
from rcrl_jax.envs import pools
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.envs.frame_log import FRAME_LOG, FrameLog, NotRepeated
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.runs import manifest, recorder, records
from rcrl_jax.runs.checkpoints import Checkpoint, CheckpointStore, kept_steps
from rcrl_jax.signals import SAME_STOP_S, stop_signals
from rcrl_jax.training import build, curves, loop, prediction, video
from rcrl_jax.training.assessment import Assessor
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Moment, Plan
from rcrl_jax.training.progress import Progress
from rcrl_jax.training.recording import Recording

Say = Callable[[str], None]


class Interrupted(Exception):
    """A signal stopped training after a checkpoint was written."""

    def __init__(self, signum: int, step: int) -> None:
        """Remembers which signal it was and the step that was saved."""
        super().__init__(f"stopped by {signal.Signals(signum).name}, saved at step {step}")
        self.signum = signum


class Diverged(Exception):
    """A loss, an action or a parameter is not finite."""


class NotReproduced(Exception):
    """The emulators did not repeat the frames of a checkpoint."""


def run(plan: Plan, say: Say = words.say) -> list[float]:
    """Trains, or resumes training, and evaluates; writes everything to the work directory.

    Args:
      plan: the experiment.
      say: prints a line for the user.

    Returns:
      The mean final score of each run.

    Raises:
      DoesNotFit: too little memory.
      Incompatible: the configuration, its tasks and the environments do not work together.
      ImportError: the environments' backend is not installed.
      WorkdirMismatch: the work directory belongs to another configuration.
      InUse: another program works in it, or may do so because the lock was deleted.
      Damaged: a file in it does not hold what it should, and nothing intact replaces it.
      Interrupted: SIGTERM, SIGINT or SIGHUP came; the same call resumes.
      Diverged: a loss, an action or a parameter became NaN; the state is kept under
        `<workdir>/diverged`.
      NotReproduced: a resumed emulator did not repeat its frames.
      SimulatorFailed: a simulator has failed, has ended or hangs; the same call resumes at the last
        checkpoint, and fails again if the reason lasts. Nothing newer can be saved, because the
        current update has consumed the learner's state.
      VideoFailed: there is no ffmpeg, or it failed; the scores are written.
      OSError: too little space, or a file cannot be written.
    """
    with contextlib.ExitStack() as stack:
        finished_before = plan.has_scores()
        environment, fleet = build.make_fleet(plan)
        stack.callback(environment.close)
        if not finished_before:
            needs = prediction.check_resources(plan, fleet, environment.spec)
            check_lock = stack.enter_context(files.locked(plan.workdir, "program"))
        described = _describe_runs(plan, fleet, environment.description)
        changes = manifest.claim(plan.paths, described)
        if finished_before:
            say("this run is finished already: nothing to do")
            return _report(plan, say)
        for change in changes:
            say(f"warning: {change}")
        manifest.record_resumption(plan.paths, described)
        slower = native.advice()
        if slower:
            say(f"warning: {slower}")
        kind = jax.devices()[0].device_kind
        say(f"compiling for {fleet.num_devices} x {kind}, up to a minute")

        replay = build.make_replay(fleet, plan.frame_store)
        history = History(fleet.num_runs, plan.total_steps, fleet.agent.action.shape)
        store = CheckpointStore(plan.paths[0].checkpoints, say)
        stack.callback(store.close)
        state, written, frame_log = _start_or_resume(
            plan, fleet, environment, replay, history, store, say
        )
        say(prediction.forecast(needs, fleet, replay, state, plan.total_steps))

        recording = Recording(
            plan, fleet.agent, environment.spec, replay, history, state.step, written, say
        )
        stack.enter_context(recording)
        saves = _Saves(plan, fleet, replay, history, recording, store, frame_log, check_lock, say)
        schedule = fleet.agent.schedule
        # Leaves out steps without updates, and what is compiled after them.
        measured_from = max(state.step, schedule.learn_start) + 3 * schedule.update_period
        progress = stack.enter_context(
            Progress(plan.total_steps, start=state.step, measured_from=measured_from)
        )
        received = stack.enter_context(stop_signals(ends_after_s=SAME_STOP_S))
        stack.enter_context(saves.keeping_diverged())

        def stop_if_told(at: loop.LoopState) -> None:
            store.check()
            if received:
                raise Interrupted(received[0], at.step)

        assessor = Assessor(
            plan, fleet, recording, environment.spec.action_repeat, before_step=stop_if_told
        )
        if not state.early_updates:  # a signal may have interrupted this step's evaluation
            assessor.assess_if_due(state)
        if plan.observe is not None and state.step == 0:
            plan.observe(Moment(0, fleet, state.learner.params, replay))
        for step in loop.train(
            state,
            fleet=fleet,
            environment=environment,
            replay=replay,
            history=history,
            total_steps=plan.total_steps,
        ):
            state, score = step.state, None
            recording.record_step(step)
            if step.outcome is not None:
                at_end = state.step == plan.total_steps
                if plan.observe and (at_end or state.step % plan.observe_period == 0):
                    plan.observe(Moment(state.step, fleet, state.learner.params, replay))
                with contextlib.suppress(Interrupted):  # raised again below, once it is saved
                    score = assessor.assess_if_due(state)
            if received:  # before anything is printed: after SIGHUP, the terminal may be gone
                saves.save(state)
                stop_if_told(state)
            made = state.early_updates
            progress.advance(
                int(step.outcome is not None),
                last_score=score,
                updates=(made, schedule.due(state.step)) if made else None,
            )
            saves.save_if_due(state)
        saves.save(state)

        progress.close()
        recording.write_parameters(fleet.to_host(state.learner.params))
        say(f"final evaluation: {words.count('episode', plan.eval_episodes)}")
        result = assessor.assess_finally(state)
    for film in result.films:
        video.write_video(plan.paths[0].video, film)
    return _report(plan, say)


def _describe_runs(
    plan: Plan, fleet: Fleet, environment: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """`[R]`, the manifest of each run; `environment` describes the environments of all runs."""
    described, here, evaluation = [], manifest.circumstances(), fleet.agent.evaluation
    here["device"] |= {"used": fleet.num_devices, "batching": fleet.batching}
    for row, run_id in enumerate(plan.runs):
        own = pools.describe_one(environment, row)
        run_section = manifest.describe_run(
            plan.preset, plan.config, *run_id, plan.total_steps, own["backend"]
        )
        protocol = {
            "score": "the agent at the last step",
            "final_episodes": plan.eval_episodes,
            "periodic_episodes": evaluation.episodes,
            **evaluation.protocol,
            "environment_seeds": "own seeds, from (seed, purpose, agent_steps)",
        }
        sections = {"run": run_section, "environment": own, "protocol": protocol, **here}
        described.append(files.to_json_value(sections))
    return described


def _report(plan: Plan, say: Say) -> list[float]:
    """Draws the curves and prints the scores; returns the mean final score of each run.

    Prints the scores even if the disk is read-only.

    Raises:
      Damaged: the files of a run are at odds with one another.
      OSError: a file cannot be read.
    """
    found = [records.read_result(paths.directory) for paths in plan.paths]
    try:
        # Only training reads the log of frames, and training has ended.
        (plan.workdir / FRAME_LOG).unlink(missing_ok=True)
    except OSError as error:
        say(f"warning: {error}")
    means = [float(np.mean(scores["returns"])) for scores in found]
    for paths, scores, mean in zip(plan.paths, found, means, strict=True):
        try:
            curves.draw_learning_curve(paths)
        except OSError as error:
            say(f"warning: the curve cannot be drawn: {error}")
        say(reference.comparison(paths.game, plan.preset, mean, recorder.sample_size(scores)))
        if changes := _changed_fields(plan, paths.game):
            say(f"fields unlike those of preset {plan.preset}: {changes}")
        say(f"results in {paths.directory}")
    return means


def _changed_fields(plan: Plan, game: str) -> str:
    """Fields that differ from the preset, written as in flags; empty for an unknown preset."""
    preset = {**all_presets(), **control_presets(game)}.get(plan.preset)
    if preset is None:
        return ""
    usual = fields.values(preset)
    return ", ".join(
        f"{name}={value}"
        for name, value in fields.values(plan.config).items()
        if usual.get(name) != value
    )


def _start_or_resume(
    plan: Plan,
    fleet: Fleet,
    environment: AgentEnvironment,
    replay: SegmentReplay,
    history: History,
    store: CheckpointStore,
    say: Say,
) -> tuple[loop.LoopState, records.RecordState | None, FrameLog | None]:
    """The state at step 0, or that of the last checkpoint, with replay and history rebuilt.

    Returns:
      The state, what was recorded by then, and the log that the environments keep of their
      frames, if the agent wants one.
    """
    like = jax.tree.map(
        lambda x: np.zeros((fleet.num_runs, *x.shape[1:]), x.dtype), jax.eval_shape(fleet.init)
    )
    saved = store.restore(Checkpoint(0, like, None, replay.state, history.state, None))
    if saved is not None and _is_trained(saved, fleet.agent, plan.total_steps):
        say(f"resuming after the last of {plan.total_steps} steps")
        learner = fleet.to_devices(saved.learner)
        state = loop.LoopState(saved.step, learner, None, None, None, saved.early_updates)
        return state, saved.records, None
    frame_log = None
    if fleet.agent.resources.logs_frames:
        frame_log = _open_frame_log(plan.workdir / FRAME_LOG, saved, say)
        environment.log_frames(frame_log)
    if saved is None:
        return loop.start(fleet, environment), None, frame_log
    say(f"resuming at step {saved.step} of {plan.total_steps}: rebuilding the replay")
    try:
        observation = loop.rebuild(
            saved.history.actions[:, : saved.step],
            environment=environment,
            replay=replay,
            history=history,
        )
        repeated = np.array_equal(history.checksum, saved.history.checksum)
    except NotRepeated:
        repeated = False
    if not repeated:
        raise NotReproduced(
            "the emulator did not repeat the frames of the checkpoint (another version or "
            "backend?): install the versions in manifest.json, or start in another --workdir"
        )
    replay.restore(saved.replay)
    memory = fleet.init_memory(1)
    if saved.memory:
        kept = jax.tree.unflatten(jax.tree.structure(memory), saved.memory)
        memory = kept._replace(state=fleet.to_devices(kept.state))
    state = loop.LoopState(
        saved.step, fleet.to_devices(saved.learner), observation, saved.pending_update, memory,
        saved.early_updates,
    )  # fmt: skip
    return state, saved.records, frame_log


def _is_trained(saved: Checkpoint, agent: Agent, total_steps: int) -> bool:
    """Whether only the final evaluation is left, for which the replay is not rebuilt."""
    due = agent.schedule.due(total_steps) if agent.schedule.before_action else 0
    return saved.step == total_steps and saved.early_updates == due


def _open_frame_log(path: pathlib.Path, saved: Checkpoint | None, say: Say) -> FrameLog:
    """The log as it was at a checkpoint; an empty one if there is none, or if it is damaged."""
    size = saved.frame_log if saved is not None and saved.frame_log is not None else 0
    try:
        return FrameLog(path, size)
    except files.Damaged as error:
        why = error if path.exists() else f"{path} is gone"
        say(f"warning: {why}: all frames are rendered again")
        return FrameLog(path, 0)


@dataclasses.dataclass
class _Saves:
    """Saves checkpoints of a training run, and the state of one that diverges."""

    plan: Plan
    fleet: Fleet
    replay: SegmentReplay
    history: History
    recording: Recording
    store: CheckpointStore
    frame_log: FrameLog | None
    check_lock: Callable[[], None]
    say: Say
    saved_s: float = dataclasses.field(default_factory=lambda: time.monotonic())

    def _snapshot(self, state: loop.LoopState) -> Checkpoint:
        self.check_lock()
        self.recording.restore_deleted()
        learner, pending, memory = self.fleet.to_host(
            (state.learner, state.pending_update, state.memory)
        )
        return Checkpoint(
            state.step,
            learner,
            pending,
            self.replay.state,
            self.history.state,
            self.recording.written,
            None if self.frame_log is None else self.frame_log.sync(),
            tuple(jax.tree.leaves(memory)),
            state.early_updates,
        )

    def save_if_due(self, state: loop.LoopState) -> None:
        """Saves in the background if the period or the longest time has passed."""
        self.store.check()
        overdue = time.monotonic() - self.saved_s > 60 * self.plan.checkpoint_minutes
        at_period = state.step % self.plan.checkpoint_period == 0 and not state.early_updates
        if at_period or overdue:
            self.store.save(self._snapshot(state))
            self.saved_s = time.monotonic()

    def save(self, state: loop.LoopState) -> None:
        """Saves and waits until the state is on disk."""
        self.store.save(self._snapshot(state))
        self.store.wait()

    @contextlib.contextmanager
    def keeping_diverged(self) -> Iterator[None]:
        """Saves the state of a run that diverges, beside its checkpoints, and raises Diverged."""
        try:
            yield
        except loop.NotFinite as stop:
            kept = self.plan.workdir / "diverged"
            # The first state is kept: a repetition diverges at the same step, and after the last
            # step it has no replay to save.
            if stop.state.step not in kept_steps(kept):
                with contextlib.closing(CheckpointStore(kept, self.say)) as store:
                    store.save(self._snapshot(stop.state))
            whose = ", ".join("{} {}".format(*self.plan.runs[row]) for row in stop.runs)
            whose = f"{whose}: " if whose else ""
            raise Diverged(f"{whose}{stop}; the state is kept in {kept}") from None
