"""A user's own games: any environment of gymnasium, or one that a user's function makes.

An environment is written `gymnasium:CartPole-v1` or `mymodule:make`. The function returns an
environment with gymnasium's interface. It takes no argument, or `render_mode` alone. Its module may
lie in the current folder.
"""

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import math
import os
import pathlib
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from dm_env import specs
from gymnasium import spaces
from PIL import Image

from rcrl_jax import words
from rcrl_jax.envs.protocol import (
    EnvironmentSpec,
    SimulatorFailed,
    SteppedInSend,
    TimeStep,
    VectorEnvironment,
    after_reset,
    validate_actions,
    validate_mask,
    validate_seeds,
)

BACKEND = "gymnasium"
IMAGE, BITS, VECTOR = "image", "bits", "vector"
"""How an agent can read the observations of an environment."""
GRID = 10
"""Side of a frame of bits [cells]; smaller grids are at the top left, padded with zeros."""
_LARGEST_GRID = 15  # cells a side; larger observations are images
_MOST_ACTIONS = 255  # a checkpoint holds an action in a byte
_LARGEST_REWARD = float(np.finfo(np.float32).max)
_TRIED_STEPS = 100  # steps of two copies that are compared before training
_WAY_OF_WRITING = "expected gymnasium:CartPole-v1, or mymodule:make for a function of a module"


def name_of(environment: str) -> str:
    """The name of a game, as its folder has it: `gymnasium.CartPole-v1`, `mymodule.make`.

    Raises:
        ValueError: `environment` is not written as an environment.
    """
    if not isinstance(environment, str):
        raise ValueError(f"environment {environment!r}: {_WAY_OF_WRITING}")
    module, colon, rest = environment.partition(":")
    pattern = r"[\w:.-]+(/[\w:.-]+)?" if module == BACKEND else r"\w+"
    named = colon and re.fullmatch(r"\w+(\.\w+)*", module) and re.fullmatch(pattern, rest)
    if not named or module.startswith(f"{BACKEND}."):
        raise ValueError(f"environment {environment!r}: {_WAY_OF_WRITING}")
    return f"{module}.{rest.replace('/', '~').replace(':', '=')}"


def environment_of(name: str) -> str:
    """The environment of a game's name."""
    module, _, function = name.rpartition(".")
    if name.startswith(f"{BACKEND}."):
        module, function = BACKEND, name.removeprefix(f"{BACKEND}.")
    return f"{module}:{function.replace('~', '/').replace('=', ':')}"


class Probe(NamedTuple):
    """What an environment has shown before training.

    Attributes:
        kind: how observations are read: `IMAGE`, `BITS` or `VECTOR`.
        shape: of an observation.
        discrete: whether actions are numbers, not vectors.
        num_actions: A, actions, or components of an action.
        sources: for the manifest: versions of packages, and the digest of a user's module.
        repeats: whether two copies with equal seeds and actions have given equal results.
    """

    kind: str
    shape: tuple[int, ...]
    discrete: bool
    num_actions: int
    sources: dict[str, Any]
    repeats: bool


@functools.cache
def probe(name: str) -> Probe:
    """Makes two copies of a game, steps both and compares their results.

    Raises:
        ValueError: there is no such environment, or no agent can play it.
        SimulatorFailed: the environment has failed.
    """
    environment = environment_of(name)
    with contextlib.ExitStack() as stack:
        copies = [_make(environment) for _ in range(2)]
        one, other = (getattr(copy, "unwrapped", copy) for copy in copies)
        if one is other:
            raise ValueError(
                f"{environment} returned the same environment twice: make a new one in each call"
            )
        for copy in copies:
            stack.callback(_close, environment, copy)
        of_actions = copies[0].action_space
        kind = _kind_of(environment, copies[0].observation_space)
        discrete, number = _read_actions(environment, of_actions)
        shape = copies[0].observation_space.shape
        tried = [
            _tried(environment, copy, number if discrete else of_actions, kind) for copy in copies
        ]
        # In turn: copies that share a generator look equal one after the other. To the last step,
        # also after a difference: the trial finds errors, too.
        repeats = all([_equal(*both) for both in zip(*tried, strict=True)])
        return Probe(kind, shape, discrete, number, _sources(environment, copies[0]), repeats)


@functools.cache
def why_not_drawn(name: str) -> str:
    """Why people cannot watch a game; empty if they can. Draws its first picture."""
    environment = environment_of(name)
    if not probe(name).repeats:
        return f"{environment} cannot be played again: equal seeds and actions show other games"
    try:
        game = _make(environment, "rgb_array")
        try:
            with _failing(environment):
                game.reset(seed=0)
            _picture(environment, game)
        finally:
            _close(environment, game)
    except (ValueError, SimulatorFailed) as error:
        return str(error)
    return ""


def make_spec(name: str, image_shape: tuple[int, ...], *, bits: bool) -> EnvironmentSpec:
    """The spec of the environments that `make_games` makes; arguments as there."""
    found = probe(name)
    frame: specs.Array
    if found.kind == IMAGE:
        frame = specs.BoundedArray(image_shape, np.uint8, 0, 255, "frame")
    elif found.kind == BITS and bits:
        channels = math.prod(found.shape[2:])
        frame = specs.BoundedArray((GRID, GRID, channels), np.uint8, 0, 1, "frame")
    else:
        frame = specs.Array((math.prod(found.shape),), np.float32, "frame")
    action = specs.BoundedArray((found.num_actions,), np.float32, -1.0, 1.0, "action")
    if found.discrete:
        action = specs.DiscreteArray(found.num_actions, name="action")
    return EnvironmentSpec(frame=frame, action=action)


def make_games(
    name: str, seeds: Sequence[int], image_shape: tuple[int, ...], *, bits: bool
) -> VectorEnvironment:
    """Makes R = len(seeds) environments of a game, stepped one after the other.

    A frame is one of

    - an image `image_shape` uint8, of images `[H, W]`, `[H, W, 1]` or `[H, W, 3]` uint8: grey by
      ITU-R 601 where `image_shape` has two axes, then resized by Pillow's bilinear filter;
    - a grid of bits `[10, 10, C] uint8`, where observations are `[H, W]` or `[H, W, C]`, binary
      and at most 10 cells a side;
    - a vector `[D] float32`: any other small grid, and observations of one axis, unchanged.

    Args:
        name: of the game, see `name_of`.
        seeds: one per environment, in [0, 2**31). A seed starts the first game. Later games draw
            further numbers from the environment's generator.
        image_shape: `[H, W]` or `[H, W, 3]`, of the images that the agent reads.
        bits: whether the agent reads grids of bits; else they are vectors.

    Raises:
        ValueError: there is no such environment, an agent cannot play it, or a bad seed.
        SimulatorFailed: the environment fails in its first steps.
    """
    return _Games(name, validate_seeds(seeds), image_shape, bits, render_mode=None)


class _Games(SteppedInSend):
    """See `make_games`. With the `render_mode` 'rgb_array', frames are pictures for people."""

    def __init__(
        self,
        name: str,
        seeds: np.ndarray,
        image_shape: tuple[int, ...],
        bits: bool,
        render_mode: str | None,
    ):
        self._made = name, seeds, image_shape, bits
        self._is_drawn = render_mode is not None
        found = probe(name)
        self._name = environment_of(name)
        self._shape, self._kind = found.shape, found.kind
        self.spec = make_spec(name, image_shape, bits=bits)
        self.num_envs = len(seeds)
        self.num_valid_actions = np.full(self.num_envs, found.num_actions, np.int32)
        frame = self.spec.frame
        self.description = {
            "game": name,
            "backend": BACKEND,
            "environment": self._name,
            **found.sources,
            "frame_shape": list(frame.shape),
            "observation": {"shape": list(found.shape), "read_as": found.kind},
            "action_set": found.num_actions,
            "repeats_exactly": found.repeats,
        }
        if found.kind == IMAGE:
            self.description["image"] = {"resized": "bilinear", "grey": len(frame.shape) == 2}
        self._seeds: list[int | None] = seeds.tolist()
        self._games = [_make(self._name, render_mode) for _ in seeds]
        self._retired = np.zeros(self.num_envs, bool)

    def retire(self, mask: np.ndarray) -> None:
        """See `VectorEnvironment.retire`."""
        self._retired = mask.copy()

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        frames = []
        for row in np.flatnonzero(mask):
            observation = _reset(self._name, self._games[row], self._seeds[row])
            self._seeds[row] = None  # later games draw further numbers from the generator
            frames.append(self._read(self._games[row], observation))
        self._last = after_reset(
            self._last, mask, np.stack(frames), np.zeros(len(frames), np.int32)
        )
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        frames, rewards, ends = [], [], []
        for row, (game, action) in enumerate(zip(self._games, actions, strict=True)):
            if self._retired[row]:
                frames.append(self._last.frame[row])
                rewards.append(0.0)
                ends.append((False, False))
                continue
            observation, reward, *end = _step(self._name, game, action)
            frames.append(self._read(game, observation))
            rewards.append(reward)
            ends.append(end)
            if not abs(rewards[-1]) <= _LARGEST_REWARD:  # or it is not a number
                raise SimulatorFailed(f"{self._name} gave the reward {rewards[-1]}")
        terminated, truncated = np.array(ends).T
        self._last = TimeStep(
            frame=np.stack(frames),
            reward=np.array(rewards, np.float32),
            lives=np.zeros(self.num_envs, np.int32),
            terminated=terminated,
            truncated=truncated & ~terminated,
        )

    def shows(self, row: int) -> Callable[[], VectorEnvironment] | None:
        """The environment's own pictures, if it draws any. See `VectorEnvironment.shows`."""
        name, seeds, *how = self._made
        if why_not_drawn(name):
            return None
        return functools.partial(_Games, name, seeds[row : row + 1], *how, render_mode="rgb_array")

    def close(self) -> None:
        """Closes the environments."""
        for game in self._games:
            _close(self._name, game)

    def _read(self, game: gymnasium.Env, observation: Any) -> np.ndarray:
        """A frame of `spec` or a picture, as a new array."""
        if self._is_drawn:
            return _picture(self._name, game)
        frame = self.spec.frame
        observation = _checked(self._name, observation, self._shape, self._kind)
        if frame.dtype == np.float32:
            vector = observation.reshape(-1).astype(np.float32)
            if not np.isfinite(vector).all():
                raise SimulatorFailed(f"{self._name} showed a number that is not finite")
            return vector
        if self._kind == BITS:
            return as_bits(observation)
        return resize(observation, frame.shape)


def _reset(environment: str, game: gymnasium.Env, seed: int | None = None) -> Any:
    """The first observation of a game.

    Raises:
        SimulatorFailed: the environment fails, or returns something else than gymnasium's do.
    """
    with _failing(environment):
        found = game.reset(seed=seed)
    if not isinstance(found, tuple) or len(found) != 2:
        raise SimulatorFailed(f"{environment}: reset() returns no observation with an info")
    return found[0]


def _step(
    environment: str, game: gymnasium.Env, action: np.ndarray
) -> tuple[Any, float, bool, bool]:
    """Observation, reward, whether the game is terminated, and whether it is truncated.

    Raises:
        SimulatorFailed: as `_reset`.
    """
    with _failing(environment):
        found = game.step(_as_own(action, game.action_space))
        if not isinstance(found, tuple) or len(found) != 5:
            raise SimulatorFailed(f"{environment}: step() does not return five values")
        observation, reward, terminated, truncated, _ = found
        return observation, float(reward), bool(terminated), bool(truncated)


def _checked(environment: str, observation: Any, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """An observation as an array.

    Raises:
        SimulatorFailed: the observation space says another shape, another type of images, or bits
            where there are other numbers.
    """
    observation = np.asarray(observation)
    if observation.shape != shape:
        raise SimulatorFailed(
            f"{environment} showed {list(observation.shape)}, not {list(shape)} as its observation "
            "space says"
        )
    if kind == IMAGE and observation.dtype != np.uint8:
        raise SimulatorFailed(
            f"{environment} showed {observation.dtype}, not uint8 as its observation space says"
        )
    if kind == BITS and not (observation == (observation != 0)).all():
        raise SimulatorFailed(
            f"{environment} showed other numbers than 0 and 1, against its observation space"
        )
    return observation


def as_bits(grid: np.ndarray) -> np.ndarray:
    """`[H, W]` or `[H, W, C]` of zeros and ones as `[10, 10, C] uint8`, zeros below and right."""
    grid = grid.reshape(*grid.shape[:2], -1)
    frame = np.zeros((GRID, GRID, grid.shape[2]), np.uint8)
    frame[: grid.shape[0], : grid.shape[1]] = grid != 0
    return frame


def resize(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`[H, W]`, `[H, W, 1]` or `[H, W, 3] uint8` as `shape`, grey where that has two axes."""
    if image.ndim == 3 and image.shape[2] == 1:
        image = image[..., 0]
    picture = Image.fromarray(image).convert("L" if len(shape) == 2 else "RGB")
    height, width = shape[:2]
    if picture.size != (width, height):
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return np.array(picture)


def _as_own(action: np.ndarray, space: spaces.Space) -> Any:
    """Converts an action of `spec` to the environment's space, which has a start or bounds."""
    if isinstance(space, spaces.Discrete):
        return int(action) + int(space.start)
    scaled = action.reshape(space.shape).astype(np.float64)
    scaled = space.low + (scaled + 1.0) * (space.high.astype(np.float64) - space.low) / 2.0
    return np.clip(scaled, space.low, space.high).astype(space.dtype)


def _close(environment: str, game: gymnasium.Env) -> None:
    with _failing(environment):
        game.close()


def _picture(environment: str, game: gymnasium.Env) -> np.ndarray:
    """What people see of an environment, `[H, W, 3] uint8`.

    Raises:
        SimulatorFailed: the environment draws no such picture.
    """
    drawn = None
    with _failing(environment), contextlib.suppress(NotImplementedError):
        drawn = game.render()
    picture = np.array(drawn)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise SimulatorFailed(
            f"{environment} cannot be filmed: its render() returns {type(drawn).__name__}, no RGB "
            "picture; a function make(render_mode=None) gets 'rgb_array'"
        )
    return picture


def _make(environment: str, render_mode: str | None = None) -> gymnasium.Env:
    """One environment.

    Raises:
        ValueError: there is no such environment.
        SimulatorFailed: the function that makes it fails.
    """
    module, _, what = environment.partition(":")
    if module == BACKEND:
        try:
            mode = {"render_mode": render_mode} if render_mode else {}  # some know no such mode
            with _failing(environment, passing=(gymnasium.error.Error, ImportError)):
                return gymnasium.make(what, disable_env_checker=True, **mode)
        except (gymnasium.error.Error, ImportError) as error:
            raise ValueError(f"{environment}: {error}") from error
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # after all others: a folder must not hide a package
    try:
        with _failing(environment, passing=ModuleNotFoundError):
            found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        is_own = f"{module}.".startswith(f"{error.name}.")
        where = f" or in {os.getcwd()}" if is_own else f", which {module} imports"
        raise ValueError(
            f"{environment}: no module {error.name!r} is installed{where}; {_WAY_OF_WRITING}"
        ) from error
    function = getattr(found, what, None)
    if not callable(function):
        raise ValueError(f"{environment}: {module} has no function {what!r}")
    with _failing(environment):
        takes_mode = render_mode and "render_mode" in inspect.signature(function).parameters
        made = function(render_mode=render_mode) if takes_mode else function()
    if not all(hasattr(made, one) for one in ("observation_space", "action_space", "step")):
        raise ValueError(
            f"{environment} returned {type(made).__name__}, which is no environment of gymnasium"
        )
    return made


def _kind_of(environment: str, space: spaces.Space) -> str:
    """How observations of a space are read.

    Raises:
        ValueError: no agent can read them.
    """
    shape = space.shape
    if isinstance(space, spaces.MultiBinary | spaces.Box) and shape:
        binary = isinstance(space, spaces.MultiBinary) or (
            np.all(space.low >= 0) and np.all(space.high <= 1) and space.dtype.kind in "iub"
        )
        if len(shape) == 1:
            return VECTOR
        if len(shape) in (2, 3) and max(shape[:2]) <= _LARGEST_GRID:
            return BITS if binary and max(shape[:2]) <= GRID else VECTOR
        is_image = len(shape) == 2 or shape[2:] in ((1,), (3,))
        if is_image and space.dtype == np.uint8 and (space.high > 1).any():
            return IMAGE
    raise ValueError(
        f"{environment}: its observations are {space}; an agent reads numbers [D], grids of up to "
        f"{_LARGEST_GRID} cells a side, and images uint8 [H, W], [H, W, 1] or [H, W, 3] of "
        "brightness 0 to 255: wrap it in a function of a module"
    )


def _read_actions(environment: str, space: spaces.Space) -> tuple[bool, int]:
    """Whether actions are discrete; and their number, or the components of an action.

    Raises:
        ValueError: no agent can take such actions.
    """
    if isinstance(space, spaces.Discrete) and space.n <= _MOST_ACTIONS:
        return True, int(space.n)
    if isinstance(space, spaces.Box) and space.dtype.kind == "f" and space.is_bounded("both"):
        return False, math.prod(space.shape)
    raise ValueError(
        f"{environment}: its actions are {space}; an agent has one of at most {_MOST_ACTIONS} "
        "actions, or numbers within bounds (Box): wrap it in a function of a module"
    )


def _tried(
    environment: str, game: gymnasium.Env, actions: int | spaces.Box, kind: str
) -> Iterator[list[Any]]:
    """Yields what an environment returns in its first steps, under fixed pseudo-random actions."""

    def copied(observation):  # the next step may write into the observation
        shape = game.observation_space.shape
        return _checked(environment, observation, shape, kind).copy()

    random = np.random.default_rng(0)
    yield [copied(_reset(environment, game, 0))]
    for _ in range(_TRIED_STEPS):
        if isinstance(actions, int):
            action = np.int32(random.integers(actions))
        else:
            action = random.uniform(-1, 1, math.prod(actions.shape)).astype(np.float32)
        observation, *rest = _step(environment, game, action)
        shown = [copied(observation), *rest]
        if any(rest[1:]):  # over
            shown.append(copied(_reset(environment, game)))
        yield shown
    for _ in range(3):  # later episodes, too: a game may be longer than the trial
        yield [copied(_reset(environment, game))]


def _equal(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def _sources(environment: str, game: gymnasium.Env) -> dict[str, Any]:
    """Versions of an environment's packages, and the digest of a user's module."""
    found: dict[str, Any] = {"versions": {BACKEND: gymnasium.__version__}}
    defined_in = type(getattr(game, "unwrapped", game)).__module__
    named = environment.partition(":")[0]
    known = importlib.metadata.packages_distributions()
    for module in (defined_in, named):
        for distribution in known.get(module.partition(".")[0], ()):
            found["versions"][distribution] = importlib.metadata.version(distribution)
    if named != BACKEND:
        path = getattr(sys.modules[named], "__file__", None)
        if path:
            content = pathlib.Path(path).read_bytes()
            found["module"] = {"name": named, "sha256": hashlib.sha256(content).hexdigest()}
    return found


@contextlib.contextmanager
def _failing(
    environment: str, passing: type[Exception] | tuple[type[Exception], ...] = SimulatorFailed
) -> Iterator[None]:
    """Raises SimulatorFailed, which says where, for any error but those of type `passing`."""
    try:
        yield
    except passing:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise SimulatorFailed(
            f"{environment}: {type(error).__name__}: {words.one_line(error)} "
            f"({last.filename}:{last.lineno})"
        ) from error
