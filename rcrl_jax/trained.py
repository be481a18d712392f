"""What a training has left on the disk, and the agents that it trained."""

import errno
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rcrl_jax import types, words
from rcrl_jax.agents.agent import EVALUATION
from rcrl_jax.envs import protocol
from rcrl_jax.runs import records, workdir
from rcrl_jax.runs.paths import PARAMETERS, RunId, RunPaths
from rcrl_jax.training import evaluation, scoring
from rcrl_jax.training.fleet import Fleet

Columns = dict[str, np.ndarray]
"""Arrays of equal length by name, as `pandas.DataFrame` takes them."""


class Run:
    """What a training has left on the disk.

    Attributes:
      directory: the work directory, or the directory of one run with its final parameters.
      preset: name of the preset.
      config: its configuration, with all changed fields.
      runs: game and seed of each run.
    """

    def __init__(self, directory: str | os.PathLike) -> None:
        """Reads the manifests; see `load`."""
        found = workdir.read(pathlib.Path(directory))
        self.directory, self.preset, self.config = found.workdir, found.preset, found.config
        self.runs = found.runs
        self._place = found.workdir.absolute()  # the program may change its directory

    def __repr__(self) -> str:
        """Preset, games, seeds and directory."""
        games = ", ".join(dict.fromkeys(run.game for run in self.runs))
        runs = words.count("run", len(self.runs))
        return f"<Run: {self.preset} on {games}, {runs}, {self.directory}>"

    def scores(self) -> Columns:
        """The final evaluation, one row per run: game, seed, score (mean return), episodes.

        Raises:
          OSError: a run has no scores yet.
          Damaged: a file does not hold scores.
        """
        rows = []
        for run in self.runs:
            returns = records.read_scores(self._path(run, "scores"))["returns"]
            rows.append((*run, float(np.mean(returns)), len(returns)))
        return _columns(("game", "seed", "score", "episodes"), rows)

    def curves(self) -> Columns:
        """Evaluations in training, one row each: game, seed, agent_steps, score (mean return).

        Raises:
          OSError: a file cannot be read.
          Damaged: a file does not hold evaluations.
        """
        rows = []
        for run in self.runs:
            lines = records.read_evaluations(self._path(run, "evaluations"))
            by_step = {line["agent_steps"]: line["returns"] for line in lines}  # the last counts
            rows += [(*run, step, float(np.mean(found))) for step, found in by_step.items()]
        return _columns(("game", "seed", "agent_steps", "score"), rows)

    def metrics(self, name: str) -> Columns:
        """One metric of training, such as `episode_return` or `loss_c51`, one row per record.

        Raises:
          ValueError: no run has recorded it.
          OSError: a file cannot be read.
          Damaged: a file does not hold metrics.
        """
        rows, known = [], set()
        for run in self.runs:
            for line in records.read_metrics(self._path(run, "metrics")):
                known.update(line)
                if name in line:
                    value = np.nan if line[name] is None else line[name]  # was not finite
                    rows.append((*run, line["agent_steps"], value))
        if not rows:
            raise ValueError(f"no metric {name!r}: {protocol.nearest(name, sorted(known))}")
        return _columns(("game", "seed", "agent_steps", name), rows)

    def evaluate(self, episodes: int = 10) -> Columns:
        """Plays games with the trained agents, one row each: game, seed, episode, return.

        The games are those of the final evaluation, from the first one on. Nothing is written.

        Raises:
          ValueError: `episodes` is below 1.
          Unusable: there are no parameters, or an agent has diverged.
          ImportError: the backend is not installed, or does not render.
        """
        if episodes < 1:
            raise ValueError(f"episodes: must be at least 1, got {episodes}")
        plan, fleet, params = scoring.load(self._place)
        try:
            games = evaluation.Games(plan.make_environment, plan.total_steps, range(episodes))
            played = evaluation.evaluate(params, fleet, games)
        except FloatingPointError:
            raise workdir.Unusable("an agent has diverged: its action is not finite") from None
        rows = [
            (*run, episode, value)
            for run, returns in zip(self.runs, played.returns, strict=True)
            for episode, value in enumerate(returns)
        ]
        return _columns(("game", "seed", "episode", "return"), rows)

    def player(self, seed: int | None = None, game: str | None = None) -> "Player":
        """The trained agent of one run.

        Args:
          seed: seed of the run; None admits every seed.
          game: game of the run; None admits every game.

        Raises:
          ValueError: no run, or several, have this game and seed.
          Unusable: there are no parameters.
          ImportError: the backend is not installed, or does not render.
        """
        rows = [
            row
            for row, run in enumerate(self.runs)
            if seed in (None, run.seed) and game in (None, run.game)
        ]
        if len(rows) != 1:
            there = ", ".join(f"{run.game} with seed {run.seed}" for run in self.runs)
            raise ValueError(f"{len(rows)} runs have seed={seed}, game={game!r}; there are {there}")
        _, fleet, params = scoring.load(self._place, rows=rows)
        return Player(fleet, params)

    def export(self, directory: str | os.PathLike) -> list[pathlib.Path]:
        """Writes the trained agents for other programs: standard checkpoints of orbax.

        Args:
          directory: gets a folder `<game>/seed_<n>` for the parameters of each run.

        Returns:
          These folders.

        Raises:
          Unusable: there are no parameters.
          ImportError: the backend is not installed, or does not render.
          FileExistsError: one of these folders is there.
          OSError: they cannot be written.
        """
        import orbax.checkpoint as ocp  # late: only `export` needs it, and it takes a second

        root = pathlib.Path(directory).absolute()
        places = [root / run.game / f"seed_{run.seed}" for run in self.runs]
        for place in places:
            if place.exists():
                raise FileExistsError(errno.EEXIST, "it is there already", str(place))
        _, fleet, params = scoring.load(self._place)
        params = fleet.to_host(params)
        with ocp.StandardCheckpointer() as checkpointer:
            for row, place in enumerate(places):
                checkpointer.save(place, jax.tree.map(lambda x, row=row: x[row], params))
        return places

    def _path(self, run: RunId, kind: str) -> pathlib.Path:
        """A file of a run; `directory` may be that of the run itself."""
        path = getattr(RunPaths(self._place, self.preset, *run), kind)
        return self._place / path.name if (self._place / PARAMETERS).exists() else path


class Player:
    """One trained agent: acts by its evaluation policy, which may draw, and embeds without noise.

    Attributes:
      frame_stack: C, frames of an observation.
    """

    def __init__(self, fleet: Fleet, params: types.Params) -> None:
        """Takes a fleet of one run and its agent parameters on the devices; see `Run.player`."""
        self._fleet, self._params = fleet, params
        self.frame_stack = fleet.agent.observations.frame_stack
        self._memory, self._steps = None, 0

    def act(self, frames: np.ndarray) -> np.ndarray:
        """Actions of the evaluation policy.

        Args:
          frames: `[N, C, *frame]` of N environments, the newest frame last, as the environments
            give them. An agent with a memory continues from the last call, so N must stay the same.

        Returns:
          `[N, *act]`: places in the game's action set, or components in [-1, 1].

        Raises:
          ValueError: frames do not fit.
        """
        frames = self._checked(frames)
        self._steps += 1
        if self._memory is None:
            self._memory = self._fleet.init_memory(len(frames))
        actions, self._memory = self._fleet.act(
            self._params, frames[None], self._memory, 0, self._steps, policy_name=EVALUATION
        )
        return np.asarray(actions)[0]

    def restart(self) -> None:
        """Lets the next call of `act` begin new episodes."""
        self._memory = None

    def embed(self, frames: np.ndarray, action: np.ndarray) -> np.ndarray:
        """phi(s, a), the embedding that the return-contrastive task trains.

        Args:
          frames: `[N, C, *frame]`, as of `act`.
          action: `[N, *act]`.

        Returns:
          `[N, d]`.

        Raises:
          ValueError: frames or actions do not fit; or the agent embeds contexts of frames and
            actions, as world models do.
        """
        form = self._fleet.agent.observations
        if form.with_actions:
            raise ValueError("a world model embeds what it filters: use its fleet, `scoring.load`")
        frames = self._checked(frames)
        action = np.asarray(action, self._fleet.agent.action.dtype)
        expected = [len(frames), *self._fleet.agent.action.shape]
        if list(action.shape) != expected:
            raise ValueError(f"action: expected {expected}, got {list(action.shape)}")
        number = int(self._fleet.num_valid_actions[0])
        if not self._fleet.agent.action.shape and not ((action >= 0) & (action < number)).all():
            raise ValueError(f"action: expected numbers from 0 to {number - 1}")
        pairs = types.Pairs(form.network.stack(frames)[None], action[None])
        return self._fleet.embed(self._params, pairs)[0]

    def _checked(self, frames: np.ndarray) -> np.ndarray:
        """Frames as the agent's layout has them; see `act`."""
        frames = np.asarray(frames)
        if frames.ndim < 3 or frames.shape[1] != self.frame_stack:
            raise ValueError(
                f"frames: expected [N, {self.frame_stack}, *frame], got {list(frames.shape)}"
            )
        layout = self._fleet.agent.observations.stored
        if layout.dtype == np.uint8 and frames.dtype not in (np.uint8, np.bool_):
            raise ValueError(f"frames: expected uint8, got {frames.dtype}")
        frames = frames.astype(layout.dtype, copy=False)
        shape, wanted = frames.shape[2:], layout.frame_shape
        if wanted is None:
            shape, wanted = layout.pack(frames[:1]).shape[2:], layout.stored_shape
        if shape != wanted:
            expected, got = list(wanted), list(frames.shape[2:])
            raise ValueError(f"frames: this agent's are of shape {expected}, not {got}")
        return frames


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    return {name: np.array([row[place] for row in rows]) for place, name in enumerate(names)}
