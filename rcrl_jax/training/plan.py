"""The plan of an experiment: its complete description, before anything is built."""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import NamedTuple

from rcrl_jax import types
from rcrl_jax.config.presets import Config
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.runs import records
from rcrl_jax.runs.paths import RunId, RunPaths
from rcrl_jax.training.evaluation import EnvironmentMaker
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.initial import Source


class Moment(NamedTuple):
    """A training run as an observer sees it; an observer must not change it."""

    step: int
    fleet: Fleet
    # Leading axis R' (see `Fleet`), R after `fleet.to_host`; consumed by the next update.
    params: types.TrainableParams
    replay: SegmentReplay


@dataclasses.dataclass(frozen=True)
class Plan:
    """The complete description of an experiment.

    Attributes:
      preset: the preset's name.
      config: its configuration.
      runs: the runs of the fleet, sorted by game.
      total_steps: agent steps of each run.
      workdir: where everything is written.
      eval_episodes: episodes of the final evaluation.
      make_environment: makes the environments of all runs from seeds `[R, E]`.
      record_period: agent steps between lines of metrics.
      checkpoint_period: agent steps between checkpoints.
      checkpoint_minutes: the longest time between checkpoints.
      track: whether to send records to Weights & Biases.
      film: whether to write a video of the first run's first evaluation episode.
      batching: how the fleet computes, see `Fleet`.
      num_devices: how many devices share the runs.
      frame_store: 'host' or 'device'.
      observe: called at the start, every `observe_period` agent steps and after the last one,
        before the checkpoint of that step. Agents that learn before they act update once more after
        the last call. A resumed run may repeat the call for a step.
      observe_period: agent steps.
      backend: the simulator, as manifests name it; None if only the environments know.
      init_from: whose parameters the runs start from; None means random ones.
      arm: what tables call these runs; None for the preset and the fields in which they differ.
    """

    preset: str
    config: Config
    runs: tuple[RunId, ...]
    total_steps: int
    workdir: pathlib.Path
    eval_episodes: int
    make_environment: EnvironmentMaker
    record_period: int = 200
    checkpoint_period: int = 10_000
    checkpoint_minutes: float = 10.0
    track: bool = False
    film: bool = False
    batching: str = "auto"
    num_devices: int = 1
    frame_store: str = "host"
    observe: Callable[[Moment], None] | None = None
    observe_period: int = 10_000
    backend: str | None = None
    init_from: Source | None = None
    arm: str | None = None

    @property
    def seeds(self) -> tuple[int, ...]:
        """`[R]`."""
        return tuple(run.seed for run in self.runs)

    @property
    def paths(self) -> list[RunPaths]:
        """`[R]`, the files of each run."""
        return [RunPaths(self.workdir, self.preset, *run) for run in self.runs]

    def has_scores(self) -> bool:
        """Whether every run has the scores that are asked for, and the video if one is wanted.

        `records.read_result` checks whether they are those of a finished run.

        Raises:
          Damaged: a scores.json does not hold scores.
          OSError: it cannot be read.
        """
        if self.film and not self.paths[0].video.exists():
            return False
        return all(
            paths.scores.exists()
            and len(records.read_scores(paths.scores)["returns"]) == self.eval_episodes
            for paths in self.paths
        )
