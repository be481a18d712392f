"""Soft actor-critic from pixels or state vectors, with auxiliary tasks, as pure functions of a run.

Which loss reaches which parameters:

    parameters                  critic   auxiliary   actor   temperature
    convolutions, psi             x          x
    critics                       x
    auxiliary tasks' own                     x
    actor, its embedding                               x
    log temperature                                              x

All losses read the same parameters, so the convolutions of an observation are computed once for
critic, actor and auxiliary tasks. If actor and temperature do not step, an update computes their
losses for the records, but no gradients.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import augmentation, observations, types
from rcrl_jax.agents import agent, control
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.agents.sac.network import (
    ActorParams,
    CriticParams,
    SacModel,
    SacParams,
    conv_sizes,
    make_model,
)
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks.policy import mean_action, sample_action
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.ops import adam, native
from rcrl_jax.tasks import task


class ByOptimizer(NamedTuple):
    """States of the three Adam optimisers, or the gradients that they read."""

    critic: optax.OptState  # of the critic's and the auxiliary tasks' parameters
    actor: optax.OptState
    temperature: optax.OptState


class Parts(NamedTuple):
    """What the functions of an agent read, made once from its configuration."""

    config: SacConfig
    model: SacModel
    optimizer: adam.Optimizer  # of critic and tasks, and of the actor
    temperature_optimizer: adam.Optimizer
    tasks: Mapping[str, task.AuxiliaryTask]  # by name
    needs: task.Needs  # what the tasks need
    observations: ObservationFormat
    max_num_actions: int  # A
    schedule: agent.Schedule


def make_agent(
    config: SacConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment; arguments as in `make_parts`."""
    parts = make_parts(config, spec, makers)
    return agent.Agent(
        **agent.bind(parts, parts.tasks, init=init, act=act, update=update, embed=embed),
        action=jax.ShapeDtypeStruct((parts.max_num_actions,), np.float32),
        observations=parts.observations,
        protocol=control.environment_protocol(config.frame_stack),
        replay=control.replay_settings(config, parts.needs.contrast_rule),
        schedule=parts.schedule,
        evaluation=control.evaluation_settings(config, "squashed mean"),
        resources=resources(config, parts.needs),
        halves=agent.Halves(
            functools.partial(gradients, parts),
            functools.partial(step, parts),
            averages_targets=True,
        ),
    )


def make_parts(
    config: SacConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> Parts:
    """Makes networks, optimisers and tasks.

    Args:
      config: the configuration.
      spec: shape of a frame, and the largest number of action components A of the fleet. A run
        with fewer components keeps the last ones at zero; densities, entropy and exploration
        ignore them.
      makers: functions that make the auxiliary tasks, by name.

    Raises:
      Incompatible: the environment's frames do not fit, or two tasks exclude each other.
    """
    formats = observation_format(config, spec)
    model = make_model(config, formats, spec.max_num_actions)
    for_tasks = task.AgentParts(
        lambda params, observation: model.psi(params.critic, observation),
        model.psi,
        control.join,
        functools.partial(crop, dataclasses.replace(config, augmentation="random_crop")),
        psi_size=model.psi_size,
        phi_size=model.psi_size + spec.max_num_actions,
        contrast_rule=control.contrast_rule(config, spec.action_repeat),
        batch_size=config.batch_size,
    )
    tasks = {name: make(for_tasks, config) for name, make in makers.items()}
    return Parts(
        config,
        model,
        adam.make_adam(config.learning_rate),
        adam.make_adam(config.temperature_learning_rate, b1=config.temperature_beta1),
        tasks,
        task.needs_of(tasks, for_tasks),
        formats,
        spec.max_num_actions,
        agent.Schedule(config.learn_start, config.update_period),
    )


def observation_format(config: SacConfig, spec: EnvironmentSpec) -> ObservationFormat:
    """Keeps whole frames in replay and batches, because updates crop every observation.

    Raises:
      Incompatible: the environment's frames do not fit the configuration.
    """
    pixels = config.observation == "pixels"
    size = config.render_size
    dtype = np.uint8 if pixels else np.float32
    observations.check_frames(spec.frame, (size, size, 3) if pixels else ("D",), dtype)
    layout = observations.as_rendered(spec.frame.shape, dtype)
    return ObservationFormat.uniform(config.frame_stack, layout)


def resources(config: SacConfig, needs: task.Needs) -> agent.Resources:
    """Memory of an update's images: two per transition, three per anchor, and those of tasks.

    Pixels and outputs of all convolutions count twice: for the forward and the backward pass.
    """
    images = (2 + needs.encoded) * config.batch_size + 3 * needs.contrast_rule.number
    if config.observation == "state":
        size = images * 8 * config.hidden_size * 4
        return agent.Resources(batches_over_runs=True, logs_frames=False, activation_bytes=size)
    pixels = config.crop_size**2 * 3 * config.frame_stack
    outputs = sum(side**2 for side in conv_sizes(config.crop_size)) * config.filters
    return agent.Resources(
        batches_over_runs=False,
        logs_frames=config.replay.resumed_frames == "stored",
        activation_bytes=images * 4 * (2 * pixels + 2 * outputs),
    )


def init(
    parts: Parts,
    run: types.RunSpec,
    key: chex.PRNGKey,
    initial: Mapping[str, jax.Array] | None = None,
) -> types.LearnerState:
    """The state before the first update; see `Agent.init`."""
    del run  # the networks do not depend on the run
    keys = jax.random.split(key, 7)
    agent_params = agent.begin_with(parts.model.init(keys[:5]), initial)
    params = types.TrainableParams(agent_params, task.init_params(parts.tasks, keys[5]))
    opt_state = ByOptimizer(
        parts.optimizer.init((agent_params.critic, params.auxiliary)),
        parts.optimizer.init(agent_params.actor),
        parts.temperature_optimizer.init(agent_params.log_temperature),
    )
    return agent.first_state(parts.tasks, params, agent_params.critic, opt_state, keys[6])


def act(
    parts: Parts,
    run: types.RunSpec,
    params: SacParams,
    observation: jax.Array,
    memory: Any,
    key: chex.PRNGKey,
    policy_name: str,
    step: jax.Array,
) -> tuple[jax.Array, Any]:
    """Actions `[N, A]` for observations `[N, *obs]`, and the memory unchanged.

    Training samples the policy, evaluation takes its squashed mean; see `Agent.act`.
    """
    observation = center(parts.config, observation)
    policy = parts.model.policy(params.actor, parts.model.features(params.critic, observation))
    action_mask = control.action_mask(run, parts.max_num_actions)
    if policy_name == agent.EVALUATION:
        return mean_action(policy, action_mask), memory
    noise_key, random_key = jax.random.split(key)
    noise = jax.random.normal(noise_key, policy.mean.shape)
    sampled, _ = sample_action(policy, noise, action_mask)
    # Uniform before learning: samples of an untrained policy hardly vary.
    at_random = control.uniform_action(random_key, len(sampled), action_mask)
    return jnp.where(step < parts.schedule.first_step, at_random, sampled), memory


def gradients(
    parts: Parts, run: types.RunSpec, state: types.LearnerState, batch: types.Batch
) -> tuple[ByOptimizer, types.UpdateResult]:
    """Gradients of all losses of a batch as the replay returned it, and the update's result."""
    _, crop_key, loss_key = jax.random.split(native.wrap_key(state.key), 3)
    next_key, actor_key, tasks_key = jax.random.split(loss_key, 3)
    p = state.params
    of_critic, (transition_loss, metrics, encoded) = jax.grad(critic_loss, has_aux=True)(
        (p.agent.critic, p.auxiliary), parts, run, state,
        crop_batch(parts.config, batch, crop_key), batch, next_key, tasks_key,
    )  # fmt: skip
    loss_of_actor = functools.partial(actor_loss, parts)
    (of_actor, of_temperature), actor_metrics = jax.lax.cond(
        (state.updates + 1) % parts.config.actor_period == 0,
        jax.grad(loss_of_actor, has_aux=True),
        lambda params, *rest: (
            jax.tree.map(jnp.zeros_like, params), loss_of_actor(params, *rest)[1]
        ),
        (p.agent.actor, p.agent.log_temperature), p.agent.critic, run, encoded, actor_key,
    )  # fmt: skip
    result = types.UpdateResult(transition_loss, metrics | actor_metrics)
    return ByOptimizer(of_critic, of_actor, of_temperature), result


def step(
    parts: Parts, state: types.LearnerState, computed: tuple[ByOptimizer, types.UpdateResult]
) -> tuple[types.LearnerState, types.UpdateResult]:
    """One step of every optimiser that is due, with what `gradients` returned."""
    config, p, o, updates = parts.config, state.params, state.opt_state, state.updates + 1
    actor_due, target_due = updates % config.actor_period == 0, updates % config.target_period == 0
    found, result = computed
    key, *_ = jax.random.split(native.wrap_key(state.key), 3)

    (critic, auxiliary), critic_opt, norm = parts.optimizer.step(
        found.critic, o.critic, (p.agent.critic, p.auxiliary)
    )
    actor, actor_opt, _ = parts.optimizer.step(found.actor, o.actor, p.agent.actor, actor_due)
    log_temperature, temperature_opt, _ = parts.temperature_optimizer.step(
        found.temperature, o.temperature, p.agent.log_temperature, actor_due
    )
    params = types.TrainableParams(SacParams(critic, actor, log_temperature), auxiliary)
    opt_state = ByOptimizer(critic_opt, actor_opt, temperature_opt)
    encoder_tau, critic_tau = config.encoder_tau * target_due, config.critic_tau * target_due
    taus = CriticParams(encoder_tau, encoder_tau, critic_tau)
    target = CriticParams(*map(optax.incremental_update, critic, state.target_params, taus))
    state = agent.next_state(parts.tasks, state, params, opt_state, key)
    result = result._replace(metrics=result.metrics | {"gradient_norm": norm})
    return state._replace(target_params=target), result


def update(
    parts: Parts, run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0
) -> tuple[types.LearnerState, types.UpdateResult]:
    """One step of every optimiser that is due, on a batch as the replay returned it."""
    del kind  # there is only one
    return step(parts, state, gradients(parts, run, state, batch))


def critic_loss(
    params: tuple[CriticParams, dict[str, types.Params]],
    parts: Parts,
    run: types.RunSpec,
    state: types.LearnerState,
    batch: types.Batch,
    sampled: types.Batch,
    next_key: chex.PRNGKey,
    tasks_key: chex.PRNGKey,
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array], tuple[jax.Array, jax.Array]]]:
    """The loss of critic and auxiliary tasks.

    Args:
      params: of the critic, and of the tasks by name; the gradient is with respect to these.
      parts: of the agent.
      run: number of actions and the tasks' constants.
      state: actor, temperature, targets, and the tasks' states.
      batch: B transitions, cropped.
      sampled: the same transitions as the replay returned them.
      next_key: random key for the actions at the next observations.
      tasks_key: random key for the tasks.

    Returns:
      The loss `[]`; then, without a gradient, the loss of each transition for the priorities `[B]`,
      the metrics, and psi `[B, d]` and features `[B, F]` of the observations.
    """
    model, tasks, t = parts.model, parts.tasks, batch.transitions
    critic, auxiliary_params = params
    fixed, target = state.params.agent, state.target_params
    temperature = jnp.exp(fixed.log_temperature)
    action_mask = control.action_mask(run, parts.max_num_actions)

    policy_t = model.policy(fixed.actor, model.features(fixed.critic, t.next_observation))
    noise = jax.random.normal(next_key, policy_t.mean.shape)
    a_t, log_density_t = sample_action(policy_t, noise, action_mask)
    q_t = model.values(target, model.psi(target, t.next_observation), a_t)
    v_t = control.soft_value(q_t, log_density_t, temperature)

    task_keys = [jax.random.fold_in(tasks_key, i) for i in range(len(tasks))]
    images, structure = jax.tree.flatten(task.images_of(tasks, batch, sampled, task_keys))
    psi_tm1, features_tm1, psi_of_images = model.encode(critic, t.observation, *images)
    psi_of_images = jax.tree.unflatten(structure, psi_of_images)
    q_tm1 = model.values(critic, psi_tm1, t.action)
    squared_errors = control.critic_loss(q_tm1, t.reward, t.discount, v_t)
    loss_critic = jnp.mean(t.weight * squared_errors)
    metrics = {
        "loss_critic": loss_critic,
        "temperature": temperature,
        "q_mean": jnp.mean(q_tm1),
    }

    view = task.UpdateView(fixed._replace(critic=critic), target, psi_tm1, batch, sampled)
    auxiliary = task.total_loss(
        tasks, auxiliary_params, view, psi_of_images, state.task_state, run.constants, task_keys
    )
    transition_loss = squared_errors + auxiliary.in_priorities
    metrics |= auxiliary.metrics
    return loss_critic + auxiliary.total, (transition_loss, metrics, (psi_tm1, features_tm1))


def actor_loss(
    parts: Parts,
    params: tuple[ActorParams, jax.Array],
    critic: CriticParams,
    run: types.RunSpec,
    encoded: tuple[jax.Array, jax.Array],
    key: chex.PRNGKey,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The loss `[]` of actor and temperature, and its metrics.

    Args:
      parts: of the agent.
      params: of the actor, and the log temperature `[]`; the gradient is with respect to these.
      critic: parameters of the critic; they get no gradient.
      run: number of actions of the run.
      encoded: psi `[B, d]` and features `[B, F]` of the observations.
      key: random key for the actions.
    """
    actor_params, log_temperature = params
    psi, features = encoded
    policy = parts.model.policy(actor_params, features)
    noise = jax.random.normal(key, policy.mean.shape)
    action_mask = control.action_mask(run, parts.max_num_actions)
    action, log_density = sample_action(policy, noise, action_mask)
    q = parts.model.values(critic, psi, action)
    temperature = jnp.exp(log_temperature)
    loss_actor = jnp.mean(control.actor_loss(q, log_density, temperature))
    loss_temperature = jnp.mean(
        control.temperature_loss(log_temperature, log_density, -run.num_valid_actions)
    )
    metrics = {
        "loss_actor": loss_actor,
        "loss_temperature": loss_temperature,
        "entropy": -jnp.mean(log_density),
    }
    return loss_actor + loss_temperature, metrics


def embed(parts: Parts, params: SacParams, pairs: types.Pairs) -> jax.Array:
    """phi(s, a) `[N, d]` of centre crops, for use outside updates."""
    psi = parts.model.psi(params.critic, center(parts.config, pairs.observation))
    return control.join(params, psi, pairs.action)


def center(config: SacConfig, observation: jax.Array) -> jax.Array:
    """Centre crops of pixels, for use outside updates; state vectors unchanged."""
    if config.observation == "state":
        return observation
    return augmentation.center_crop(observation, config.crop_size)


def crop(config: SacConfig, key: chex.PRNGKey, observation: jax.Array) -> jax.Array:
    """Crops observations for an update, as configured."""
    if config.observation == "state" or config.augmentation == "center_crop":
        return center(config, observation)
    return augmentation.random_crop(key, observation, config.crop_size)


def crop_batch(config: SacConfig, batch: types.Batch, key: chex.PRNGKey) -> types.Batch:
    """Crops every observation of a batch; random crops are independent."""
    keys = jax.random.split(key, 5)
    t = batch.transitions._replace(
        observation=crop(config, keys[0], batch.transitions.observation),
        next_observation=crop(config, keys[1], batch.transitions.next_observation),
    )
    contrast = batch.contrast
    if contrast is not None:
        contrast = types.ContrastBatch(
            *(
                pairs._replace(observation=crop(config, pairs_key, pairs.observation))
                for pairs, pairs_key in zip(contrast, keys[2:], strict=True)
            )
        )
    return batch._replace(transitions=t, contrast=contrast)
