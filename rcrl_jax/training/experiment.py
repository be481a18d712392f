"""Runs one experiment, from its plan to its scores."""

import contextlib
import dataclasses
import math
import pathlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from rcrl_jax import files, reference, words
from rcrl_jax.agents.agent import Agent
from rcrl_jax.envs import pools
from rcrl_jax.envs.frame_log import FRAME_LOG, FrameLog, NotRepeated, StepLog
from rcrl_jax.ops import native
from rcrl_jax.runs import manifest, recorder, records, tracking
from rcrl_jax.runs.checkpoints import Checkpoint, CheckpointStore, kept_steps
from rcrl_jax.signals import SAME_STOP_S, stop_signals
from rcrl_jax.training import curves, initial, loop, prediction, video
from rcrl_jax.training.assessment import Assessor
from rcrl_jax.training.plan import Plan
from rcrl_jax.training.progress import Progress
from rcrl_jax.training.recording import Recording
from rcrl_jax.training.session import LoopState, Session

Say = Callable[[str], None]
_FEW = 2  # up to this many runs are reported one by one; with more, one line per game


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
    """Opens or resumes a run; steps, records, assesses and saves it to its end; closes it.

    Returns:
      The mean final score of each run.

    Raises:
      ImportError: the environments' backend is not installed.
      Incompatible: the configuration, its tasks and the environments do not work together.
      WorkdirMismatch, InUse, Damaged: the work directory holds another run, is in use or damaged.
      Interrupted, SimulatorFailed: training stopped; the same call resumes it.
      Diverged, NotReproduced: training cannot go on.
      VideoFailed: there is no ffmpeg, or it failed; the scores are written.
      NotTracked: W&B is asked for and cannot be used.
      OSError: too little space, or a file cannot be written.
    """
    if plan.has_scores():
        return _report_finished(plan, say)
    with Session(plan, say) as session:
        saves = _open(session)
        assessor = Assessor(session, saves.recording, before_step=saves.stop_if_told)
        assessor.assess_if_due()  # a signal may have interrupted this step's evaluation
        with _make_progress(session) as progress:
            for step in loop.train(session):
                saves.recording.record_step(step)
                session.observe_if_due()
                score = assessor.assess_if_due()
                saves.save_if_due()  # before anything is printed: the terminal may be gone
                is_action = int(step.outcome is not None)
                progress.advance(is_action, last_score=score, updates=session.early_updates)
            saves.save()
        saves.recording.write_parameters()
        films = assessor.assess_finally().films
        saves.publish(math.inf)
    for film in films:
        video.write_video(plan.paths[0].video, film)
    if saves.received:  # since the last step of the final evaluation
        raise Interrupted(saves.received[0], plan.total_steps)
    return _report(plan, say)


def check_workdir(plan: Plan) -> None:
    """Checks that the work directory is empty or holds the runs of this plan; writes nothing.

    Raises:
      WorkdirMismatch: it belongs to other runs, or its runs have another arm's name.
      Damaged, OSError: a manifest cannot be read.
    """
    rows = range(len(plan.runs))
    manifest.check(plan.paths, [{"run": _describe_run(plan, row)} for row in rows], plan.arm)


def _report_finished(plan: Plan, say: Say) -> list[float]:
    """Reports a run that is finished already, if it is this one."""
    check_workdir(plan)
    say("this run is finished already: nothing to do")
    with _tracked(plan, say) as publish:
        publish(math.inf)
    return _report(plan, say)


def _describe_run(
    plan: Plan, row: int, read: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    """The section `run` of a manifest; `read` is `Session.initial`."""
    config, run = plan.config, plan.runs[row]
    section = manifest.describe_run(plan.preset, config, *run, plan.total_steps, plan.backend)
    if plan.init_from is not None:
        path = plan.paths[row].manifest
        section["init_from"] = initial.describe(plan.init_from, read, row, path)
    return section


def _describe_runs(session: Session) -> list[dict[str, Any]]:
    """`[R]`, the manifest of each run."""
    plan, fleet, evaluation = session.plan, session.fleet, session.fleet.agent.evaluation
    described, here = [], manifest.circumstances()
    here["device"] |= {"used": fleet.num_devices, "batching": fleet.batching}
    here["launch"] |= {"arm": plan.arm} if plan.arm else {}
    for row in range(len(plan.runs)):
        own = pools.describe_one(session.environment.description, row)
        protocol = {
            "score": "the agent at the last step",
            "final_episodes": plan.eval_episodes,
            "periodic_episodes": evaluation.episodes,
            **evaluation.protocol,
            "environment_seeds": "own seeds, from (seed, purpose, agent_steps)",
        }
        run_section = {**_describe_run(plan, row, session.initial), "backend": own["backend"]}
        sections = {"run": run_section, "environment": own, "protocol": protocol, **here}
        described.append(files.to_json_value(sections))
    return described


def _report(plan: Plan, say: Say) -> list[float]:
    """Draws the curves and prints the scores; returns the mean final score of each run.

    Prints the scores even if the disk is read-only.

    Raises:
      Damaged: the files of a run contradict each other.
      OSError: a file cannot be read.
    """
    found = [records.read_result(paths.directory) for paths in plan.paths]
    try:
        # Only training reads the log of frames, and training has ended.
        (plan.workdir / FRAME_LOG).unlink(missing_ok=True)
    except OSError as error:
        say(f"warning: {error}")
    means = [float(np.mean(scores["returns"])) for scores in found]
    for paths in plan.paths:
        try:
            curves.draw_learning_curve(paths)
        except OSError as error:
            say(f"warning: the curve cannot be drawn: {error}")
    if len(plan.runs) > _FEW:
        by_game: dict[str, list[float]] = {}
        for run, mean in zip(plan.runs, means, strict=True):
            by_game.setdefault(run.game, []).append(mean)
        say(reference.fleet_comparison(plan.preset, by_game))
        say(f"results in {plan.workdir / plan.preset}")
    else:
        for run, scores, mean in zip(plan.runs, found, means, strict=True):
            behind = recorder.sample_size(scores)
            say(reference.comparison(run.game, plan.preset, mean, behind))
        for paths in plan.paths:
            say(f"results in {paths.directory}")
    return means


def _open(session: Session) -> "_Saves":
    """Claims the work directory and starts, or goes on from the last checkpoint."""
    plan, say = session.plan, session.say
    if plan.init_from is not None and not kept_steps(plan.paths[0].checkpoints):
        shapes = jax.eval_shape(session.fleet.init).params.agent
        session.initial = initial.read(plan.init_from, plan.config, plan.runs, shapes)
    check_lock = session.enter_context(files.locked(plan.workdir, "program"))
    described = _describe_runs(session)
    for change in manifest.claim(plan.paths, described):
        say(f"warning: {change}")
    is_scored = all(paths.scores.exists() for paths in plan.paths)
    if not is_scored:  # else with the new scores: the old ones have the digest of the manifest
        manifest.record_resumption(plan.paths, described)
    slower = native.advice()
    if slower:
        say(f"warning: {slower}")
    kind = jax.devices()[0].device_kind
    say(f"compiling for {session.fleet.num_devices} x {kind}, up to a minute")
    if faster := _faster_batching(session):
        say(faster)

    store = CheckpointStore(plan.paths[0].checkpoints, say)
    session.callback(store.close)
    written = _start_or_resume(session, store)
    say(prediction.forecast(session))
    recording = session.enter_context(Recording(session, written, described if is_scored else None))
    received = session.enter_context(stop_signals(ends_after_s=SAME_STOP_S))
    publish = session.enter_context(_tracked(plan, say))
    saves = _Saves(session, recording, store, check_lock, received, publish)
    session.enter_context(saves.keeping_diverged())
    if session.state.step == 0:
        if plan.init_from is not None:  # whose source may train on, or be deleted
            saves.save()
        session.observe_if_due()
    return saves


def _tracked(plan: Plan, say: Say) -> contextlib.AbstractContextManager[tracking.Publish]:
    """Yields the function that sends records to W&B; it does nothing unless `plan.track`."""
    if plan.track:
        return tracking.tracked(plan.paths, say)
    return contextlib.nullcontext(lambda before: None)


def _faster_batching(session: Session) -> str | None:
    """A line that recommends `vmap`, for fleets of Rainbow on a CPU with `--batching=auto`.

    With `vmap`, SAC is as fast from states and slower from pixels.
    """
    plan, fleet = session.plan, session.fleet
    follow_one_another = jax.default_backend() == "cpu" and fleet.num_runs > fleet.num_devices
    if plan.batching != "auto" or plan.config.family != "rainbow" or not follow_one_another:
        return None
    return (
        "on a CPU runs are computed one after the other, bit for bit as alone; updates by "
        "--batching=vmap were 1.02 to 1.15 times as fast, rounded otherwise"
    )


def _start_or_resume(session: Session, store: CheckpointStore) -> records.RecordState | None:
    """Brings a session to step 0, or to the last checkpoint, with replay and history rebuilt.

    Returns:
      What the files of the runs held at the checkpoint.
    """
    plan, fleet, say = session.plan, session.fleet, session.say
    like = jax.tree.map(
        lambda x: np.zeros((fleet.num_runs, *x.shape[1:]), x.dtype), jax.eval_shape(fleet.init)
    )
    saved = store.restore(
        Checkpoint(0, like, None, session.replay.state, session.history.state, None)
    )
    if saved is not None and _is_trained(saved, fleet.agent, plan.total_steps):
        say(f"resuming after the last of {plan.total_steps} steps")
        learner = fleet.to_devices(saved.learner)
        session.state = LoopState(saved.step, learner, None, None, None, saved.early_updates)
        return saved.records
    # As found when the run began: a new trial may miss a rare random event of the environment.
    is_repeated = manifest.repeats_exactly(plan.paths[0])
    if not is_repeated:
        session.frame_log = _open_step_log(plan.workdir / FRAME_LOG, saved)
        session.callback(session.frame_log.close)
        session.step_log = StepLog(session.frame_log, _frames_like(session))
    elif fleet.agent.resources.logs_frames:
        session.frame_log = _open_frame_log(plan.workdir / FRAME_LOG, saved, say)
        session.environment.log_frames(session.frame_log)
    if saved is None:
        loop.start(session)
        return None
    say(f"resuming at step {saved.step} of {plan.total_steps}: rebuilding the replay")
    try:
        observation = loop.rebuild(session, saved.history.actions[:, : saved.step])
        repeated = np.array_equal(session.history.checksum, saved.history.checksum)
    except NotRepeated:
        repeated = False
    if not repeated:
        raise NotReproduced(
            "the emulator did not repeat the frames of the checkpoint (another version or "
            "backend?): install the versions in manifest.json, or start in another --workdir"
        )
    session.replay.restore(saved.replay)
    memory = fleet.init_memory(1)
    if not is_repeated:
        manifest.record_new_episodes(plan.paths, saved.step)
        say(f"new episodes begin at step {saved.step}: the environment does not repeat")
    elif saved.memory:
        kept = jax.tree.unflatten(jax.tree.structure(memory), saved.memory)
        memory = kept._replace(state=fleet.to_devices(kept.state))
    session.state = LoopState(
        saved.step, fleet.to_devices(saved.learner), observation, saved.pending_update, memory,
        saved.early_updates,
    )  # fmt: skip
    return saved.records


def _is_trained(saved: Checkpoint, agent: Agent, total_steps: int) -> bool:
    """Whether only the final evaluation is left, which needs no replay."""
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


def _open_step_log(path: pathlib.Path, saved: Checkpoint | None) -> FrameLog:
    """The log as it was at a checkpoint.

    Raises:
      NotReproduced: it is damaged.
    """
    try:
        return FrameLog(path, 0 if saved is None else saved.frame_log or 0)
    except files.Damaged as error:
        raise NotReproduced(
            f"{error}, and the environment does not repeat its steps: start in another --workdir"
        ) from error


def _frames_like(session: Session) -> np.ndarray:
    frame = session.environment.spec.frame
    return np.zeros((session.environment.num_envs, *frame.shape), frame.dtype)


def _make_progress(session: Session) -> Progress:
    """Progress whose rate leaves out steps before the first updates, and their compilation."""
    start, schedule = session.state.step, session.fleet.agent.schedule
    measured_from = max(start, schedule.learn_start) + 3 * schedule.update_period
    return Progress(session.plan.total_steps, start=start, measured_from=measured_from)


@dataclasses.dataclass
class _Saves:
    """Saves checkpoints of a session, and the state of a session that diverges."""

    session: Session
    recording: Recording
    store: CheckpointStore
    check_lock: Callable[[], None]
    received: Sequence[int]  # stop signals
    publish: tracking.Publish  # sends records up to a step
    saved_s: float = dataclasses.field(default_factory=lambda: time.monotonic())

    def _snapshot(self) -> Checkpoint:
        self.check_lock()
        self.recording.restore_deleted()
        session, state = self.session, self.session.state
        learner, pending, memory = session.fleet.to_host(
            (state.learner, state.pending_update, state.memory)
        )
        return Checkpoint(
            state.step,
            learner,
            pending,
            session.replay.state,
            session.history.state,
            self.recording.written,
            None if session.frame_log is None else session.frame_log.sync(),
            tuple(jax.tree.leaves(memory)),
            state.early_updates,
        )

    def save_if_due(self) -> None:
        """Saves in the background if the period or the longest time has passed.

        Raises:
          Interrupted: see `stop_if_told`.
        """
        self.stop_if_told()
        plan, state = self.session.plan, self.session.state
        overdue = time.monotonic() - self.saved_s > 60 * plan.checkpoint_minutes
        at_period = state.step % plan.checkpoint_period == 0 and not state.early_updates
        if at_period or overdue:
            self.store.save(self._snapshot())
            self.saved_s = time.monotonic()
            self.publish(state.step)

    def save(self) -> None:
        """Saves, unless this state is saved already, and waits until it is on disk."""
        self.store.save(self._snapshot())
        self.store.wait()
        self.publish(self.session.state.step)

    def stop_if_told(self) -> None:
        """Saves and raises Interrupted once a stop signal has come."""
        self.store.check()
        if self.received:
            self.save()
            raise Interrupted(self.received[0], self.session.state.step)

    @contextlib.contextmanager
    def keeping_diverged(self) -> Iterator[None]:
        """Saves the state of a run that diverges, beside its checkpoints, and raises Diverged."""
        try:
            yield
        except loop.NotFinite as stop:
            plan, state = self.session.plan, self.session.state
            kept = plan.workdir / "diverged"
            # The first saved state is kept. A resumed run diverges at the same step, and after the
            # last step it has no replay to save.
            if state.step not in kept_steps(kept):
                with contextlib.closing(CheckpointStore(kept, self.session.say)) as store:
                    store.save(self._snapshot())
            whose = ", ".join("{} {}".format(*plan.runs[row]) for row in stop.runs)
            whose = f"{whose}: " if whose else ""
            raise Diverged(f"{whose}{stop}; the state is kept in {kept}") from None
