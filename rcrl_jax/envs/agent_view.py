"""What the agent sees of an environment, written once for all backends.

Frame stacking, life loss as the end of a training episode, reward clipping, the frame limit and
the returns of whole games.

Two kinds of episode meet here. A GAME runs from a reset to game over or to the frame limit; scores
are counted over games. A TRAINING EPISODE is what the agent bootstraps within; where a life loss
ends it, one game holds several.

    step t            0      1      2      3      4      5      6
    action            a0     a1     a2     a3     a4     a5     a6
    frame         f0  f1     f2     f3     f4     f5     f6     f7
                                    |             |
                                life lost     game over, f5 is the final frame; reset gives g0

    AgentStep.frame   f1     f2     f3     f4     f5     g1     g2
    terminated        no     no     yes    no     yes    no     no
    finished          no     no     no     no     yes    no     no
    newest of         f1     f2     f3     f4     g0     g1     g2
     observation
    its stack of 4  00f0f1 0f0f1f2  000f3 00f3f4  000g0 00g0g1 0g0g1g2

A stack begins with zeros and never holds frames of two training episodes. After a life loss the
emulator plays on: the frame just seen is both the last of the old episode and the first of the new
one, as the state the next action is taken in.
"""

from typing import Any, NamedTuple

import numpy as np

from rcrl_jax.envs.protocol import EnvironmentSpec, VectorEnvironment


class AgentStep(NamedTuple):
    """What one action of each of R environments led to. All arrays are the caller's to keep."""

    frame: np.ndarray
    """[R, *frame_shape], the frame that followed the action; the final one if the game ended."""
    reward: np.ndarray
    """[R] float32, clipped to [-1, 1] if the view clips."""
    terminated: np.ndarray
    """[R] bool, the training episode ended and nothing is bootstrapped: game over, or life loss."""
    truncated: np.ndarray
    """[R] bool, the game was cut at the frame limit: bootstraps. Never set with `terminated`."""
    observation: np.ndarray
    """[R, S, *frame_shape], the stack to act on next, oldest frame first.

    After an end it is zero but for the first frame of what follows: the first frame after the
    reset, or, after a life loss, the frame just seen.
    """
    finished: np.ndarray
    """[R] bool, the game is over or was cut, and the environment has been restarted."""
    life_lost: np.ndarray
    """[R] bool, a life was lost while others remain, whether or not that ends the episode."""
    episode_return: np.ndarray
    """[R] float64, undiscounted sum of the finished game's raw rewards; NaN where not finished."""
    episode_length: np.ndarray
    """[R] int64, agent steps of the finished game; 0 where not finished."""


class AgentEnvironment:
    """A vector of environments as the agent sees it.

    Observations are fresh arrays, written by nobody once handed over: a caller, or a device that
    reads asynchronously, may keep one for as long as it likes. They are read-only, since the next
    stack is made from the last one.
    """

    def __init__(
        self,
        environment: VectorEnvironment,
        *,
        stack_size: int = 4,
        life_loss_ends_episode: bool,
        clip_rewards: bool,
        max_episode_steps: int,
    ):
        """Takes over `environment`; only this view may step it from now on.

        Args:
            environment: R environments.
            stack_size: S, frames in an observation.
            life_loss_ends_episode: whether a lost life, while others remain, ends the training
                episode (in training) or goes unnoticed (in evaluation).
            clip_rewards: whether rewards are clipped to [-1, 1]; returns are always raw.
            max_episode_steps: agent steps after which a game is cut, whatever lives it took.

        Raises:
            ValueError: `stack_size` or `max_episode_steps` is below 1.
        """
        if stack_size < 1 or max_episode_steps < 1:
            raise ValueError(
                f"stack_size {stack_size} and max_episode_steps {max_episode_steps} must be >= 1"
            )
        self._environment = environment
        self._life_loss_ends_episode = life_loss_ends_episode
        self._clip_rewards = clip_rewards
        self._max_episode_steps = max_episode_steps
        num_envs, spec = environment.num_envs, environment.spec
        self._observation = np.zeros((num_envs, stack_size, *spec.frame_shape), spec.frame_dtype)
        self._lives = np.zeros(num_envs, np.int32)
        self._return = np.zeros(num_envs, np.float64)
        self._length = np.zeros(num_envs, np.int64)

    @property
    def spec(self) -> EnvironmentSpec:
        """Frame shape and number of actions."""
        return self._environment.spec

    @property
    def num_envs(self) -> int:
        """R."""
        return self._environment.num_envs

    @property
    def num_actions_per_env(self) -> np.ndarray:
        """[R] int32, the action-set size of each environment."""
        return self._environment.num_actions_per_env

    @property
    def description(self) -> dict[str, Any]:
        """For the manifest: that of the environment, and this view's own settings."""
        return {
            **self._environment.description,
            "stack_size": self._observation.shape[1],
            "stack_start": "zeros",
            "life_loss_ends_episode": self._life_loss_ends_episode,
            "clip_rewards": self._clip_rewards,
            "max_episode_steps": self._max_episode_steps,
        }

    @property
    def running_return(self) -> np.ndarray:
        """[R] float64, raw return so far of the games still running."""
        return self._return.copy()

    def reset(self) -> np.ndarray:
        """Starts the next game everywhere; returns the stacks to act on, [R, S, *frame_shape]."""
        first = self._environment.reset()
        self._lives = first.lives
        self._return[:] = 0.0
        self._length[:] = 0
        self._push(first.frame, start_over=np.ones(self.num_envs, bool))
        return self._observation

    def send(self, actions: np.ndarray) -> None:
        """Starts one step with `actions` [R, *act] and returns at once; `recv` must follow."""
        self._environment.send(actions)

    def recv(self) -> AgentStep:
        """Waits for the step that `send` started, and restarts the environments that finished."""
        step = self._environment.recv()
        self._return += step.reward
        self._length += 1

        at_limit = step.truncated | (self._length >= self._max_episode_steps)
        finished = step.terminated | at_limit
        # Only while lives remain: Q*bert shows 0 lives some time before its game is over.
        life_lost = (step.lives < self._lives) & (step.lives > 0)
        terminated = step.terminated
        if self._life_loss_ends_episode:
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
            reward=np.clip(step.reward, -1.0, 1.0) if self._clip_rewards else step.reward,
            terminated=terminated,
            truncated=truncated,
            observation=self._observation,
            finished=finished,
            life_lost=life_lost,
            episode_return=episode_return,
            episode_length=episode_length,
        )

    def step(self, actions: np.ndarray) -> AgentStep:
        """`send` followed by `recv`."""
        self.send(actions)
        return self.recv()

    def close(self) -> None:
        """Ends the environments and their threads."""
        self._environment.close()

    def _push(self, frame: np.ndarray, start_over: np.ndarray) -> None:
        """Makes the next stacks: shifted by one, or zeros where `start_over`, then `frame`."""
        observation = np.empty_like(self._observation)
        observation[:, :-1] = self._observation[:, 1:]
        observation[start_over, :-1] = 0
        observation[:, -1] = frame
        observation.flags.writeable = False
        self._observation = observation
