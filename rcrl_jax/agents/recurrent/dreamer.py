"""Dreamer, its first version (Hafner et al., 2020), as pure functions of a run.

Which loss reaches which parameters:

    parameters            world model   auxiliary   policy's returns   value
    world model                x            x
    auxiliary tasks' own                    x
    policy                                                 x
    value                                                               x

The policy's loss is differentiated through the imagined steps: the world model passes gradients to
actions and is not changed by them. All losses are differentiated in one pass, at the same
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
from rcrl_jax.agents import agent, control_training
from rcrl_jax.agents import world_model_training as training
from rcrl_jax.agents.recurrent import loss as losses
from rcrl_jax.agents.recurrent import model as recurrent_model
from rcrl_jax.agents.recurrent.config import DreamerConfig
from rcrl_jax.agents.recurrent.model import Memory
from rcrl_jax.agents.recurrent.network import Latent
from rcrl_jax.augmentation import quantise
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks import world_model
from rcrl_jax.networks.policy import Policy, sample_action
from rcrl_jax.ops import adam, native
from rcrl_jax.replay.settings import SequenceRule
from rcrl_jax.tasks import task

_ACTOR_LAYERS, _VALUE_LAYERS, _REWARD_LAYERS = 4, 3, 2
_LAYERS_KEPT = 30  # outputs that an update keeps of each imagined state, in layers of `head_size`


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


def make_agent(
    config: DreamerConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment.

    Args:
      config: the configuration.
      spec: shape of a frame, and the largest number of action components A of the fleet. A run
        with fewer components keeps the last ones at zero.
      makers: of the auxiliary tasks, by name.

    Raises:
      Incompatible: the environment's frames do not fit, two tasks exclude each other, or a task
        is weighted by importance or has the RL batch as its anchors.
    """
    observations = training.observation_format(config, spec, config.context)
    world = recurrent_model.make_recurrent_model(
        config, spec, makers, activation=nn.elu, reward_layers=_REWARD_LAYERS,
        preprocess=functools.partial(quantise, levels=256) if config.pixel_noise else _centre,
    )  # fmt: skip
    network, num_actions = world.network, spec.max_num_actions
    actor = world_model.Mlp(config.head_size, _ACTOR_LAYERS, 2 * num_actions, nn.elu)
    critic = world_model.Mlp(config.head_size, _VALUE_LAYERS, 1, nn.elu)
    model_optimizer, actor_optimizer, value_optimizer = (
        adam.make_tensorflow_adam(rate, eps=config.adam_epsilon, max_norm=config.max_gradient_norm)
        for rate in (
            config.model_learning_rate,
            config.actor_learning_rate,
            config.value_learning_rate,
        )
    )

    def policy_of(params: types.Params, feature: jax.Array) -> Policy:
        raw = actor.apply(params, feature)
        return losses.dreamer_policy(raw, config.mean_scale, config.initial_std)

    def value_of(params: types.Params, feature: jax.Array) -> jax.Array:
        return critic.apply(params, feature)[..., 0]

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        del run  # the networks do not depend on the run
        keys = jax.random.split(key, 5)
        feature = jnp.zeros((1, config.stoch_size + config.deter_size))
        own = DreamerParams(
            world.init(keys[0]), actor.init(keys[1], feature), critic.init(keys[2], feature)
        )
        params = types.TrainableParams(
            own,
            task.init_params(world.tasks, keys[3]),
        )
        return types.LearnerState(
            params=params,
            target_params=(),
            opt_state=OptimizerStates(
                model_optimizer.init((own.model, params.auxiliary)),
                actor_optimizer.init(own.actor),
                value_optimizer.init(own.value),
            ),
            key=jax.random.key_data(keys[4]),
            updates=jnp.zeros((), jnp.int32),
            task_state=task.init_states(world.tasks, params.auxiliary, own.model),
        )

    def act(run, params: DreamerParams, observation, memory: Memory, key, policy_name: str, step):
        filter_key, action_key, exploration_key = jax.random.split(key, 3)
        mask = control_training.action_mask(run, num_actions)
        latent = world.filter(params.model, memory, observation, filter_key)
        policy = policy_of(params.actor, latent.feature)
        if policy_name == agent.EVALUATION:
            shape = (config.mode_samples, *policy.mean.shape)
            noise = jax.random.normal(action_key, shape)
            action = losses.most_likely_action(policy, noise, mask)
        else:
            noise = jax.random.normal(action_key, policy.mean.shape)
            sampled, _ = sample_action(policy, noise, mask)
            action = recurrent_model.explore(
                sampled, mask, exploration_key, std=config.exploration_std,
                at_random=step < schedule.first_step,
            )  # fmt: skip
        return action, Memory(latent, action)

    def imagine(
        params: DreamerParams, start: Latent, mask: jax.Array, key
    ) -> tuple[jax.Array, jax.Array]:
        """What follows the states `start [N]` under the policy.

        Returns:
          Features of the states `[H, N, d]`; log-densities of the actions that led to them
          `[H, N]`, which pass no gradient.
        """
        fixed = jax.lax.stop_gradient

        def step(latent: Latent, key):
            action_key, latent_key = jax.random.split(key)
            policy = policy_of(params.actor, fixed(latent.feature))
            noise = jax.random.normal(action_key, policy.mean.shape)
            action, log_density = sample_action(policy, noise, mask)
            noise = jax.random.normal(latent_key, latent.sample.shape)
            latent = network.apply(fixed(params.model), latent, action, noise, method="imagine")
            return latent, (latent.feature, fixed(log_density))

        return jax.lax.scan(step, start, jax.random.split(key, config.horizon))[1]

    def loss(params: types.TrainableParams, state, run, batch, key):
        model_key, behaviour_key = jax.random.split(key)
        fixed, own = jax.lax.stop_gradient, params.agent
        model = world.loss(own.model, params.auxiliary, state.task_state, run, batch, model_key)
        start = jax.tree.map(lambda x: fixed(x).reshape(-1, x.shape[-1]), model.latents)
        mask = control_training.action_mask(run, num_actions)
        features, log_density = imagine(own, start, mask, behaviour_key)
        reward = network.apply(fixed(own.model), features, method="reward")
        values = value_of(fixed(own.value), features)
        returns = losses.lambda_returns(
            reward[:-1], config.discount, values[1:], config.return_lambda
        )
        weights = losses.discount_weights(len(returns), config.discount)[:, None]
        loss_actor = -jnp.mean(weights * returns)
        # Without the barrier the product reads a slice, for which XLA on a GPU finds no tiles.
        imagined = jax.lax.optimization_barrier(fixed(features[:-1]))
        predicted = value_of(own.value, imagined)
        loss_value = -jnp.mean(weights * world_model.log_normal(fixed(returns), predicted))
        metrics = model.metrics | {
            "loss_model": model.total,
            "loss_actor": loss_actor,
            "loss_value": loss_value,
            "imagined_reward": jnp.mean(reward),
            "imagined_return": jnp.mean(returns),
            "entropy": -jnp.mean(log_density),
        }
        return model.total + loss_actor + loss_value, (model.window_loss, metrics)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0):
        del kind  # there is one
        key, loss_key = jax.random.split(native.wrap_key(state.key))
        g, (window_loss, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state, run, batch, loss_key
        )
        p, o = state.params, state.opt_state
        (model, auxiliary), model_opt, metrics["gradient_norm"] = model_optimizer.step(
            (g.agent.model, g.auxiliary), o.model, (p.agent.model, p.auxiliary)
        )
        actor_params, actor_opt, metrics["gradient_norm_actor"] = actor_optimizer.step(
            g.agent.actor, o.actor, p.agent.actor
        )
        value_params, value_opt, metrics["gradient_norm_value"] = value_optimizer.step(
            g.agent.value, o.value, p.agent.value
        )
        params = types.TrainableParams(DreamerParams(model, actor_params, value_params), auxiliary)
        task_state = task.next_states(world.tasks, state.task_state, params._replace(agent=model))
        state = types.LearnerState(
            params=params,
            target_params=(),
            opt_state=OptimizerStates(model_opt, actor_opt, value_opt),
            key=jax.random.key_data(key),
            updates=state.updates + 1,
            task_state=task_state,
        )
        return state, types.UpdateResult(window_loss, metrics)

    def embed(params: DreamerParams, pairs: types.Pairs) -> jax.Array:
        return world.embed(params.model, pairs)

    schedule = training.schedule(config, spec.action_repeat, config.first_updates)
    imagined = config.batch_size * config.sequence_length * config.horizon
    return agent.Agent(
        init=init,
        act=act,
        update=update,
        embed=embed,
        compare=agent.make_compare(embed, world.tasks),
        run_constants=functools.partial(task.run_constants, world.tasks),
        action=jax.ShapeDtypeStruct((num_actions,), np.float32),
        observations=observations,
        protocol=control_training.environment_protocol(config.context),
        replay=control_training.replay_settings(
            config, world.needs.contrast_rule, SequenceRule(config.sequence_length, "leads")
        ),
        schedule=schedule,
        evaluation=control_training.evaluation_settings(
            config, f"the densest of {config.mode_samples} samples"
        ),
        resources=world.resources(config, behaviour=imagined * _LAYERS_KEPT * config.head_size),
        init_memory=world.init_memory,
    )


def _centre(frames: jax.Array, key: chex.PRNGKey | None) -> jax.Array:
    """Pixels in [-0.5, 0.5]."""
    del key
    return frames.astype(jnp.float32) / 255.0 - 0.5
