"""MinAtar's five games as a vector of environments, stepped on the host by NumPy."""

from collections.abc import Sequence

import numpy as np
from dm_env import specs

from rcrl_jax import counter_random
from rcrl_jax.envs.minatar_games import GAMES, SIDE
from rcrl_jax.envs.protocol import (
    EnvironmentSpec,
    SteppedInSend,
    TimeStep,
    VectorEnvironment,
    after_reset,
    validate_actions,
    validate_mask,
    validate_seeds,
)

MINATAR_GAMES = tuple(GAMES)
BACKEND = "minatar"
_ALL_ACTIONS = tuple(range(6))
_RULES = 1
"""Version of the rules, for manifests; raise it with every change to a frame or a reward."""
# Streams of `counter_random`.
_STEP, _START, _STICKY = range(3)


def make_minatar(
    games: Sequence[str],
    seeds: Sequence[int],
    *,
    sticky: float = 0.1,
    minimal_actions: bool = True,
    fleet: Sequence[str] = (),
) -> VectorEnvironment:
    """Makes R = len(games) games, which step together; difficulty rises as published.

    A frame is `[10, 10, C] uint8` of zeros and ones, a plane for each kind of object. C is the
    largest number of planes in the fleet; games with fewer get planes of zeros at the end. With
    probability `sticky`, a step repeats the action of the step before, also across the end of a
    game. Only Freeway has a time limit of its own, 2,500 steps; `agent_view` cuts the others.

    Args:
        games: one per environment, of `MINATAR_GAMES`.
        seeds: one per environment, in [0, 2**31).
        sticky: probability in [0, 1].
        minimal_actions: whether actions are those that have an effect in the game, or all six of
            MinAtar: nothing, left, up, right, down, fire.
        fleet: games of other runs of the same fleet.

    Raises:
        ValueError: a bad seed.
    """
    seeds = validate_seeds(seeds)
    if len(seeds) != len(games):
        raise ValueError(f"{len(seeds)} seeds for {len(games)} games")
    spec = make_spec((*games, *fleet), minimal_actions)
    return _MinAtar(games, seeds, spec, sticky, minimal_actions)


def action_set(game: str, minimal_actions: bool) -> tuple[int, ...]:
    """The actions of a game, by their numbers in MinAtar."""
    return GAMES[game].actions if minimal_actions else _ALL_ACTIONS


def make_spec(games: Sequence[str], minimal_actions: bool = True) -> EnvironmentSpec:
    """The spec of the environments that `make_minatar` makes."""
    channels = max(GAMES[game].channels for game in games)
    num_actions = max(len(action_set(game, minimal_actions)) for game in games)
    return EnvironmentSpec(
        frame=specs.BoundedArray((SIDE, SIDE, channels), np.uint8, 0, 1, "frame"),
        action=specs.DiscreteArray(num_actions, name="action"),
    )


class _MinAtar(SteppedInSend):
    """See `make_minatar`. The games of one kind step in one pass."""

    def __init__(
        self,
        games: Sequence[str],
        seeds: np.ndarray,
        spec: EnvironmentSpec,
        sticky: float,
        minimal_actions: bool,
    ):
        self.spec = spec
        self.num_envs = len(games)
        sets = [action_set(game, minimal_actions) for game in games]
        self.num_valid_actions = np.array([len(own) for own in sets], np.int32)
        self.description = {
            "backend": BACKEND,
            "rules": _RULES,
            "sticky_action_probability": sticky,
            "difficulty": "rises",
            "frame_shape": list(self.spec.frame.shape),
            "pools": [
                {"game": game, "action_set": list(own), "num_envs": 1}
                for game, own in zip(games, sets, strict=True)
            ],
        }
        self._seeds, self._sticky = seeds, sticky
        # [R, A], numbers in the full set; zeros after a game's own actions are never read.
        self._actions = np.array([[*own, *_ALL_ACTIONS][:6] for own in sets])
        # For each kind: its games, and their rows.
        self._kinds = []
        for name in dict.fromkeys(games):
            rows = np.flatnonzero([game == name for game in games])
            self._kinds.append((GAMES[name](len(rows)), rows))
        self._started = np.zeros(self.num_envs, np.int64)  # games so far
        self._steps = 0
        self._last_action = np.zeros(self.num_envs, np.int64)

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        for kind, rows in self._kinds:
            own = np.flatnonzero(mask[rows])
            if len(own):
                chosen = rows[own]
                draws = counter_random.uniform(
                    self._seeds[chosen], _START, self._started[chosen], kind.draws
                )
                kind.start(own, draws)
        self._started[mask] += 1
        frame = self._draw()[mask]
        self._last = after_reset(self._last, mask, frame, np.zeros(len(frame), np.int32))
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        counters = np.full(self.num_envs, self._steps)
        repeats = counter_random.uniform(self._seeds, _STICKY, counters, 1)[:, 0] < self._sticky
        chosen = self._actions[np.arange(self.num_envs), actions]
        self._last_action = np.where(repeats, self._last_action, chosen)
        self._steps += 1
        reward = np.zeros(self.num_envs, np.float32)
        over = np.zeros(self.num_envs, bool)
        for kind, rows in self._kinds:
            draws = counter_random.uniform(self._seeds[rows], _STEP, counters[rows], kind.draws)
            reward[rows], over[rows] = kind.step(self._last_action[rows], draws)
        self._last = TimeStep(
            frame=self._draw(),
            reward=reward,
            lives=np.zeros(self.num_envs, np.int32),
            terminated=over,
            truncated=np.zeros(self.num_envs, bool),
        )

    def _draw(self) -> np.ndarray:
        """`[R, 10, 10, C] uint8`, the boards."""
        frame = np.zeros((self.num_envs, *self.spec.frame.shape), np.uint8)
        for kind, rows in self._kinds:
            if len(self._kinds) == 1:
                kind.draw(frame)
            else:
                own = np.zeros((len(rows), *self.spec.frame.shape), np.uint8)
                kind.draw(own)
                frame[rows] = own
        return frame
