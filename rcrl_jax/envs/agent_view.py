"""What the agent sees of an environment, written once for all backends.

Stacks frames, ends training episodes at a life loss, clips rewards, cuts games at the frame limit
and sums the returns of whole games.

There are two kinds of episode. A GAME runs from a reset to game over or to the frame limit; scores
are counted over games. A TRAINING EPISODE is the span within which the agent bootstraps; if a life
loss ends it, one game holds several.

    step t            0      1      2      3      4      5      6
    action            a0     a1     a2     a3     a4     a5     a6
    frame         f0  f1     f2     f3     f4     f5     g1     g2
                                    |             |
                                life lost     game over, f5 is the final frame; reset gives g0

    AgentStep.frame   f1     f2     f3     f4     f5     g1     g2
    terminated        no     no     yes    no     yes    no     no
    finished          no     no     no     no     yes    no     no
    newest of         f1     f2     f3     f4     g0     g1     g2
     observation
    its stack of 4  00f0f1 0f0f1f2  000f3 00f3f4  000g0 00g0g1 0g0g1g2

A stack never holds frames of two training episodes. Before the first frame of its episode, it holds
zeros or, if the protocol says so, copies of that frame. After a life loss the emulator plays on:
the frame just seen is the last one of the old episode and the first one of the new episode.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rcrl_jax.envs.frame_log import FrameLog, LoggedEnvironment
from rcrl_jax.envs.protocol import EnvironmentProtocol, VectorEnvironment


class AgentStep(NamedTuple):
    """Result of one action in each of R environments. The caller may keep all arrays."""

    frame: np.ndarray
    """[R, *frame_shape], the frame that followed the action; the final one if the game ended."""
    reward: np.ndarray
    """[R] float32, clipped to [-1, 1] if the protocol clips."""
    terminated: np.ndarray
    """[R] bool, the training episode ended without a bootstrap: game over, or life loss."""
    truncated: np.ndarray
    """[R] bool, cut by a time limit or the end of a round: the agent bootstraps. Never set together
    with `terminated`."""
    observation: np.ndarray
    """[R, C, *frame_shape], the stack to act on next, oldest frame first.

    After an end of an episode, the newest frame is the first one after the reset or, after a life
    loss, the frame just seen. All older frames are then zero, or copies of the newest.
    """
    finished: np.ndarray
    """[R] bool, the game is over or was cut, and the environment has been restarted."""
    life_lost: np.ndarray
    """[R] bool, a life was lost while others remain, whether or not that ends the episode."""
    episode_return: np.ndarray
    """[R] float64, undiscounted sum of the finished game's raw rewards; NaN where not finished."""
    episode_length: np.ndarray
    """[R] int64, agent steps of the finished game; 0 where not finished."""
    failed: np.ndarray
    """[R] bool, the game was cut because the physics had no valid next state."""


class AgentEnvironment:
    """A vector of environments as the agent sees it.

    Each observation is a new array that is never written again: a caller, or an asynchronous copy
    to a device, may keep it. It is read-only, because the next stack is made from the last one.

    Attributes:
        spec, num_envs, num_valid_actions: as of `VectorEnvironment`.
    """

    def __init__(self, environment: VectorEnvironment, protocol: EnvironmentProtocol):
        """Takes ownership of `environment`: from now on only this view may step it.

        Args:
            environment: R environments.
            protocol: how they are seen.
        """
        self._environment, self._protocol = environment, protocol
        self.spec, self.num_envs = environment.spec, environment.num_envs
        self.num_valid_actions = environment.num_valid_actions
        num_envs, frame = self.num_envs, self.spec.frame
        self._observation = np.zeros((num_envs, protocol.frame_stack, *frame.shape), frame.dtype)
        self._lives = np.zeros(num_envs, np.int32)
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)
        self._steps = 0  # since the first reset

    @property
    def description(self) -> dict[str, Any]:
        """For the manifest: the environment's description and this view's settings."""
        protocol = dataclasses.asdict(self._protocol)
        if self._protocol.restart_period is None:  # only SimPLe's manifests have this setting
            del protocol["restart_period"]
        return {**self._environment.description, **protocol}

    def shows(self, row: int) -> Callable[[], VectorEnvironment] | None:
        """See `VectorEnvironment.shows`."""
        return self._environment.shows(row)

    def log_frames(self, log: FrameLog) -> None:
        """Reads frames from `log` to its end, then appends new ones. Call before the first `reset`.

        Args:
            log: will be closed with the environments.
        """
        self._environment = LoggedEnvironment(self._environment, log)

    def reset(self) -> np.ndarray:
        """Starts the next game in all environments; returns stacks [R, C, *frame_shape]."""
        first = self._environment.reset()
        self._lives = first.lives
        self._return[:] = 0.0
        self._length[:] = 0
        self._push(first.frame, start_over=np.ones(self.num_envs, bool))
        return self._observation

    def send(self, actions: np.ndarray) -> None:
        """Starts one step with `actions` [R] or [R, A] and returns at once; `recv` must follow."""
        self._environment.send(actions)

    def recv(self) -> AgentStep:
        """Waits for the step that `send` started, and restarts the environments that finished."""
        step = self._environment.recv()
        self._return += step.reward
        self._length += 1
        self._steps += 1

        at_limit = step.truncated | (self._length >= self._protocol.max_episode_steps)
        if (period := self._protocol.restart_period) is not None and self._steps % period == 0:
            at_limit = np.ones_like(at_limit)
        finished = step.terminated | at_limit
        # Only while lives remain: Q*bert shows 0 lives before its game is over.
        life_lost = (step.lives < self._lives) & (step.lives > 0)
        terminated = step.terminated
        if self._protocol.life_loss_ends_episode:
            terminated = terminated | life_lost
        truncated = at_limit & ~terminated
        episode_return = np.where(finished, self._return, np.nan)
        episode_length = np.where(finished, self._length, 0)

        newest, self._lives = step.frame, step.lives
        if finished.any():
            # Rows outside the mask repeat the frame and the lives of `step`.
            first = self._environment.reset(finished)
            newest, self._lives = first.frame, first.lives
            self._return[finished] = 0.0
            self._length[finished] = 0
        self._push(newest, start_over=terminated | truncated)
        return AgentStep(
            frame=step.frame,
            reward=np.clip(step.reward, -1.0, 1.0) if self._protocol.clip_rewards else step.reward,
            terminated=terminated,
            truncated=truncated,
            observation=self._observation,
            finished=finished,
            life_lost=life_lost,
            episode_return=episode_return,
            episode_length=episode_length,
            failed=np.zeros_like(finished) if step.failed is None else step.failed,
        )

    def step(self, actions: np.ndarray) -> AgentStep:
        """`send` followed by `recv`."""
        self.send(actions)
        return self.recv()

    def retire(self, mask: np.ndarray) -> None:
        """See `VectorEnvironment.retire`."""
        self._environment.retire(mask)

    def close(self) -> None:
        """Ends the environments and their threads."""
        self._environment.close()

    def _push(self, frame: np.ndarray, start_over: np.ndarray) -> None:
        """Shifts the stacks by one, or empties them where `start_over`, and appends `frame`."""
        observation = np.empty_like(self._observation)
        observation[:, :-1] = self._observation[:, 1:]
        fills = self._protocol.stack_start == "first_frame"
        observation[start_over, :-1] = frame[start_over, None] if fills else 0
        observation[:, -1] = frame
        observation.flags.writeable = False
        self._observation = observation
