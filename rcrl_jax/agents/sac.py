"""Soft actor-critic from pixels or state vectors, with auxiliary tasks, as pure functions of a run.

Which loss reaches which parameters:

    parameters                  critic   auxiliary   actor   temperature
    convolutions, psi             x          x
    critics                       x
    auxiliary tasks' own                     x
    actor, its own embedding                           x
    log temperature                                              x

All losses are differentiated in one pass from the same parameters, so the convolutions of an
observation are computed once for critic, actor and auxiliary tasks.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import crops, observations, types
from rcrl_jax.agents import agent
from rcrl_jax.auxiliary import instance_contrast, reconstruction, return_contrast, task
from rcrl_jax.config import SacConfig
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.losses import sac as losses
from rcrl_jax.networks import precision
from rcrl_jax.networks import sac as networks


class CriticParams(NamedTuple):
    """The critic with its encoder; the targets have the same structure."""

    convolutions: types.Params  # empty for state vectors, as is the embedding
    embedding: types.Params
    critics: types.Params


class ActorParams(NamedTuple):
    """The actor on top of the critic's convolutions."""

    embedding: types.Params
    actor: types.Params


class SacParams(NamedTuple):
    """All parameters of the agent."""

    critic: CriticParams
    actor: ActorParams
    log_temperature: jax.Array  # []


class OptimizerStates(NamedTuple):
    """One Adam for each column of the module's table."""

    critic: optax.OptState  # of the critic's and the auxiliary tasks' parameters
    actor: optax.OptState
    temperature: optax.OptState


class Seen(NamedTuple):
    """What an auxiliary task may read of the update it is part of."""

    critic: CriticParams
    target: CriticParams
    psi: jax.Array  # [B, d], embedding of the transitions' observations as the critic sees them
    uncropped: jax.Array  # [B, *obs], the same observations


def make_agent(config: SacConfig, spec: EnvironmentSpec) -> agent.Agent:
    """Makes the agent of a preset for an environment.

    Args:
      config: the preset.
      spec: shape of a frame and room for the components of an action. A run's own number of them
        may be smaller: the others are zero, and no density, entropy or exploration knows of them.

    Raises:
      ValueError: the environment's frames are not those of the preset.
    """
    if tuple(spec.frame_shape) != config.frame_shape:
        raise ValueError(f"frames must be {config.frame_shape}, got {spec.frame_shape}")
    pixels = config.observation == "pixels"
    room = spec.num_actions
    convolutions = networks.Convolutions(config.filters)
    embedding = networks.Embedding(config.embedding_size)
    critics = networks.TwinCritics(config.hidden_size)
    actor = networks.Actor(config.hidden_size, room, config.log_std_min, config.log_std_max)
    layout = observations.layouts_of(config).network
    observation_shape = layout.stack_shape(config.frame_stack)
    if pixels:
        observation_shape = (config.frame_stack, config.crop_size, config.crop_size, 3)
    psi_size = config.embedding_size if pixels else int(np.prod(observation_shape))

    def own_actions(run: types.RunSpec) -> jax.Array:
        """`[A] bool`."""
        return jnp.arange(room) < run.num_actions

    def features_of(critic: CriticParams, observation: jax.Array) -> jax.Array:
        """What actor and critic share: `[N, *obs] -> [N, F]`."""
        if not pixels:
            return observation.reshape(observation.shape[0], -1)
        return convolutions.apply(critic.convolutions, observation)

    def embed(params: types.Params, features: jax.Array) -> jax.Array:
        return embedding.apply(params, features) if pixels else features

    def psi_of(critic: CriticParams, observation: jax.Array) -> jax.Array:
        return embed(critic.embedding, features_of(critic, observation))

    def values(critic: CriticParams, psi: jax.Array, action: jax.Array) -> jax.Array:
        """`[N, d], [N, A] -> [N, 2]`."""
        return critics.apply(critic.critics, jnp.concatenate([psi, action], axis=-1))

    def policy_of(params: ActorParams, features: jax.Array) -> losses.Policy:
        return actor.apply(params.actor, embed(params.embedding, features))

    def crop(key: chex.PRNGKey, observation: jax.Array) -> jax.Array:
        """What the network reads of observations in an update."""
        if not pixels:
            return observation
        if config.augmentation == "center_crop":
            return crops.center_crop(observation, config.crop_size)
        return crops.random_crop(key, observation, config.crop_size)

    tasks = _make_tasks(config, psi_of, psi_size, room, crop)
    adam = optax.adam(config.learning_rate)
    temperature_adam = optax.adam(
        config.temperature_learning_rate, b1=config.temperature_beta1
    )

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        del run  # every task has the same networks
        keys = jax.random.split(key, 7)
        observation = jnp.zeros((1, *observation_shape), layout.dtype)
        conv_params, psi_params, actor_psi_params = {}, {}, {}
        features = observation.reshape(1, -1)
        if pixels:
            features, conv_params = convolutions.init_with_output(keys[0], observation)
            psi_params = embedding.init(keys[1], features)
            actor_psi_params = embedding.init(keys[2], features)
        critic = CriticParams(
            conv_params, psi_params, critics.init(keys[3], jnp.zeros((1, psi_size + room)))
        )
        params = types.TrainableParams(
            SacParams(
                critic,
                ActorParams(actor_psi_params, actor.init(keys[4], jnp.zeros((1, psi_size)))),
                jnp.log(jnp.float32(config.initial_temperature)),
            ),
            {
                name: made.init(jax.random.fold_in(keys[5], i))
                for i, (name, made) in enumerate(tasks.items())
            },
        )
        opt_state = OptimizerStates(
            adam.init((critic, params.auxiliary)),
            adam.init(params.agent.actor),
            temperature_adam.init(params.agent.log_temperature),
        )
        state_key = jax.random.key_data(keys[6])
        zero = jnp.zeros((), jnp.int32)
        return types.LearnerState(params, critic, opt_state, state_key, zero, {})

    def act(run: types.RunSpec, params: SacParams, observation, key, greedy: bool, step):
        chex.assert_rank(observation, 1 + len(observation_shape))
        if pixels:
            observation = crops.center_crop(observation, config.crop_size)
        policy = policy_of(params.actor, features_of(params.critic, observation))
        if greedy:
            return losses.mean_action(policy, own_actions(run))
        noise_key, random_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, policy.mean.shape)
        sampled, _ = losses.sample_action(policy, noise, own_actions(run))
        # A policy that has learnt nothing has next to no spread.
        uniform = jax.random.uniform(random_key, policy.mean.shape, minval=-1.0, maxval=1.0)
        at_random = jnp.where(own_actions(run), uniform, 0.0)
        return jnp.where(step < config.learn_start, at_random, sampled)

    def embed_pairs(params: SacParams, pairs: types.Pairs):
        """phi(s, a) = [psi(s), a], of middle crops."""
        observation = pairs.observation
        if pixels:
            observation = crops.center_crop(observation, config.crop_size)
        return jnp.concatenate([psi_of(params.critic, observation), pairs.action], axis=-1)

    def loss(params: types.TrainableParams, target: CriticParams, run, batch, uncropped, key):
        next_key, actor_key, tasks_key = jax.random.split(key, 3)
        critic, actor_params, log_temperature = params.agent
        fixed = jax.lax.stop_gradient
        temperature, own = fixed(jnp.exp(log_temperature)), own_actions(run)
        t = batch.transitions

        policy_t = policy_of(fixed(actor_params), features_of(fixed(critic), t.next_observation))
        noise = jax.random.normal(next_key, policy_t.mean.shape)
        a_t, log_density_t = losses.sample_action(policy_t, noise, own)
        q_t = values(target, psi_of(target, t.next_observation), a_t)
        target_q = losses.soft_target(t.reward, t.discount, q_t, log_density_t, temperature)
        features_tm1 = features_of(critic, t.observation)
        psi_tm1 = embed(critic.embedding, features_tm1)
        q_tm1 = values(critic, psi_tm1, t.action)
        squared_errors = losses.critic_loss(q_tm1, target_q)
        loss_critic = jnp.mean(t.weight * squared_errors)

        policy = policy_of(actor_params, fixed(features_tm1))
        noise = jax.random.normal(actor_key, policy.mean.shape)
        action, log_density = losses.sample_action(policy, noise, own)
        q = values(fixed(critic), fixed(psi_tm1), action)
        loss_actor = jnp.mean(losses.actor_loss(q, log_density, temperature))
        loss_temperature = jnp.mean(
            losses.temperature_loss(log_temperature, log_density, -run.num_actions)
        )
        total = loss_critic + loss_actor + loss_temperature
        metrics = {
            "loss_critic": loss_critic,
            "loss_actor": loss_actor,
            "loss_temperature": loss_temperature,
            "temperature": temperature,
            "entropy": -jnp.mean(log_density),
            "q_mean": jnp.mean(q_tm1),
        }
        seen = Seen(critic, target, psi_tm1, uncropped)
        for i, (name, made) in enumerate(tasks.items()):
            value, task_metrics = made.loss(
                params.auxiliary[name], seen, None, batch, jax.random.fold_in(tasks_key, i)
            )
            total += made.weight(run) * value
            metrics |= {f"loss_{name}": value} | task_metrics
        return total, (squared_errors, metrics)

    def cropped(batch: types.Batch, key: chex.PRNGKey) -> types.Batch:
        """Every observation of a batch at a place of its own."""
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
        return types.Batch(t, contrast)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch):
        key, crop_key, loss_key = jax.random.split(jax.random.wrap_key_data(state.key), 3)
        gradients, (squared_errors, metrics) = jax.grad(loss, has_aux=True)(
            state.params,
            state.target_params,
            run,
            cropped(batch, crop_key),
            batch.transitions.observation,
            loss_key,
        )
        updates = state.updates + 1
        actor_due = updates % config.actor_period == 0
        target_due = updates % config.target_period == 0
        p, g, o = state.params, gradients, state.opt_state
        (critic, auxiliary), critic_opt = _step(
            adam, (g.agent.critic, g.auxiliary), o.critic, (p.agent.critic, p.auxiliary)
        )
        actor_params, actor_opt = _step_if(actor_due, adam, g.agent.actor, o.actor, p.agent.actor)
        log_temperature, temperature_opt = _step_if(
            actor_due,
            temperature_adam,
            g.agent.log_temperature,
            o.temperature,
            p.agent.log_temperature,
        )
        encoder_tau, critic_tau = config.encoder_tau * target_due, config.critic_tau * target_due
        target = optax.incremental_update(critic, state.target_params, encoder_tau)
        target = target._replace(
            critics=optax.incremental_update(
                critic.critics, state.target_params.critics, critic_tau
            )
        )
        metrics["gradient_norm"] = optax.tree.norm((g.agent.critic, g.auxiliary))
        state = types.LearnerState(
            types.TrainableParams(SacParams(critic, actor_params, log_temperature), auxiliary),
            target,
            OptimizerStates(critic_opt, actor_opt, temperature_opt),
            jax.random.key_data(key),
            updates,
            state.task_state,  # the tasks keep nothing: CURL's keys come from the target encoder
        )
        return state, types.UpdateResult(squared_errors, metrics)

    return agent.Agent(
        init,
        precision.at_precision(act, config.precision),
        precision.at_precision(update, config.precision),
        precision.at_precision(embed_pairs, config.precision),
        precision.at_precision(agent.make_compare(embed_pairs, tasks), config.precision),
        action=jax.ShapeDtypeStruct((room,), np.float32),
        batches_over_runs=not pixels,
        image_bytes=_image_bytes(config) if pixels else 8 * config.hidden_size * 4,
    )


def _step(optimizer: optax.GradientTransformation, gradients: Any, opt_state: Any, params: Any):
    deltas, opt_state = optimizer.update(gradients, opt_state, params)
    return optax.apply_updates(params, deltas), opt_state


def _step_if(due: jax.Array, optimizer, gradients, opt_state, params):
    """A step where `due [] bool`; else parameters and moments stay what they were."""
    new = _step(optimizer, gradients, opt_state, params)
    return jax.tree.map(lambda a, b: jnp.where(due, a, b), new, (params, opt_state))


def _make_tasks(
    config: SacConfig,
    psi_of: Callable[[CriticParams, jax.Array], jax.Array],
    psi_size: int,
    room: int,
    crop: Callable[[chex.PRNGKey, jax.Array], jax.Array],
) -> dict[str, task.AuxiliaryTask]:
    """The tasks by name; the agent's parameters that they are given are a `Seen`."""

    def embed_pairs(seen: Seen, observation, action):
        """The state-action embedding phi(s, a) = [psi(s), a]."""
        return jnp.concatenate([psi_of(seen.critic, observation), action], axis=-1)

    makers = {
        "return_contrast": lambda: return_contrast.make_return_contrast(
            embed_pairs,
            psi_size + room,
            config.discriminator_hidden,
            discriminator_input=config.discriminator_input,
            discriminator_layers=config.discriminator_layers,
            discriminator_norm=config.discriminator_norm,
            loss_form=config.contrast_loss,
            weight=config.auxiliary_weight,
        ),
        "curl": lambda: instance_contrast.make_instance_contrast(
            lambda seen, batch: seen.psi,
            lambda seen, key: psi_of(seen.target, crop(key, seen.uncropped)),
            psi_size,
            config.auxiliary_weight,
        ),
        "reconstruction": lambda: reconstruction.make_reconstruction(
            lambda seen, observation: seen.psi,
            networks.Decoder(config.filters, config.crop_size, 3 * config.frame_stack),
            psi_size,
            config.latent_penalty,
            config.decoder_weight_decay,
            config.auxiliary_weight,
        ),
    }
    return {name: makers[name]() for name in config.tasks}


def _image_bytes(config: SacConfig) -> int:
    """Pixels and all convolutions' outputs of an image, twice: forwards and backwards."""
    pixels = config.crop_size**2 * 3 * config.frame_stack
    outputs = sum(side**2 for side in networks.conv_sizes(config.crop_size)) * config.filters
    return 4 * (2 * pixels + 2 * outputs)
