"""Dreamer, its first version (Hafner et al., 2020), as pure functions of a run.

Which loss reaches which parameters:

    parameters            world model   auxiliary   policy's returns   value
    world model                x            x
    auxiliary tasks' own                    x
    policy                                                 x
    value                                                               x

The gradient of the policy's loss passes through the imagined steps: the world model passes it on to
the actions, but gets no gradient itself. All losses are differentiated in one pass, at the same
parameters.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import types
from rcrl_jax.agents import agent, control, world_models
from rcrl_jax.agents.recurrent import loss as losses
from rcrl_jax.agents.recurrent import model as recurrent_model
from rcrl_jax.agents.recurrent.config import DreamerConfig
from rcrl_jax.agents.recurrent.model import Filtered, RecurrentModel
from rcrl_jax.agents.recurrent.network import Latent
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks.policy import Policy, sample_action
from rcrl_jax.observations import quantise
from rcrl_jax.ops import adam, native
from rcrl_jax.replay.settings import SequenceRule
from rcrl_jax.tasks import task

_ACTOR_LAYERS, _VALUE_LAYERS, _REWARD_LAYERS = 4, 3, 2
_LAYERS_KEPT = 30  # layers of `head_size` whose outputs an update keeps for each imagined state


class DreamerParams(NamedTuple):
    """All parameters of the agent."""

    model: types.Params
    actor: types.Params
    value: types.Params


class OptimizerStates(NamedTuple):
    """States of three Adam optimisers."""

    model: optax.OptState  # of the model's and the auxiliary tasks' parameters
    actor: optax.OptState
    value: optax.OptState


class Parts(NamedTuple):
    """What all functions of the agent read; none of it is an array."""

    config: DreamerConfig
    world: RecurrentModel
    actor: world_models.Mlp
    critic: world_models.Mlp
    model_optimizer: adam.Optimizer
    actor_optimizer: adam.Optimizer
    value_optimizer: adam.Optimizer
    schedule: agent.Schedule


def make_parts(
    config: DreamerConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> Parts:
    """Makes networks, tasks, optimisers and schedule; see `make_agent`."""
    preprocess = functools.partial(quantise, levels=256) if config.pixel_noise else _centre
    world = recurrent_model.make_recurrent_model(
        config, spec, makers, activation=nn.elu, reward_layers=_REWARD_LAYERS, preprocess=preprocess
    )

    def make_optimizer(rate: float) -> adam.Optimizer:
        return adam.make_tensorflow_adam(
            rate, eps=config.adam_epsilon, max_norm=config.max_gradient_norm
        )

    return Parts(
        config=config,
        world=world,
        actor=world_models.Mlp(config.head_size, _ACTOR_LAYERS, 2 * spec.max_num_actions, nn.elu),
        critic=world_models.Mlp(config.head_size, _VALUE_LAYERS, 1, nn.elu),
        model_optimizer=make_optimizer(config.model_learning_rate),
        actor_optimizer=make_optimizer(config.actor_learning_rate),
        value_optimizer=make_optimizer(config.value_learning_rate),
        schedule=world_models.schedule(config, spec.action_repeat, config.first_updates),
    )


def init(
    parts: Parts,
    run: types.RunSpec,
    key: chex.PRNGKey,
    initial: Mapping[str, jax.Array] | None = None,
) -> types.LearnerState:
    """See `Agent.init`."""
    del run  # the networks do not depend on the run
    tasks = parts.world.tasks
    keys = jax.random.split(key, 5)
    feature = jnp.zeros((1, parts.world.network.feature_size))
    drawn = DreamerParams(
        recurrent_model.init_model(parts.world, keys[0]),
        parts.actor.init(keys[1], feature),
        parts.critic.init(keys[2], feature),
    )
    params = agent.begin_with(drawn, initial)
    auxiliary = task.init_params(tasks, keys[3])
    opt_state = OptimizerStates(
        parts.model_optimizer.init((params.model, auxiliary)),
        parts.actor_optimizer.init(params.actor),
        parts.value_optimizer.init(params.value),
    )
    read_by_tasks = types.TrainableParams(params.model, auxiliary)
    state = agent.first_state(tasks, read_by_tasks, (), opt_state, keys[4])
    return state._replace(params=types.TrainableParams(params, auxiliary))


def act(
    parts: Parts, run, params: DreamerParams, observation, memory: Filtered, key, policy_name, step
):
    """See `Agent.act`; the observation is `[N, C, 64, 64, 3] uint8`."""
    config = parts.config
    filter_key, action_key, exploration_key = jax.random.split(key, 3)
    mask = control.action_mask(run, parts.world.num_actions)
    latent = recurrent_model.filter_newest(
        parts.world, params.model, memory, observation, filter_key
    )
    policy = policy_of(parts, params.actor, latent.feature)
    if policy_name == agent.EVALUATION:
        noise = jax.random.normal(action_key, (config.mode_samples, *policy.mean.shape))
        action = losses.most_likely_action(policy, noise, mask)
    else:
        noise = jax.random.normal(action_key, policy.mean.shape)
        sampled, _ = sample_action(policy, noise, mask)
        action = recurrent_model.explore(
            sampled, mask, exploration_key, std=config.exploration_std,
            at_random=step < parts.schedule.first_step,
        )  # fmt: skip
    return action, Filtered(latent, action)


def update(parts: Parts, run, state: types.LearnerState, batch: types.Batch, kind: int = 0):
    """See `Agent.update`."""
    del kind  # there is only one
    key, loss_key = jax.random.split(native.wrap_key(state.key))
    g, (window_loss, metrics) = jax.grad(functools.partial(loss, parts), has_aux=True)(
        state.params, state.task_state, run, batch, loss_key
    )
    p, o = state.params, state.opt_state
    (model, auxiliary), model_state, metrics["gradient_norm"] = parts.model_optimizer.step(
        (g.agent.model, g.auxiliary), o.model, (p.agent.model, p.auxiliary)
    )
    actor, actor_state, metrics["gradient_norm_actor"] = parts.actor_optimizer.step(
        g.agent.actor, o.actor, p.agent.actor
    )
    value, value_state, metrics["gradient_norm_value"] = parts.value_optimizer.step(
        g.agent.value, o.value, p.agent.value
    )
    read_by_tasks = types.TrainableParams(model, auxiliary)
    opt_state = OptimizerStates(model_state, actor_state, value_state)
    state = agent.next_state(parts.world.tasks, state, read_by_tasks, opt_state, key)
    params = types.TrainableParams(DreamerParams(model, actor, value), auxiliary)
    return state._replace(params=params), types.UpdateResult(window_loss, metrics)


def loss(
    parts: Parts, params: types.TrainableParams, task_states, run, batch: types.Batch, key
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """The sum of all losses on windows `[B, L, ...]`.

    Returns:
      The sum `[]`; the model's loss of each window `[B]`; metrics.
    """
    model_key, behaviour_key = jax.random.split(key)
    model = recurrent_model.model_loss(
        parts.world, params.agent.model, params.auxiliary, task_states, run, batch, model_key
    )
    loss_actor, loss_value, metrics = behaviour_loss(
        parts, params.agent, model.latents, run, behaviour_key
    )
    total = model.total + loss_actor + loss_value
    return total, (model.window_loss, model.metrics | metrics)


def behaviour_loss(
    parts: Parts, params: DreamerParams, latents: Latent, run: types.RunSpec, key: chex.PRNGKey
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """The losses `[]` of actor and value, and their metrics.

    Args:
      parts: of the agent.
      params: of the agent; the model gets no gradient.
      latents: `[L, B, ...]`, where imagined sequences start.
      run: the run.
      key: of all noise.
    """
    config, fixed = parts.config, jax.lax.stop_gradient
    start = jax.tree.map(lambda x: fixed(x).reshape(-1, x.shape[-1]), latents)
    mask = control.action_mask(run, parts.world.num_actions)
    features, log_density = imagine(parts, params, start, mask, key)
    reward = parts.world.network.apply(fixed(params.model), features, method="reward")
    values = value_of(parts, fixed(params.value), features)
    returns = losses.lambda_returns(reward[:-1], config.discount, values[1:], config.return_lambda)
    weights = losses.discount_weights(len(returns), config.discount)[:, None]
    loss_actor = -jnp.mean(weights * returns)
    # Without the barrier, the product reads a slice, and XLA on a GPU finds no tiles for it.
    imagined = jax.lax.optimization_barrier(fixed(features[:-1]))
    predicted = value_of(parts, params.value, imagined)
    loss_value = -jnp.mean(weights * world_models.log_normal(fixed(returns), predicted))
    metrics = {
        "loss_actor": loss_actor,
        "loss_value": loss_value,
        "imagined_reward": jnp.mean(reward),
        "imagined_return": jnp.mean(returns),
        "entropy": -jnp.mean(log_density),
    }
    return loss_actor, loss_value, metrics


def imagine(
    parts: Parts, params: DreamerParams, start: Latent, mask: jax.Array, key: chex.PRNGKey
) -> tuple[jax.Array, jax.Array]:
    """Imagines H steps from the latents `start [N, ...]` under the policy.

    Returns:
      Features of the latents `[H, N, d]`; log-densities `[H, N]`, without gradient, of the actions
      that led to the latents.
    """
    network, fixed = parts.world.network, jax.lax.stop_gradient

    def step(latent: Latent, key):
        action_key, latent_key = jax.random.split(key)
        policy = policy_of(parts, params.actor, fixed(latent.feature))
        noise = jax.random.normal(action_key, policy.mean.shape)
        action, log_density = sample_action(policy, noise, mask)
        noise = jax.random.normal(latent_key, latent.sample.shape)
        latent = network.apply(fixed(params.model), latent, action, noise, method="imagine")
        return latent, (latent.feature, fixed(log_density))

    return jax.lax.scan(step, start, jax.random.split(key, parts.config.horizon))[1]


def policy_of(parts: Parts, actor: types.Params, feature: jax.Array) -> Policy:
    """The policy `[..., A]` at features `[..., d]`."""
    raw = parts.actor.apply(actor, feature)
    return losses.dreamer_policy(raw, parts.config.mean_scale, parts.config.initial_std)


def value_of(parts: Parts, value: types.Params, feature: jax.Array) -> jax.Array:
    """The value `[...]` of features `[..., d]`."""
    return parts.critic.apply(value, feature)[..., 0]


def embed(parts: Parts, params: DreamerParams, pairs: types.Pairs) -> jax.Array:
    """See `recurrent_model.embed`."""
    return recurrent_model.embed(parts.world, params.model, pairs)


def make_agent(
    config: DreamerConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment.

    Args:
      config: the configuration.
      spec: shape of a frame, and the largest number of action components A of the fleet. A run
        with fewer components keeps the last ones at zero.
      makers: functions that make the auxiliary tasks, by name.

    Raises:
      Incompatible: the environment's frames do not fit, two tasks exclude each other, or a task
        is weighted by importance or takes the RL batch as anchors.
    """
    observations = world_models.observation_format(config, spec, config.context)
    parts = make_parts(config, spec, makers)
    world = parts.world
    imagined = config.batch_size * config.sequence_length * config.horizon
    return agent.Agent(
        **agent.bind(parts, world.tasks, init=init, act=act, update=update, embed=embed),
        action=jax.ShapeDtypeStruct((world.num_actions,), np.float32),
        observations=observations,
        protocol=control.environment_protocol(config.context),
        replay=control.replay_settings(
            config, world.needs.contrast_rule, SequenceRule(config.sequence_length, "leads")
        ),
        schedule=parts.schedule,
        evaluation=control.evaluation_settings(
            config, f"the densest of {config.mode_samples} samples"
        ),
        resources=recurrent_model.resources(
            world, behaviour=imagined * _LAYERS_KEPT * config.head_size
        ),
        init_memory=functools.partial(recurrent_model.init_memory, world),
    )


def _centre(frames: jax.Array, key: chex.PRNGKey | None) -> jax.Array:
    """Pixels in [-0.5, 0.5]."""
    del key
    return frames.astype(jnp.float32) / 255.0 - 0.5
