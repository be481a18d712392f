"""Rollouts of real play, and predictors of their frames that know no dynamics."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.simple.network import VALUES
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.nulls import Scripted


class Rollouts(NamedTuple):
    """N rollouts of K steps, each from another episode."""

    stack: np.ndarray  # [N, C, H, W, 3] uint8, the frames before the rollout
    action: np.ndarray  # [N, K] int32
    frame: np.ndarray  # [N, K, H, W, 3] uint8, the frame after each action
    reward: np.ndarray  # [N, K] int64, the sign of the reward


def play(
    environment: AgentEnvironment,
    fleet: Fleet | Scripted,
    params: types.Params | None,
    counters: Sequence[int],
    starts: np.ndarray,
    length: int,
) -> Rollouts:
    """Plays N episodes with the training policy and keeps a rollout of each.

    Rollouts in which the episode ends are dropped.

    Args:
      environment: of N parallel episodes; will be closed.
      fleet: of one run.
      params: of the run's agent.
      counters: together with the step, determine the noise of actions.
      starts: `[N]`, agent steps before each rollout: at least C - 1, so that the stack is full.
      length: K.
    """
    observation = environment.reset()
    games, stack = observation.shape[:2]
    kept = Rollouts(
        np.zeros_like(observation),
        np.zeros((games, length), np.int32),
        np.zeros((games, length, *observation.shape[2:]), np.uint8),
        np.zeros((games, length), np.int64),
    )
    is_whole, memory = np.ones(games, bool), fleet.init_memory(games)  # which holds nothing
    for t in range(starts.max() + length):
        actions, _ = fleet.act(params, observation[None], memory, *counters, t)
        actions = np.asarray(actions)[0]
        first = starts == t
        kept.stack[first] = observation[first]
        step = environment.step(actions)
        (within,) = np.nonzero((starts <= t) & (t < starts + length))
        place = t - starts[within]
        kept.action[within, place] = actions[within]
        kept.frame[within, place] = step.frame[within]
        kept.reward[within, place] = np.sign(step.reward[within])
        # The episode must not end between the first frame of a stack and the last step.
        is_whole &= ~(step.finished & (starts - stack < t) & (t < starts + length))
        observation = step.observation
    environment.close()
    return Rollouts(*(field[is_whole] for field in kept))


class Predictors(NamedTuple):
    """Predictors without dynamics; they read at most the last frame before a rollout."""

    error_rate: np.ndarray  # [K], of copying that frame, after each number of steps
    histogram: np.ndarray  # [H, W, 3, 256], probability of each value of each pixel
    copy_weight: np.ndarray  # [K], weight of copying in the mixture of both
    reward: np.ndarray  # [K, 3], probability of -1, 0 and 1


def fit(rollouts: Rollouts) -> Predictors:
    """Fits the predictors by maximum likelihood; rates have one pseudo-count over all values."""
    same = rollouts.frame == rollouts.stack[:, -1:]
    by_step = (0, 2, 3, 4)
    size = same[:, 0].size
    error_rate = ((~same).sum(by_step) + (VALUES - 1) / VALUES) / (size + 1)
    frames = rollouts.frame.reshape(-1, *rollouts.frame.shape[2:])
    pixels = frames[0].size
    index = np.arange(pixels) * VALUES + frames.reshape(-1, pixels)
    counts = np.bincount(index.reshape(-1), minlength=pixels * VALUES)
    histogram = (counts + 1 / VALUES) / (len(frames) + 1)
    signs = np.stack([(rollouts.reward == sign).sum(0) for sign in (-1, 0, 1)], axis=1)
    predictors = Predictors(
        error_rate,
        histogram.reshape(*frames.shape[1:], VALUES),
        np.zeros(len(error_rate)),
        (signs + 1 / 3) / (len(rollouts.reward) + 1),
    )
    weights = [
        _best_weight(*_probabilities(predictors, rollouts, k)) for k in range(len(error_rate))
    ]
    return predictors._replace(copy_weight=np.array(weights))


def log_likelihoods(predictors: Predictors, rollouts: Rollouts) -> dict[str, np.ndarray]:
    """Predictor -> log-likelihood `[N, K]` of all pixels of each frame [nats]."""
    of_steps = []
    for k, weight in enumerate(predictors.copy_weight):
        copied, known = _probabilities(predictors, rollouts, k)
        likelihoods = copied, known, weight * copied + (1 - weight) * known
        of_steps.append([np.log(p).sum((1, 2, 3)) for p in likelihoods])
    names = "copy", "histogram", "mixture"
    return dict(zip(names, np.transpose(of_steps, (1, 2, 0)), strict=True))


def _probabilities(
    predictors: Predictors, rollouts: Rollouts, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities `[N, H, W, 3]` of the true values after step k: by copying, by histograms."""
    frame = rollouts.frame[:, k]
    error = predictors.error_rate[k]
    copied = np.where(frame == rollouts.stack[:, -1], 1 - error, error / (VALUES - 1))
    chosen = frame[..., None].astype(np.int64)
    return copied, np.take_along_axis(predictors.histogram[None], chosen, axis=-1)[..., 0]


def _best_weight(one: np.ndarray, other: np.ndarray) -> float:
    """The weight of `one` with the largest likelihood of a mixture, by bisection.

    The slope of the concave log-likelihood, mean[(one - other) / mixture], falls with the weight.
    """
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        slope = np.mean((one - other) / (middle * one + (1 - middle) * other))
        low, high = (middle, high) if slope > 0 else (low, middle)
    return (low + high) / 2
