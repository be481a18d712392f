"""Soft actor-critic from pixels or state vectors, with auxiliary tasks, as pure functions of a run.

Which loss reaches which parameters:

    parameters                  critic   auxiliary   actor   temperature
    convolutions, psi             x          x
    critics                       x
    auxiliary tasks' own                     x
    actor, its own embedding                           x
    log temperature                                              x

All losses read the same parameters, so the convolutions of an observation are computed once for
critic, actor and auxiliary tasks. The gradients of actor and temperature are computed in updates
that use them; in the others the losses alone are, for the records.
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import augmentation, types
from rcrl_jax.agents import agent, control_training
from rcrl_jax.agents import soft_actor_critic as losses
from rcrl_jax.agents.sac import model as sac_model
from rcrl_jax.agents.sac import settings as sac_training
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.agents.sac.model import CriticParams, SacParams
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks.policy import mean_action, sample_action
from rcrl_jax.ops import adam, native
from rcrl_jax.tasks import task


class OptimizerStates(NamedTuple):
    """States of three Adam optimisers."""

    critic: optax.OptState  # of the critic's and the auxiliary tasks' parameters
    actor: optax.OptState
    temperature: optax.OptState


def make_agent(
    config: SacConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment.

    Args:
      config: the configuration.
      spec: shape of a frame, and the largest number of action components A of the fleet. A run
        with fewer components keeps the last ones at zero; densities, entropy and exploration
        ignore them.
      makers: of the auxiliary tasks, by name.

    Raises:
      Incompatible: the environment's frames do not fit, or two tasks exclude each other.
    """
    observations = sac_training.observation_format(config, spec)
    pixels = config.observation == "pixels"
    max_num_actions = spec.max_num_actions
    model = sac_model.make_model(config, observations, max_num_actions)

    def crop(key: chex.PRNGKey, observation: jax.Array) -> jax.Array:
        """Crops observations for an update, as configured."""
        if not pixels:
            return observation
        if config.augmentation == "center_crop":
            return augmentation.center_crop(observation, config.crop_size)
        return augmentation.random_crop(key, observation, config.crop_size)

    def encode(params: SacParams, observation: jax.Array) -> jax.Array:
        return model.psi(params.critic, observation)

    parts = task.AgentParts(
        encode,
        model.psi,
        control_training.join,
        crop,
        psi_size=model.psi_size,
        phi_size=model.psi_size + max_num_actions,
        contrast_rule=control_training.contrast_rule(config, spec.action_repeat),
        batch_size=config.batch_size,
    )
    tasks = {name: make(parts, config) for name, make in makers.items()}
    needs = task.needs_of(tasks, parts)
    optimizer = adam.make_adam(config.learning_rate)
    temperature_optimizer = adam.make_adam(
        config.temperature_learning_rate, b1=config.temperature_beta1
    )

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        del run  # the networks do not depend on the run
        keys = jax.random.split(key, 7)
        agent_params = model.init(keys[:5])
        params = types.TrainableParams(
            agent_params,
            task.init_params(tasks, keys[5]),
        )
        opt_state = OptimizerStates(
            optimizer.init((agent_params.critic, params.auxiliary)),
            optimizer.init(agent_params.actor),
            temperature_optimizer.init(agent_params.log_temperature),
        )
        return types.LearnerState(
            params=params,
            target_params=agent_params.critic,
            opt_state=opt_state,
            key=jax.random.key_data(keys[6]),
            updates=jnp.zeros((), jnp.int32),
            task_state=task.init_states(tasks, params.auxiliary, params.agent),
        )

    def act(run, params: SacParams, observation, memory, key, policy_name: str, step):
        if pixels:
            observation = augmentation.center_crop(observation, config.crop_size)
        policy = model.policy(params.actor, model.features(params.critic, observation))
        action_mask = control_training.action_mask(run, max_num_actions)
        if policy_name == agent.EVALUATION:
            return mean_action(policy, action_mask), memory
        noise_key, random_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, policy.mean.shape)
        sampled, _ = sample_action(policy, noise, action_mask)
        # Uniform before learning: samples of an untrained policy hardly vary.
        at_random = control_training.uniform_action(random_key, len(sampled), action_mask)
        return jnp.where(step < schedule.first_step, at_random, sampled), memory

    def embed_center(params: SacParams, pairs: types.Pairs) -> jax.Array:
        """phi(s, a) of centre crops, for use outside updates."""
        observation = pairs.observation
        if pixels:
            observation = augmentation.center_crop(observation, config.crop_size)
        return control_training.join(params, encode(params, observation), pairs.action)

    def loss(learned, state: types.LearnerState, run, batch, sampled, next_key, tasks_key):
        """Of critic and auxiliary tasks, by their parameters."""
        critic, auxiliary_params = learned
        fixed, target = state.params.agent, state.target_params
        temperature = jnp.exp(fixed.log_temperature)
        action_mask = control_training.action_mask(run, max_num_actions)
        t = batch.transitions

        policy_t = model.policy(fixed.actor, model.features(fixed.critic, t.next_observation))
        noise = jax.random.normal(next_key, policy_t.mean.shape)
        a_t, log_density_t = sample_action(policy_t, noise, action_mask)
        q_t = model.values(target, model.psi(target, t.next_observation), a_t)
        v_t = losses.soft_value(q_t, log_density_t, temperature)
        task_keys = [jax.random.fold_in(tasks_key, i) for i in range(len(tasks))]
        wanted, structure = jax.tree.flatten(task.images_of(tasks, batch, sampled, task_keys))
        psi_tm1, features_tm1, of_wanted = model.encode(critic, t.observation, *wanted)
        q_tm1 = model.values(critic, psi_tm1, t.action)
        squared_errors = losses.critic_loss(q_tm1, t.reward, t.discount, v_t)
        loss_critic = jnp.mean(t.weight * squared_errors)
        metrics = {
            "loss_critic": loss_critic,
            "temperature": temperature,
            "q_mean": jnp.mean(q_tm1),
        }
        agent_params = fixed._replace(critic=critic)
        view = task.UpdateView(agent_params, target, psi_tm1, batch, sampled)
        images = jax.tree.unflatten(structure, of_wanted)
        auxiliary = task.total_loss(
            tasks, auxiliary_params, view, images, state.task_state, run.constants, task_keys
        )
        transition_loss = squared_errors + auxiliary.in_priorities
        metrics |= auxiliary.metrics
        return loss_critic + auxiliary.total, (transition_loss, metrics, (psi_tm1, features_tm1))

    def actor_loss(learned, critic: CriticParams, run, encoded, key):
        """Of actor and temperature, by their parameters; `encoded` are psi and features."""
        actor_params, log_temperature = learned
        psi, features = encoded
        policy = model.policy(actor_params, features)
        noise = jax.random.normal(key, policy.mean.shape)
        action_mask = control_training.action_mask(run, max_num_actions)
        action, log_density = sample_action(policy, noise, action_mask)
        q = model.values(critic, psi, action)
        temperature = jnp.exp(log_temperature)
        loss_actor = jnp.mean(losses.actor_loss(q, log_density, temperature))
        loss_temperature = jnp.mean(
            losses.temperature_loss(log_temperature, log_density, -run.num_valid_actions)
        )
        metrics = {
            "loss_actor": loss_actor,
            "loss_temperature": loss_temperature,
            "entropy": -jnp.mean(log_density),
        }
        return loss_actor + loss_temperature, metrics

    def cropped(batch: types.Batch, key: chex.PRNGKey) -> types.Batch:
        """Crops every observation of a batch, each at its own place."""
        keys = jax.random.split(key, 5)
        t = batch.transitions._replace(
            observation=crop(keys[0], batch.transitions.observation),
            next_observation=crop(keys[1], batch.transitions.next_observation),
        )
        contrast = batch.contrast
        if contrast is not None:
            contrast = types.ContrastBatch(
                *(
                    pairs._replace(observation=crop(pairs_key, pairs.observation))
                    for pairs, pairs_key in zip(contrast, keys[2:], strict=True)
                )
            )
        return batch._replace(transitions=t, contrast=contrast)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0):
        del kind  # there is one
        key, crop_key, loss_key = jax.random.split(native.wrap_key(state.key), 3)
        next_key, actor_key, tasks_key = jax.random.split(loss_key, 3)
        updates = state.updates + 1
        actor_due = updates % config.actor_period == 0
        target_due = updates % config.target_period == 0
        p, o = state.params, state.opt_state
        learned = p.agent.critic, p.auxiliary
        gradients, (transition_loss, metrics, encoded) = jax.grad(loss, has_aux=True)(
            learned, state, run, cropped(batch, crop_key), batch, next_key, tasks_key
        )
        of_actor = p.agent.actor, p.agent.log_temperature
        (actor_gradient, temperature_gradient), actor_metrics = jax.lax.cond(
            actor_due,
            jax.grad(actor_loss, has_aux=True),
            lambda own, *rest: (jax.tree.map(jnp.zeros_like, own), actor_loss(own, *rest)[1]),
            of_actor, p.agent.critic, run, encoded, actor_key,
        )  # fmt: skip
        metrics |= actor_metrics
        (critic, auxiliary), critic_opt, metrics["gradient_norm"] = optimizer.step(
            gradients, o.critic, learned
        )
        actor_params, actor_opt, _ = optimizer.step(
            actor_gradient, o.actor, p.agent.actor, actor_due
        )
        log_temperature, temperature_opt, _ = temperature_optimizer.step(
            temperature_gradient, o.temperature, p.agent.log_temperature, actor_due
        )
        encoder_tau, critic_tau = config.encoder_tau * target_due, config.critic_tau * target_due
        taus = CriticParams(encoder_tau, encoder_tau, critic_tau)
        target = CriticParams(*map(optax.incremental_update, critic, state.target_params, taus))
        params = types.TrainableParams(SacParams(critic, actor_params, log_temperature), auxiliary)
        state = types.LearnerState(
            params=params,
            target_params=target,
            opt_state=OptimizerStates(critic_opt, actor_opt, temperature_opt),
            key=jax.random.key_data(key),
            updates=updates,
            task_state=task.next_states(tasks, state.task_state, params),
        )
        return state, types.UpdateResult(transition_loss, metrics)

    schedule = agent.Schedule(config.learn_start, config.update_period)
    return agent.Agent(
        init=init,
        act=act,
        update=update,
        embed=embed_center,
        compare=agent.make_compare(embed_center, tasks),
        run_constants=functools.partial(task.run_constants, tasks),
        action=jax.ShapeDtypeStruct((max_num_actions,), np.float32),
        observations=observations,
        protocol=control_training.environment_protocol(config.frame_stack),
        replay=control_training.replay_settings(config, needs.contrast_rule),
        schedule=schedule,
        evaluation=control_training.evaluation_settings(config, "squashed mean"),
        resources=sac_training.resources(config, needs),
    )
