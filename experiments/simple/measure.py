"""Measures what a trained SimPLe knows of its game: the model on held-out rollouts, the policy.

**Likelihood.** The model reads the C true frames before a rollout, the rollout's actions, and then
its own most likely frames, as when the policy learns in the model. So the product of the pixels'
probabilities over K steps is a distribution over K frames, given start and actions. Predictors
without dynamics give such a distribution, too: they copy the last true frame, or read a histogram
that was fitted on other rollouts of the same kind of play.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments.simple.rollouts import Predictors, Rollouts, fit, log_likelihoods, play
from rcrl_jax import types, words
from rcrl_jax.agents.simple import model as simple_model
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.ops import precision
from rcrl_jax.training import evaluation, nulls
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.nulls import Scripted, uniform_player, with_error
from rcrl_jax.training.plan import Plan

LENGTH = 10
"""K, steps of a rollout."""
HELD_OUT, FITTED = 128, 256
"""Rollouts of a comparison, and others on which the predictors without dynamics are fitted."""
_STARTS = 200  # rollouts start before this agent step of their episode
_AT_ONCE = 16  # rollouts that the model predicts at a time


class RolloutScores(NamedTuple):
    """How well the model predicts N rollouts; each field `[N, K]`."""

    pixels: np.ndarray  # log-likelihood of all pixels of a frame [nats]
    changed: np.ndarray  # pixels of one colour that differ from the frame before
    changed_right: np.ndarray  # how many of these the most likely frame has right
    reward: np.ndarray  # log-likelihood of the reward's sign [nats]
    reward_right: np.ndarray  # whether the most likely sign is the true one


def make_scorer(config: SimpleConfig, num_actions: int) -> Callable[..., RolloutScores]:
    """Makes `(params, rollouts) -> RolloutScores`, open loop, for the deterministic model.

    The stochastic model has no likelihood in closed form, because its bits are latent.
    """
    world = simple_model.make_deterministic(config, num_actions)

    def score_batch(params: types.Params, rollouts: Rollouts) -> RolloutScores:
        def step(stacks, inputs):
            action, before, frame, reward = inputs
            prediction, _ = world.step(params, (), stacks, action, None)
            surprise = optax.softmax_cross_entropy_with_integer_labels
            changed = frame != before
            right = prediction.frame == frame
            scores = RolloutScores(
                -surprise(prediction.pixels, frame.astype(jnp.int32)).sum((1, 2, 3)),
                changed.sum((1, 2, 3)),
                (changed & right).sum((1, 2, 3)),
                -surprise(prediction.reward, reward.astype(jnp.int32) + 1),
                prediction.sign == reward,
            )
            return jnp.concatenate([stacks[:, 1:], prediction.frame[:, None]], axis=1), scores

        before = jnp.concatenate([rollouts.stack[:, -1:], rollouts.frame[:, :-1]], axis=1)
        inputs = rollouts.action, before, rollouts.frame, rollouts.reward
        by_time = jax.tree.map(lambda x: x.swapaxes(0, 1), inputs)
        _, scores = jax.lax.scan(step, rollouts.stack.astype(jnp.float32), by_time)
        return jax.tree.map(lambda x: x.swapaxes(0, 1), scores)

    score_batch = jax.jit(precision.at_precision(score_batch, config.precision))

    def score(params: types.Params, rollouts: Rollouts) -> RolloutScores:
        parts = [
            score_batch(params, jax.tree.map(lambda x, at=at: x[at : at + _AT_ONCE], rollouts))
            for at in range(0, len(rollouts.action), _AT_ONCE)
        ]
        return jax.tree.map(lambda *x: np.concatenate(x), *parts)

    return score


def compare(scores: RolloutScores, predictors: Predictors, rollouts: Rollouts) -> dict[str, Any]:
    """Compares a model with the predictors without dynamics on the same rollouts.

    Log-likelihoods are means over rollouts [nats], of all steps or by step. Differences are to the
    best predictor, with the standard error over rollouts.
    """
    pixels = {"model": scores.pixels, **log_likelihoods(predictors, rollouts)}
    totals = {name: values.sum(1) for name, values in pixels.items()}
    best = max((name for name in totals if name != "model"), key=lambda name: totals[name].mean())
    step, sign = np.arange(rollouts.reward.shape[1]), rollouts.reward + 1
    of_reward = {"model": scores.reward, "base_rate": np.log(predictors.reward)[step, sign]}
    right = {"model": scores.reward_right, "base_rate": sign == predictors.reward.argmax(1)}
    with np.errstate(invalid="ignore"):  # where no pixel has changed, the share is not a number
        changed_right = scores.changed_right.sum() / scores.changed.sum()
        changed_right_by_step = scores.changed_right.sum(0) / scores.changed.sum(0)
    return {
        "rollouts": len(sign),
        "pixels": {
            "log_likelihood": {name: values.mean() for name, values in totals.items()},
            "by_step": {name: values.mean(0) for name, values in pixels.items()},
            "best_null": best,
            "difference": with_error(totals["model"] - totals[best]),
        },
        "changing_pixels": {
            "share": scores.changed.sum() / rollouts.frame.size,
            "right": changed_right,
            "right_by_step": changed_right_by_step,
        },
        "reward": {
            "log_likelihood": {name: values.sum(1).mean() for name, values in of_reward.items()},
            "difference": with_error((of_reward["model"] - of_reward["base_rate"]).sum(1)),
            "right": {name: values.mean() for name, values in right.items()},
        },
    }


def measure_model(plan: Plan, fleet: Fleet, params: types.Params) -> dict[str, Any]:
    """Compares the model of a finished run with the predictors, in two kinds of play.

    Parameters have a leading axis of size 1.

    Returns:
      Kind of play -> what `compare` returns. `policy` plays as in training, so its frames are like
      those that the policy meets in the model. `uniform` draws all actions alike, so training does
      not change it.
    """
    score = make_scorer(plan.config, int(fleet.num_valid_actions[0]))
    of_model = jax.tree.map(lambda x: x[0], params.model)
    found = {}
    for name, player in (("policy", fleet), ("uniform", uniform_player(fleet))):
        held_out, fitted = (
            _gather(plan, player, params, plan.total_steps + 1 + i, number)
            for i, number in enumerate((HELD_OUT, FITTED))
        )
        found[name] = compare(score(of_model, held_out), fit(fitted), held_out)
    return found


def _gather(
    plan: Plan, player: Fleet | Scripted, params: types.Params, purpose: int, number: int
) -> Rollouts:
    """Rollouts of separate episodes; `purpose` seeds them, as the step seeds an evaluation."""
    seeds = evaluation.evaluation_seeds(plan.seeds, purpose, number)
    environment = AgentEnvironment(
        plan.make_environment(seeds), player.agent.protocol.for_evaluation()
    )
    rng = np.random.default_rng((*plan.seeds, purpose))
    starts = rng.integers(plan.config.frame_stack - 1, _STARTS, number)
    return play(environment, player, params, (purpose,), starts, LENGTH)


def measure_play(plan: Plan, fleet: Fleet, returns: np.ndarray) -> dict[str, Any]:
    """Compares the returns `[E]` of a finished run's final evaluation; see `nulls.measure`."""
    games = evaluation.Games(plan.make_environment, plan.total_steps, range(len(returns)))
    play = nulls.play_of(fleet, games, evaluation.evaluate)
    (found,) = nulls.measure(fleet, np.asarray(returns)[None], play)
    return found


def report(found: Mapping[str, Any]) -> list[str]:
    """What `measure_model` and `measure_play` found, as JSON has it, in lines for a terminal."""
    lines = []
    for name, one in found["model"].items():
        for what, unit in (("pixels", "of the frames"), ("reward", "of the rewards")):
            mean, error = one[what]["difference"].values()
            null = one[what].get("best_null", "base rate")
            lines.append(
                f"{name} play, {one['rollouts']} rollouts: log-likelihood {unit} "
                f"{mean:+.1f} ± {error:.1f} nats a rollout beside {null}"
            )
        if (right := one["changing_pixels"]["right"]) is not None:
            lines.append(f"    pixels that change: {right:.1%} right")
    play = found["play"]
    episodes = words.count("episode", play["episodes"])
    lines.append(f"return {play['policy']['mean']:.1f} ({episodes}); {nulls.describe(play)}")
    return lines
