"""The interface of every vector of environments, and the records that describe it.

Backends return single frames, raw rewards and the emulator's own ends of a game. Stacking, life
loss, reward clipping and the frame limit are written once, in `rcrl_jax.envs.agent_view`.
"""

import dataclasses
import difflib
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, Protocol

import numpy as np
from dm_env import specs


class EnvironmentSpec(NamedTuple):
    """Frames, actions and units of an environment; see `discrete_spec` and `control_spec`."""

    frame: specs.Array
    """One frame. Pixels are a BoundedArray uint8 in [0, 255], `[H, W]` or `[H, W, 3]`; a state
    vector is an Array [D] float32."""
    action: specs.DiscreteArray | specs.BoundedArray
    """One action of the largest action set: an int32 in [0, A) for a DiscreteArray, else
    [A] float32 in [-1, 1]."""
    action_repeat: int = 1
    """Environment steps of an agent step, as the benchmark counts them."""
    frames_per_step: int = 1
    """Frames of an agent step: 4 emulated on Atari, 1 rendered on DMControl."""
    host_bytes: int = 0
    """Approximate host memory of one environment; 0 where it is small."""

    @property
    def max_num_actions(self) -> int:
        """A, the size of the largest action set, or the components of the largest action."""
        if isinstance(self.action, specs.DiscreteArray):
            return self.action.num_values
        return self.action.shape[0]


def discrete_spec(frame_shape: tuple[int, ...], max_num_actions: int) -> EnvironmentSpec:
    """Spec of a game with pixel frames and discrete actions, counted as on Atari.

    The benchmark counts agent steps (action repeat 1), each of 4 emulated frames.

    Args:
        frame_shape: `[H, W]` or `[H, W, 3]`, pixels (uint8).
        max_num_actions: A, size of the largest action set.
    """
    return EnvironmentSpec(
        frame=_pixels(frame_shape),
        action=specs.DiscreteArray(max_num_actions, name="action"),
        frames_per_step=4,
    )


def control_spec(
    frame_shape: tuple[int, ...], max_num_actions: int, *, action_repeat: int = 1
) -> EnvironmentSpec:
    """Spec of a task with continuous actions, counted as on DMControl: one frame an agent step.

    Args:
        frame_shape: [H, W, 3] for pixels (uint8), [D] for a state vector (float32).
        max_num_actions: A, components of the largest action.
        action_repeat: environment steps of an agent step.
    """
    is_state = len(frame_shape) == 1
    return EnvironmentSpec(
        frame=specs.Array(frame_shape, np.float32, "frame") if is_state else _pixels(frame_shape),
        action=specs.BoundedArray((max_num_actions,), np.float32, -1.0, 1.0, "action"),
        action_repeat=action_repeat,
        frames_per_step=1,
    )


def _pixels(shape: tuple[int, ...]) -> specs.BoundedArray:
    return specs.BoundedArray(shape, np.uint8, 0, 255, "frame")


@dataclasses.dataclass(frozen=True, kw_only=True)
class EnvironmentProtocol:
    """The settings under which an agent sees an environment; see `agent_view`."""

    frame_stack: int
    """C, frames in an observation."""
    life_loss_ends_episode: bool
    """Whether a lost life, while others remain, ends the training episode."""
    clip_rewards: bool
    """Whether rewards are clipped to [-1, 1]; returns are always raw."""
    max_episode_steps: int
    """Agent steps after which a game is cut, regardless of its lives."""
    stack_start: str = "zeros"
    """What the stack holds before an episode's first frame: 'zeros', or the 'first_frame' again."""
    restart_period: int | None = None
    """The game is cut whenever the run has made a multiple of this many agent steps."""

    def for_evaluation(self) -> "EnvironmentProtocol":
        """The same settings with whole games and raw rewards."""
        return dataclasses.replace(
            self, life_loss_ends_episode=False, clip_rewards=False, restart_period=None
        )


class TimeStep(NamedTuple):
    """Result of one step, or one reset, of R environments.

    The environment never writes to these arrays again, but may read them, to repeat the last
    frames in `VectorEnvironment.reset`. They are read-only for the caller.
    """

    frame: np.ndarray
    """[R, *frame_shape], the newest frame; the game's final frame when it has just ended."""
    reward: np.ndarray
    """[R] float32, raw: not clipped, summed over the frames that the step repeats its action."""
    lives: np.ndarray
    """[R] int32, lives left; always 0 in games that do not count lives."""
    terminated: np.ndarray
    """[R] bool, the game is over."""
    truncated: np.ndarray
    """[R] bool, cut by the emulator itself: DMControl's time limit, or an invalid state. On Atari
    `agent_view` cuts."""
    failed: np.ndarray | None = None
    """[R] bool, cut because the physics had no valid next state; the frame repeats the last one,
    and the reward is that of the valid steps. None where no simulation can fail."""


class SimulatorFailed(Exception):
    """A simulator process has failed, has ended or does not answer; its vector is unusable."""


class VectorEnvironment(Protocol):
    """R environments that step together, on CPU threads, in parallel to the caller.

    The first call is `reset()`, of all environments. Then `send` and `recv` alternate, and `reset`
    may be called between a `recv` and the next `send`. An environment whose game has ended must be
    restarted by `reset(mask)` before the next `send`: no backend restarts by itself.

    Environment r is a function of its own seed and actions alone. It does not depend on the other
    environments of the vector, on the number of threads, or on when the others are restarted.
    """

    spec: EnvironmentSpec
    num_envs: int
    """R, the number of environments."""
    num_valid_actions: np.ndarray
    """[R] int32, the number of actions, or of action components, of each environment; at most
    `spec.max_num_actions`."""
    description: dict[str, Any]
    """For the manifest: backend, versions and every setting that changes a frame or a score."""
    renders: bool = True
    """Whether frames are wanted from now on. If not, a simulator that renders slowly skips
    rendering, and the `frame` of its time steps is meaningless. Fast simulators may ignore this."""

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """Starts the next game in the masked environments.

        Args:
            mask: [R] bool, the environments to restart, at least one; None restarts all.

        Returns:
            The first frames, with reward 0. Rows outside the mask are not restarted and repeat
            their last frame and lives.

        Raises:
            RuntimeError: the first reset does not cover all environments.
            ValueError: the mask has another shape, or selects none.
            SimulatorFailed: a simulator process has failed.
        """

    def send(self, actions: np.ndarray) -> None:
        """Starts one step of every environment and returns at once.

        Args:
            actions: [R] int32, each below the environment's `num_valid_actions`; or
                [R, A] float32 in [-1, 1], A = `spec.max_num_actions`, of which an environment reads
                its first `num_valid_actions` components.

        Raises:
            ValueError: `actions` has another shape, or an action is out of range.
            SimulatorFailed: a simulator process has failed.
        """

    def recv(self) -> TimeStep:
        """Waits for the step that `send` started.

        Raises:
            SimulatorFailed: a simulator process has failed.
        """

    def step(self, actions: np.ndarray) -> TimeStep:
        """`send` followed by `recv`."""
        self.send(actions)
        return self.recv()

    def retire(self, mask: np.ndarray) -> None:
        """Tells that the masked environments `[R] bool` are no longer needed.

        From the next `send` on they may stand still: their rows repeat the last frames, with reward
        0 and without an end. An environment that cannot stand still ignores the call.
        """

    def shows(self, row: int) -> "Callable[[], VectorEnvironment] | None":
        """A function that makes a copy of environment `row` whose frames are for people.

        After the same actions, the first game of the copy equals that of `row`. None: people watch
        the frames that the agent reads.
        """
        return None

    def close(self) -> None:
        """Ends the environments and their threads."""


class SteppedInSend(VectorEnvironment):
    """Environments that finish a step within `send`, which keeps what `recv` returns."""

    _last: TimeStep | None = None  # before the first reset

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        return self._last


def nearest(name: str, known: Collection[str]) -> str:
    """What a mistyped name may mean: the known names most like it, or all of them."""

    def plain(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "")

    names = {plain(one): one for one in known}
    near = difflib.get_close_matches(plain(name), names, n=3)
    if near:
        return f"did you mean {' or '.join(names[one] for one in near)}?"
    return f"choose from {', '.join(known)}"


def validate_actions(
    actions: np.ndarray, spec: EnvironmentSpec, num_valid_actions: np.ndarray
) -> None:
    """Raises ValueError unless `actions` are what `VectorEnvironment.send` takes.

    Emulators index their action table unchecked, so this is the last check.
    """
    shape = (len(num_valid_actions), *spec.action.shape)
    if np.shape(actions) != shape:
        raise ValueError(f"actions must have shape {shape}, got {np.shape(actions)}")
    low, high = spec.action.minimum, spec.action.maximum
    if isinstance(spec.action, specs.DiscreteArray):
        high = num_valid_actions - 1
    # Comparisons are false for NaN, so it is out of range.
    if not np.all((actions >= low) & (actions <= high)):
        raise ValueError(f"action out of range [{low}, {high}]: {actions}")


def validate_seeds(seeds: np.ndarray) -> np.ndarray:
    """Returns `seeds` as [R] int32, or raises ValueError: emulators take non-negative int32."""
    seeds = np.asarray(seeds)
    if seeds.ndim != 1 or seeds.size == 0 or seeds.dtype.kind not in "iu":
        raise ValueError(f"seeds must be a list of integers, one per environment, got {seeds}")
    if seeds.min() < 0 or seeds.max() > np.iinfo(np.int32).max:
        raise ValueError(f"seeds must be in [0, 2**31), got {seeds}")
    return seeds.astype(np.int32)


def validate_mask(mask: np.ndarray | None, num_envs: int, *, first: bool) -> np.ndarray:
    """Returns the mask of a reset as [R] bool; None selects all environments.

    Raises:
        RuntimeError: the first reset does not cover all environments.
        ValueError: the mask has another shape, or selects none.
    """
    if mask is None:
        return np.ones(num_envs, bool)
    mask = np.asarray(mask, bool)
    if mask.shape != (num_envs,) or not mask.any():
        raise ValueError(f"mask must select some of {num_envs} environments, got {mask}")
    if first and not mask.all():
        raise RuntimeError("the first reset must restart all environments")
    return mask


def after_reset(
    last: TimeStep | None, mask: np.ndarray, frame: np.ndarray, lives: np.ndarray
) -> TimeStep:
    """Makes the time step of a reset from the first frames of the restarted environments.

    Args:
        last: result of the previous step or reset; unused when all are restarted.
        mask: [R] bool, the M restarted environments.
        frame: [M, *frame_shape], their first frames.
        lives: [M] int32, their lives.

    Returns:
        The first frames in the masked rows, the last frames in the others; reward 0 everywhere.
    """
    if not mask.all():
        # The caller may still hold `last`, so fill copies.
        all_frames, all_lives = last.frame.copy(), last.lives.copy()
        all_frames[mask], all_lives[mask] = frame, lives
        frame, lives = all_frames, all_lives
    return TimeStep(
        frame=frame,
        reward=np.zeros(mask.shape, np.float32),
        lives=lives,
        terminated=np.zeros(mask.shape, bool),
        truncated=np.zeros(mask.shape, bool),
    )
