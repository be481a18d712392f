"""The protocol that every vector of environments keeps.

Backends hand over single frames, raw rewards and the emulator's own ends of a game, and nothing
else. Stacking, life loss, reward clipping and the frame limit are written once, for all of them,
in `rcrl_jax.envs.agent_view`.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np


class EnvironmentSpec(NamedTuple):
    """What a network must know about an environment."""

    frame_shape: tuple[int, ...]
    """[84, 84] gray pixels on Atari; [H, W, 3] pixels, or [D], a state vector, on DMControl."""
    num_actions: int
    """Size of the action set, of which an action is an integer; or, where actions are vectors, the
    number of their components."""
    frame_dtype: type[np.generic] = np.uint8
    """uint8 for pixels, float32 for state vectors."""


class TimeStep(NamedTuple):
    """What one step, or one reset, of R environments hands over.

    The arrays are never written again by the environment. It may still read them, to repeat the
    last frames in `VectorEnvironment.reset`, so they are read-only for the caller.
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
    """[R] bool, cut by the emulator itself: DMControl's time limit. On Atari the limit is ours."""


class SimulatorFailed(Exception):  # noqa: N818 - says what is the matter
    """A simulator in a process of its own is gone, hangs or has failed; its vector is of no use."""


class VectorEnvironment(Protocol):
    """R environments that step together, on CPU threads, beside whatever the caller does.

    The first call is `reset()`, of all environments. From then on `send` and `recv` alternate, and
    `reset` may be called between a `recv` and the next `send`. An environment whose game has ended
    must be restarted by `reset(mask)` before the next `send`: no backend restarts by itself.

    Environment r is a function of its own seed and actions alone. It does not depend on the other
    environments of the vector, on the number of threads, or on when the others are restarted.
    """

    spec: EnvironmentSpec
    num_envs: int
    """R, the number of environments."""
    num_actions_per_env: np.ndarray
    """[R] int32, the own `num_actions` of each environment; `spec.num_actions` is the largest,
    or more."""
    description: dict[str, Any]
    """For the manifest: backend, versions and every setting that changes a frame or a score."""

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """Starts the next game in the masked environments.

        Args:
            mask: [R] bool, the environments to restart, at least one; None restarts all.

        Returns:
            The first frames, with reward 0. Rows outside the mask are left alone and repeat their
            last frame and lives.

        Raises:
            RuntimeError: the first reset does not cover all environments.
            ValueError: the mask has another shape, or selects none.
            SimulatorFailed: see there.
        """

    def send(self, actions: np.ndarray) -> None:
        """Starts one step of every environment and returns at once.

        Args:
            actions: [R] int32, each below the `num_actions_per_env` of its environment; or
                [R, A] float32 in [-1, 1], A = `spec.num_actions`, of which an environment reads its
                own first components.

        Raises:
            ValueError: `actions` has another shape, or an action is out of range.
            SimulatorFailed: see there.
        """

    def recv(self) -> TimeStep:
        """Waits for the step that `send` started.

        Raises:
            SimulatorFailed: see there.
        """

    def step(self, actions: np.ndarray) -> TimeStep:
        """`send` followed by `recv`."""
        self.send(actions)
        return self.recv()

    def close(self) -> None:
        """Ends the environments and their threads."""


def validate_actions(actions: np.ndarray, num_actions_per_env: np.ndarray) -> None:
    """Raises ValueError unless `actions` is [R] and every action is in its environment's range.

    Emulators index their action table unchecked, so this is the last place to notice.
    """
    if np.shape(actions) != num_actions_per_env.shape:
        raise ValueError(
            f"actions must have shape {num_actions_per_env.shape}, got {np.shape(actions)}"
        )
    if np.any((actions < 0) | (actions >= num_actions_per_env)):
        raise ValueError(
            f"action out of range: {actions}, action-set sizes are {num_actions_per_env}"
        )


def validate_seeds(seeds: np.ndarray) -> np.ndarray:
    """Returns `seeds` as [R] int32, or raises ValueError: emulators take non-negative int32."""
    seeds = np.asarray(seeds)
    if seeds.ndim != 1 or seeds.size == 0 or seeds.dtype.kind not in "iu":
        raise ValueError(f"seeds must be a non-empty list of integers, one an environment: {seeds}")
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
        last: what the previous step or reset handed over; not needed when all are restarted.
        mask: [R] bool, the M restarted environments.
        frame: [M, 84, 84] uint8, their first frames.
        lives: [M] int32, their lives.

    Returns:
        The first frames in the masked rows, the last frames in the others; reward 0 everywhere.
    """
    if not mask.all():
        # `last` belongs to the caller by now: fill copies of it.
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
