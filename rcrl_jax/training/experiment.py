"""One experiment from start to scores: the loop with its services around it."""

import contextlib
import dataclasses
import datetime
import errno
import json
import pathlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from rcrl_jax import observations, reference, types
from rcrl_jax.agents import families
from rcrl_jax.config import Config, SacConfig
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.replay import frames, segments
from rcrl_jax.replay.segment_replay import ContrastRule, SegmentReplay
from rcrl_jax.representation import episodes, instruments
from rcrl_jax.training import (
    checkpoint,
    curves,
    evaluation,
    layout,
    loop,
    manifest,
    prediction,
    records,
    video,
)
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History


class RunId(NamedTuple):
    """Which run of a fleet."""

    game: str
    seed: int


class Moment(NamedTuple):
    """A training run as an observer sees it; looking changes nothing."""

    step: int
    fleet: Fleet
    params: types.TrainableParams  # leading axis R; consumed by the next update
    replay: SegmentReplay


@dataclasses.dataclass(frozen=True)
class Plan:
    """What an experiment is.

    Attributes:
      preset: name of the row of the paper.
      config: its configuration.
      runs: the runs of the fleet, those of one game side by side.
      total_steps: agent steps of each run.
      workdir: where everything is written.
      eval_episodes: episodes of the final evaluation.
      make_environment: makes the environments of all runs from seeds `[R, E]`.
      action_repeat: environment steps of an agent step, as the benchmark counts them.
      frames_per_step: frames of an agent step: emulated on Atari, rendered on DMControl.
      record_period: agent steps between lines of metrics.
      checkpoint_period: agent steps between checkpoints.
      checkpoint_minutes: the longest time between them.
      film: whether to write a video of the first run's first evaluation episode.
      lift: how the fleet lifts functions over runs, see `Fleet`.
      num_devices: how many devices share the runs.
      frame_store: 'host' or 'device'.
      observe: called at the start, and every `observe_period` agent steps, before the checkpoint
        of that step: what it writes for a step, a resumed run may write again.
      observe_period: agent steps.
    """

    preset: str
    config: Config
    runs: tuple[RunId, ...]
    total_steps: int
    workdir: pathlib.Path
    eval_episodes: int
    make_environment: evaluation.EnvironmentMaker
    action_repeat: int = 1
    frames_per_step: int = 4
    record_period: int = 200
    checkpoint_period: int = 10_000
    checkpoint_minutes: float = 10.0
    film: bool = False
    lift: str = "auto"
    num_devices: int = 1
    frame_store: str = "host"
    observe: Callable[[Moment], None] | None = None
    observe_period: int = 10_000

    @property
    def seeds(self) -> tuple[int, ...]:
        """`[R]`."""
        return tuple(run.seed for run in self.runs)

    @property
    def paths(self) -> list[layout.RunPaths]:
        """`[R]`, the files of each run."""
        return [layout.RunPaths(self.workdir, self.preset, *run) for run in self.runs]

    @property
    def evaluation_period(self) -> int:
        """Agent steps between evaluations; the configuration has environment steps."""
        return max(self.config.evaluation_period // self.action_repeat, 1)

    def counters(self, agent_steps: int) -> records.Counters:
        """The three counts of a run after `agent_steps`."""
        return records.Counters(
            agent_steps, self.action_repeat * agent_steps, self.frames_per_step * agent_steps
        )


class Interrupted(Exception):  # noqa: N818 - not an error: the state is saved
    """A signal stopped training after a checkpoint was written."""

    def __init__(self, signum: int, step: int) -> None:
        """Remembers which signal it was and the step that was saved."""
        super().__init__(f"stopped by {signal.Signals(signum).name}, saved at step {step}")
        self.signum = signum


class Diverged(Exception):  # noqa: N818
    """A loss or an action is not finite."""


class NotReproduced(Exception):  # noqa: N818
    """The emulators did not repeat the frames of a checkpoint."""


def run(plan: Plan, say: Callable[[str], None] = print) -> list[float]:
    """Trains, or resumes training, and evaluates; everything lands in the work directory.

    Args:
      plan: the experiment.
      say: where lines for the person go.

    Returns:
      The mean final score of each run.

    Raises:
      WorkdirMismatch: the work directory belongs to another configuration.
      Interrupted: SIGTERM or SIGINT came; the same call resumes.
      Diverged: a loss or an action became NaN; the state is kept under `<workdir>/diverged`.
      NotReproduced: a resumed emulator did not repeat its frames.
      SimulatorFailed: a simulator is gone or hangs; the same call resumes at the last checkpoint.
        Nothing newer can be saved: the update under way has consumed the last step's learner.
      OSError: too little space, or a file cannot be written.
    """
    config = plan.config
    paths = plan.paths
    with contextlib.ExitStack() as stack:
        environment = make_environment(plan)
        stack.callback(environment.close)
        fleet = make_fleet(plan, environment)
        finished_before = _is_finished(plan, paths)
        if not finished_before:
            _check_space(plan, fleet)
        _claim_workdir(plan, paths, environment, say)
        if finished_before:
            say("this run is finished already: nothing to do")
            return _report(plan, paths, say)

        memory = prediction.predict_memory(config, fleet, plan.frame_store)
        prediction.check(memory, fleet.num_runs)
        replay = make_replay(config, fleet, plan.seeds, plan.frame_store, plan.action_repeat)
        history = History(len(plan.runs), plan.total_steps, fleet.agent.action.shape)
        store = checkpoint.CheckpointStore(paths[0].checkpoints)
        stack.callback(store.close)
        state = _start_or_resume(plan, fleet, environment, replay, history, store, say)
        update_s = prediction.time_update(config, fleet, replay.frames_on_device)
        to_go = plan.total_steps - state.step
        say(prediction.describe(memory, update_s, to_go, datetime.datetime.now()))
        resume_at = state.step or None

        recorders = [
            stack.enter_context(records.RunRecorder(p, resume_at=resume_at)) for p in paths
        ]
        progress = stack.enter_context(records.Progress(plan.total_steps, start=state.step))
        stopped_by = stack.enter_context(_signals())
        stack.enter_context(_keeping_diverged(plan, fleet, replay, history))
        clock, saved_at = _Clock(state.step), time.monotonic()

        def stop_if_told() -> None:
            if stopped_by:
                raise Interrupted(stopped_by[0], state.step)

        def evaluate_and_record(episodes_: int, **options) -> evaluation.Evaluation:
            recorder = _game_recorder(plan, episodes_)
            result = _evaluate(
                plan, fleet, state, episodes_,
                before_step=stop_if_told, after_step=recorder, **options,
            )  # fmt: skip
            unseen = _measure_unseen(plan, fleet, state, recorder.episodes)
            _record_evaluation(plan, recorders, state.step, result, unseen)
            return result

        def evaluate_if_due() -> float | None:
            if not _evaluation_is_due(plan, paths, state.step):
                return None
            result = evaluate_and_record(config.periodic_episodes)
            return float(result.returns.mean())

        evaluate_if_due()  # a signal may have come amid the one at the step that is resumed
        if plan.observe is not None and state.step == 0:
            plan.observe(Moment(0, fleet, state.learner.params, replay))
        steps = loop.train(
            state,
            fleet=fleet,
            environment=environment,
            replay=replay,
            history=history,
            config=config,
            total_steps=plan.total_steps,
        )
        for state, outcome, finished in steps:
            _record_episodes(plan, recorders, state.step, outcome)
            # An update is `finished` every update_period steps: once in the window of that length
            # which each record period begins with.
            if finished is not None and state.step % plan.record_period < config.update_period:
                rate = clock.rate(state.step)
                _record_metrics(plan, recorders, state.step, finished, replay, rate)
                if not _is_finite(finished):
                    raise loop.NotFinite("a loss", state)
            if plan.observe is not None and state.step % plan.observe_period == 0:
                plan.observe(Moment(state.step, fleet, state.learner.params, replay))
            score = None
            with contextlib.suppress(Interrupted):  # raised again below, when the state is saved
                score = evaluate_if_due()
            progress.advance(1, last_score=score)
            overdue = time.monotonic() - saved_at > 60 * plan.checkpoint_minutes
            if state.step % plan.checkpoint_period == 0 or overdue or stopped_by:
                store.save(checkpoint.snapshot(fleet, state, replay.state, history.state))
                saved_at = time.monotonic()
            if stopped_by:
                store.wait()
                raise Interrupted(stopped_by[0], state.step)

        store.save(checkpoint.snapshot(fleet, state, replay.state, history.state))
        store.wait()

        say(f"final evaluation: {plan.eval_episodes} episodes")
        result = evaluate_and_record(plan.eval_episodes, film=plan.film)
        for recorder, returns, cut in zip(recorders, result.returns, result.cut, strict=True):
            recorder.write_scores(plan.counters(state.step), returns, episodes_cut=cut)
    if result.film is not None:
        video.write_video(paths[0].video, result.film)
    return _report(plan, paths, say)


def make_environment(plan: Plan) -> AgentEnvironment:
    """The training environments of all runs, as their agents see them."""
    config = plan.config
    return AgentEnvironment(
        plan.make_environment(evaluation.training_seeds(plan.seeds)),
        stack_size=config.frame_stack,
        life_loss_ends_episode=config.life_loss_ends_episode,
        clip_rewards=config.clip_rewards,
        max_episode_steps=config.max_episode_steps,
    )


def evaluate(
    plan: Plan, fleet: Fleet, params: types.Params, agent_steps: int, episodes: int, **options
) -> evaluation.Evaluation:
    """`evaluation.evaluate` of the runs of a plan; `options` are its own."""
    return evaluation.evaluate(
        params,
        fleet=fleet,
        make_environment=plan.make_environment,
        config=plan.config,
        seeds=plan.seeds,
        agent_steps=agent_steps,
        episodes=episodes,
        **options,
    )


def restore_agents(plan: Plan) -> tuple[Fleet, types.Params]:
    """The fleet of a finished plan, and the final parameters of its agents, leading axis R.

    Raises:
      FileNotFoundError: the work directory holds no checkpoint.
    """
    environment = make_environment(plan)
    fleet = make_fleet(plan, environment)
    environment.close()
    store = checkpoint.CheckpointStore(plan.paths[0].checkpoints)
    try:
        learner = store.restore_learner(fleet.to_host(fleet.init()))
    finally:
        store.close()
    return fleet, fleet.place(learner.params.agent)


def make_fleet(plan: Plan, environment: AgentEnvironment) -> Fleet:
    """The fleet of a plan, for its environments."""
    return Fleet(
        families.make_agent(plan.config, environment.spec),
        plan.seeds,
        environment.num_actions_per_env.tolist(),
        curl_factors=[plan.config.curl_factor_in(run.game) for run in plan.runs],
        lift=plan.lift,
        devices=jax.devices()[: plan.num_devices],
    )


def make_replay(
    config: Config,
    fleet: Fleet,
    seeds: Sequence[int],
    frame_store: str,
    action_repeat: int = 1,
) -> SegmentReplay:
    """An empty replay for the runs of a fleet.

    Args:
      config: sizes.
      fleet: whose agent reads it, and where frames on the device belong.
      seeds: `[R]`.
      frame_store: 'host' or 'device', where frames live.
      action_repeat: environment steps of an agent step.
    """
    layouts, capacity = observations.layouts_of(config), config.replay_capacity
    if frame_store == "host":
        store = frames.HostFrameStore(len(seeds), capacity, layouts.stored)
    else:
        zeros = fleet.zeros((capacity + 2, *layouts.stored.stored_shape), layouts.stored.dtype)
        store = frames.DeviceFrameStore(len(seeds), zeros, fleet.place, layouts.stored)
    return SegmentReplay(
        store,
        np.asarray(seeds),
        capacity=config.replay_capacity,
        closes_segment=segment_rule(config, action_repeat),
        frame_stack=config.frame_stack,
        n_step=config.n_step,
        discount=config.discount,
        priority_exponent=config.priority_exponent,
        action_shape=fleet.agent.action.shape,
        action_dtype=fleet.agent.action.dtype,
        contrast=ContrastRule(
            anchors=config.contrast_anchors,
            equal_return_positives=config.contrast_positives == "equal_return",
            excludes_anchor=config.positive_excludes_anchor,
            differs_in_return=config.negative_differs_in_return,
            tolerance=segment_threshold(config, action_repeat),
        ),
        layouts=layouts,
    )


def segment_rule(config: Config, action_repeat: int) -> segments.SegmentRule:
    """What ends a segment in the replay of a configuration."""
    if isinstance(config, SacConfig):
        return segments.closes_above(segment_threshold(config, action_repeat))
    return segments.closes_at_reward


def segment_threshold(config: Config, action_repeat: int) -> float:
    """By how much the returns of a segment's pairs may differ: 0 on Atari."""
    if not isinstance(config, SacConfig):
        return 0.0
    # Means over the action repeat that add up to the threshold are sums that add up to
    # action_repeat thresholds.
    return config.segment_threshold * (action_repeat if config.segment_reward == "mean" else 1)


def _check_space(plan: Plan, fleet: Fleet) -> None:
    """Raises OSError where the disk cannot hold what the experiment will write."""
    free, needed = free_bytes(plan.workdir), prediction.predict_disk(fleet, plan.total_steps)
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"no space left: {free >> 20} MB free, {needed >> 20} MB needed",
            str(plan.workdir),
        )


def _claim_workdir(
    plan: Plan,
    paths: list[layout.RunPaths],
    environment: AgentEnvironment,
    say: Callable[[str], None],
) -> None:
    """Writes the manifests, or checks that those there describe the same runs.

    The checkpoints of a work directory are those of one fleet: its runs are all there, or none.
    """
    others = set(plan.workdir.glob("*/*/seed_*/manifest.json")) - {p.manifest for p in paths}
    missing = {p.manifest for p in paths if not p.manifest.exists()}
    if others or (missing and paths[0].checkpoints.exists()):
        run = min(others or missing).parent.relative_to(plan.workdir)
        belongs = f"to {run} as well" if others else f"to other runs than {run}"
        raise manifest.WorkdirMismatch(
            f"{plan.workdir} belongs {belongs}; choose another --workdir or repeat the old command"
        )
    for r, (run_paths, run_id) in enumerate(zip(paths, plan.runs, strict=True)):
        own_environment = _description(environment.description, r)
        described = manifest.make_manifest(
            preset=plan.preset,
            config=plan.config,
            game=run_id.game,
            seed=run_id.seed,
            steps=plan.total_steps,
            backend=own_environment["backend"],
            environment=own_environment,
            protocol={
                "score": "the agent at the last step",
                "final_episodes": plan.eval_episodes,
                "periodic_episodes": plan.config.periodic_episodes,
                "evaluation_epsilon": plan.config.evaluation_epsilon,
                "noise": "off",
                "life_loss_ends_episode": False,
                "clip_rewards": False,
                "unfinished_episodes": "count with what they have at the frame limit",
                "environment_seeds": "own seeds, from (seed, purpose, agent_steps)",
            },
        )
        warning = manifest.check_same_run(run_paths.manifest, described)
        if warning:
            say(f"warning: {warning}")
        if not run_paths.manifest.exists():
            run_paths.directory.mkdir(parents=True, exist_ok=True)
            layout.write_json_atomically(run_paths.manifest, described)


def _description(environment: Mapping[str, Any], run: int) -> dict[str, Any]:
    """What the manifest of one run says of its environment: its own pool, no others."""
    common = {name: value for name, value in environment.items() if name != "pools"}
    for pool in environment.get("pools", ()):
        if run < pool["num_envs"]:
            own = {name: value for name, value in pool.items() if name != "num_envs"}
            return {**own, **common}
        run -= pool["num_envs"]
    return common


def _is_finished(plan: Plan, paths: list[layout.RunPaths]) -> bool:
    """Whether every run has the scores that the plan asks for, and its film if it asks for one."""
    if plan.film and not paths[0].video.exists():
        return False
    return all(
        run_paths.scores.exists() and len(_final_returns(run_paths)) == plan.eval_episodes
        for run_paths in paths
    )


def _final_returns(paths: layout.RunPaths) -> list[float]:
    return json.loads(paths.scores.read_text(encoding="utf-8"))["returns"]


def _report(plan: Plan, paths: list[layout.RunPaths], say: Callable[[str], None]) -> list[float]:
    """Draws the curves and says what came out; returns the mean final score of each run."""
    means = [float(np.mean(_final_returns(run_paths))) for run_paths in paths]
    for run_paths, mean in zip(paths, means, strict=True):
        curves.draw_learning_curve(run_paths)
        say(reference.comparison(run_paths.game, plan.preset, mean))
        say(f"results in {run_paths.directory}")
    return means


def _start_or_resume(
    plan: Plan,
    fleet: Fleet,
    environment: AgentEnvironment,
    replay: SegmentReplay,
    history: History,
    store: checkpoint.CheckpointStore,
    say: Callable[[str], None],
) -> loop.LoopState:
    learner = fleet.init()
    if store.latest_step is None:
        return loop.LoopState(0, learner, environment.reset(), None)
    saved = store.restore(fleet.to_host(learner))
    say(f"resuming at step {saved.step} of {plan.total_steps}: rebuilding the replay")
    observation = loop.rebuild(
        saved.history.actions[:, : saved.step],
        environment=environment,
        replay=replay,
        history=history,
    )
    if np.any(history.checksum != saved.history.checksum):
        raise NotReproduced(
            "the emulator did not repeat the frames of the checkpoint (another version or "
            "backend?): install the versions in manifest.json, or start in another --workdir"
        )
    replay.restore(saved.replay)
    return loop.LoopState(saved.step, fleet.place(saved.learner), observation, saved.late)


def _record_episodes(
    plan: Plan, recorders: list[records.RunRecorder], step: int, outcome: loop.AgentStep
) -> None:
    for run in np.nonzero(outcome.finished)[0]:
        recorders[run].record(
            plan.counters(step),
            {
                "episode_return": outcome.episode_return[run],
                "episode_length": outcome.episode_length[run],
            },
        )


def _record_metrics(
    plan: Plan,
    recorders: list[records.RunRecorder],
    step: int,
    finished: loop.Update,
    replay: SegmentReplay,
    steps_per_s: float,
) -> None:
    metrics = jax.tree.map(np.asarray, finished.result.metrics)
    for run, recorder in enumerate(recorders):
        scalars = {name: float(value[run]) for name, value in metrics.items()}
        if plan.config.priority_exponent:
            scalars["beta"] = loop.importance_exponent(plan.config, step, plan.total_steps)
        scalars["steps_per_s"] = steps_per_s
        if "return_contrast" in plan.config.tasks:
            lengths = np.quantile(replay.segment_lengths(run), (0.1, 0.5, 0.9))
            scalars |= dict(
                zip(
                    ("segment_length_p10", "segment_length_p50", "segment_length_p90"),
                    map(float, lengths),
                    strict=True,
                )
            )
            scalars["positive_is_anchor"] = float(finished.positive_is_anchor[run])
        recorder.record(plan.counters(step), scalars)


def _is_finite(update: loop.Update) -> bool:
    return all(np.isfinite(value).all() for value in update.result.metrics.values())


@contextlib.contextmanager
def _keeping_diverged(
    plan: Plan, fleet: Fleet, replay: SegmentReplay, history: History
) -> Iterator[None]:
    """Saves the state of a run that diverges, beside its checkpoints, and raises Diverged."""
    try:
        yield
    except loop.NotFinite as stop:
        kept = plan.workdir / "diverged"
        store = checkpoint.CheckpointStore(kept)
        store.save(checkpoint.snapshot(fleet, stop.state, replay.state, history.state))
        store.close()
        raise Diverged(f"{stop}; the state is kept in {kept}") from None


def _evaluation_is_due(plan: Plan, paths: list[layout.RunPaths], step: int) -> bool:
    """Whether a periodic evaluation belongs to this step and is not recorded yet."""
    if step in (0, plan.total_steps) or step % plan.evaluation_period:
        return False
    return any(_last_evaluation(run_paths) != step for run_paths in paths)


def _last_evaluation(paths: layout.RunPaths) -> int | None:
    lines = records.read_records(paths.evaluations)
    return lines[-1]["agent_steps"] if lines else None


def _game_recorder(plan: Plan, num_episodes: int) -> episodes.Recorder:
    """Keeps the first games of an evaluation, as training would see them."""
    config = plan.config
    protocol = episodes.Protocol(
        segment_rule(config, plan.action_repeat),
        config.clip_rewards,
        config.life_loss_ends_episode,
    )
    games = len(plan.runs) * min(num_episodes, evaluation.GAMES_AT_ONCE)
    return episodes.Recorder(games, protocol, instruments.MOST_BYTES)


def _measure_unseen(
    plan: Plan, fleet: Fleet, state: loop.LoopState, games: Sequence[episodes.Episode]
) -> list[dict[str, float]]:
    """What the agent of each run tells apart on its games of an evaluation."""
    config, each = plan.config, len(games) // len(plan.runs)
    return instruments.measure(
        fleet,
        state.learner.params,
        [games[run * each : (run + 1) * each] for run in range(len(plan.runs))],
        layout=observations.layouts_of(config).network,
        frame_stack=config.frame_stack,
        seeds=plan.seeds,
        agent_steps=state.step,
        return_tolerance=segment_threshold(config, plan.action_repeat),
    )


def _record_evaluation(
    plan: Plan,
    recorders: list[records.RunRecorder],
    step: int,
    result: evaluation.Evaluation,
    unseen: Sequence[Mapping[str, float]],
) -> None:
    """Records an evaluation of all runs, except where a killed process has recorded it."""
    for run_paths, recorder, returns, cut, measured in zip(
        plan.paths, recorders, result.returns, result.cut, unseen, strict=True
    ):
        if _last_evaluation(run_paths) != step:
            recorder.record_evaluation(
                plan.counters(step), returns, episodes_cut=cut, measured=measured
            )


def _evaluate(
    plan: Plan, fleet: Fleet, state: loop.LoopState, episodes: int, **options
) -> evaluation.Evaluation:
    try:
        params = state.learner.params.agent
        return evaluate(plan, fleet, params, state.step, episodes, **options)
    except FloatingPointError:
        raise loop.NotFinite("an action of an evaluation", state) from None


class _Clock:
    def __init__(self, step: int) -> None:
        self._last = step, time.monotonic()

    def rate(self, step: int) -> float:
        """Steps a second since the last call."""
        (last_step, last_time), self._last = self._last, (step, time.monotonic())
        return (step - last_step) / (self._last[1] - last_time)


_ONE_STOP_S = 3.0


@contextlib.contextmanager
def _signals() -> Iterator[list[int]]:
    """Yields a list that SIGTERM and SIGINT append themselves to, instead of ending the process.

    The step under way is finished and saved first. A later signal ends the process at once, but not
    one within `_ONE_STOP_S`: whoever stops a process group signals every process in it, and those
    among them that start others, such as `make`, pass the signal on.
    """
    received: list[int] = []
    first_s = 0.0

    def remember(signum, frame):
        nonlocal first_s
        del frame
        now_s = time.monotonic()
        if not received:
            first_s = now_s
            received.append(signum)
        elif now_s - first_s > _ONE_STOP_S:
            signal.signal(signum, signal.SIG_DFL)
            signal.raise_signal(signum)

    names = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(name, remember) for name in names]
    try:
        yield received
    finally:
        for name, handler in zip(names, before, strict=True):
            signal.signal(name, handler)


def free_bytes(path: pathlib.Path) -> int:
    """Free space on the disk that holds, or will hold, `path`."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
