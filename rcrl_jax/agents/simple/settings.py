"""Training settings of SimPLe: when it learns, its replay, evaluation and memory."""

from typing import NamedTuple

import numpy as np

from rcrl_jax.agents.agent import EVALUATION, TRAINING, EvaluationSettings, Resources
from rcrl_jax.agents.simple import network as networks
from rcrl_jax.agents.simple.config import TEMPERATURES, SimpleConfig
from rcrl_jax.replay.settings import ContrastRule, ReplaySettings, SequenceRule

MODEL, REAL, IN_MODEL = range(3)  # kinds of updates

_SCORED, *_OTHERS = TEMPERATURES
POLICIES = {TRAINING: 1.0, EVALUATION: _SCORED} | {f"temperature_{t}": t for t in _OTHERS}
"""The temperature of each policy."""


class Rounds(NamedTuple):
    """When SimPLe learns; has the interface of `Schedule`."""

    config: SimpleConfig

    before_action = True

    @property
    def learn_start(self) -> int:
        """Agent steps before the first update."""
        return self.config.real_rollout

    @property
    def update_period(self) -> int:
        """Agent steps between updates."""
        return self.config.real_rollout

    def _by_kind(self, step: int) -> tuple[int, int, int]:
        """Updates that are due at agent step `step`."""
        config = self.config
        if step == 0 or step % config.real_rollout:
            return 0, 0, 0
        number, within = divmod(step, config.round_steps)
        if within or number > config.rounds:
            return 0, 1, 0
        model, in_model = config.updates_of_round(number - 1)
        return model, 1, in_model

    def due(self, step: int) -> int:
        """How many updates are due at agent step `step`."""
        return sum(self._by_kind(step))

    def kind(self, step: int, made: int) -> int:
        """The kind of the next update at `step`, when `made` have been made."""
        model, real, _ = self._by_kind(step)
        if made < real:
            return REAL
        return MODEL if made < real + model else IN_MODEL

    def counts(self, start: int, end: int) -> tuple[int, ...]:
        """Updates of each kind from agent step `start` to `end`, including those at `end`."""
        period = self.config.real_rollout
        steps = range(-(-start // period) * period, end + 1, period)
        return tuple(
            np.sum([self._by_kind(step) for step in steps] or [(0, 0, 0)], axis=0).tolist()
        )


def replay_settings(config: SimpleConfig) -> ReplaySettings:
    """A replay of all data, and the windows of each kind of update."""
    stack = config.frame_stack
    return ReplaySettings(
        # For each round: its steps, and the final frames of episodes of 20 steps or more.
        capacity=(config.rounds + 1) * (config.round_steps * 21 // 20 + 1) + stack,
        discount=config.discount,
        batch_size=config.model_batch_size,
        contrast_rule=ContrastRule(),
        sequences=(  # of MODEL, REAL, IN_MODEL
            SequenceRule(stack + config.world.target_frames, "within", config.model_batch_size),
            SequenceRule(config.real_rollout + stack - 1, "newest", 1),
            SequenceRule(stack, "starts", config.model_agents),
        ),
        round_steps=config.round_steps,
        all_final_frames=True,
    )


def evaluation_settings(config: SimpleConfig) -> EvaluationSettings:
    """How SimPLe is evaluated: at each temperature; returns at the first one are the scores."""
    return EvaluationSettings(
        config.evaluation_period,
        config.periodic_episodes,
        {
            "policy": f"sampled at temperature {_SCORED}",
            "clip_rewards": False,
            "unfinished_episodes": "count with what they have at the frame limit",
        },
        tuple(name for name in POLICIES if name not in (TRAINING, EVALUATION)),
    )


def resources(config: SimpleConfig) -> Resources:
    """Memory of the largest update.

    The model keeps its logits three times, and the inputs and outputs of its first and last layers
    for the forward and the backward pass. The policy keeps inputs and outputs of its convolutions.
    """
    pixels = config.frame_height * config.frame_width
    world = config.world
    passes = world.target_frames + (config.frame_stack - 1) * (config.model == "stochastic")
    model = 4 * pixels * passes * (3 * 3 * networks.VALUES + 24 * world.filters)
    rollouts = max(
        config.model_agents * (config.model_rollout + config.frame_stack),
        config.real_rollout,
    )
    minibatch = config.minibatch_steps * max(config.model_agents, config.real_agents)
    policy = pixels * (3 * rollouts + 4 * minibatch * (10 * 3 * config.frame_stack + 60))
    in_model = 4 * pixels * config.model_agents * (3 * networks.VALUES + 8 * world.filters)
    return Resources(
        batches_over_runs=False,
        logs_frames=False,
        activation_bytes=max(model * config.model_batch_size, policy + in_model),
    )
