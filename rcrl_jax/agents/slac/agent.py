"""SLAC, stochastic latent actor-critic (Lee et al., 2020), as pure functions of a run.

Which loss reaches which parameters:

    parameters            model   critic   actor   temperature
    model                   x
    critics                          x
    actor                                    x
    log temperature                                     x

Critics read latents, the actor encoded frames and actions; neither changes the model. The model
learns alone at first, from a batch of its own. Then all losses are differentiated in one pass, at
the same parameters: the model's batch is a part of that of actor and critics, with the same
latents.

    frame of a window    o0  o1  ...  o6  o7  o8
    action               a0  a1  ...  a6  a7
    actor at o7          o0 to o7, a0 to a6
    actor at o8              o1 to o8, a1 to a7
    critics              z7, a7 and z8
"""

from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import types
from rcrl_jax.agents import agent, control_training
from rcrl_jax.agents import soft_actor_critic as sac_losses
from rcrl_jax.agents import world_model_training as training
from rcrl_jax.agents.slac import network as slac
from rcrl_jax.agents.slac.config import SlacConfig
from rcrl_jax.agents.slac.network import Latents
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks import world_model
from rcrl_jax.networks.policy import sample_action
from rcrl_jax.ops import adam, native
from rcrl_jax.replay.settings import SequenceRule
from rcrl_jax.tasks import task

JOINT, MODEL = range(2)  # kinds of updates


class SlacParams(NamedTuple):
    """All parameters of the agent; the critics have targets."""

    model: types.Params
    actor: types.Params
    critics: types.Params
    log_temperature: jax.Array  # []


class Pretraining(agent.Schedule):
    """The first updates, but for the last of them, are of the model alone."""

    def kind(self, step: int, made: int) -> int:
        """See `Schedule.kind`."""
        alone = step == self.first_step and made < self.first_updates - 1
        return MODEL if alone else JOINT

    def counts(self, start: int, end: int) -> tuple[int, ...]:
        """See `Schedule.counts`."""
        (number,) = super().counts(start, end)
        alone = self.first_updates - 1 if start <= self.first_step < end else 0
        return number - alone, alone


class OptimizerStates(NamedTuple):
    """States of four Adam optimisers."""

    model: optax.OptState
    actor: optax.OptState
    critics: optax.OptState
    temperature: optax.OptState


class Memory(NamedTuple):
    """What acting carries from step to step; the frames come with the observation."""

    action: jax.Array  # [N, L - 1, A], the last ones; zero before the episode
    age: jax.Array  # [N] int32, agent steps since the start of the episode


def make_agent(
    config: SlacConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment.

    Args:
      config: the configuration.
      spec: shape of a frame, and the largest number of action components A of the fleet. A run
        with fewer components keeps the last ones at zero; densities and entropy ignore them.
      makers: none.

    Raises:
      Incompatible: the environment's frames do not fit, or there are auxiliary tasks.
    """
    if makers:
        raise types.Incompatible(f"SLAC has no auxiliary tasks: {', '.join(makers)}")
    length, num_actions = config.sequence_length, spec.max_num_actions
    observations = training.observation_format(config, spec, frame_stack=length)
    network = slac.LatentModel(config.filters, config.z1_size, config.z2_size, config.hidden_size)
    actor = slac.Actor(config.hidden_size, num_actions, config.log_std_min, config.log_std_max)
    critics = slac.TwinCritics(config.hidden_size)
    model_optimizer, optimizer = (
        adam.make_tensorflow_adam(rate, eps=config.adam_epsilon)
        for rate in (config.model_learning_rate, config.learning_rate)
    )
    feature_size, latent_size = 8 * config.filters, config.z1_size + config.z2_size
    fixed = jax.lax.stop_gradient

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        del run  # the networks do not depend on the run
        keys = jax.random.split(key, 4)
        image = jnp.zeros((1, world_model.IMAGE_SIZE, world_model.IMAGE_SIZE, 3))
        action = jnp.zeros((1, num_actions))
        features = jnp.zeros((1, length, feature_size))
        own = SlacParams(
            network.init(keys[0], image, action),
            actor.init(keys[1], features, jnp.zeros((1, length - 1, num_actions))),
            critics.init(keys[2], jnp.zeros((1, latent_size)), action),
            jnp.log(jnp.float32(config.initial_temperature)),
        )
        return types.LearnerState(
            params=types.TrainableParams(own, {}),
            target_params=own.critics,
            opt_state=OptimizerStates(
                model_optimizer.init(own.model), *(optimizer.init(part) for part in own[1:])
            ),
            key=jax.random.key_data(keys[3]),
            updates=jnp.zeros((), jnp.int32),
            task_state={},
        )

    def encode(model: types.Params, images: jax.Array, frames: int) -> jax.Array:
        """`[N L, 64, 64, 3] -> [N, L, d]`, all images at once; L is the number of frames."""
        return network.apply(model, images, method="encode").reshape(-1, frames, feature_size)

    def filter_(model, features, action, is_first, noise):
        """Latents, posteriors and priors `[L, N, ...]`; all arguments but noise are `[N, L, ...]`.

        `action` led to the frames.
        """
        inputs = (x.swapaxes(0, 1) for x in (action, features, is_first))
        return slac.filter_window(network, model, *inputs, noise)

    def init_memory(number: int) -> Memory:
        return Memory(jnp.zeros((number, length - 1, num_actions)), jnp.zeros(number, jnp.int32))

    def act(run, params: SlacParams, observation, memory: Memory, key, policy_name: str, step):
        noise_key, random_key = jax.random.split(key)
        mask = control_training.action_mask(run, num_actions)
        is_first = jnp.arange(length)[None] == length - 1 - memory.age[:, None]
        features = encode(params.model, _scaled(world_model.as_one_batch(observation)), length)
        policy = actor.apply(params.actor, *slac.from_first(features, memory.action, is_first))
        noise = jax.random.normal(noise_key, policy.mean.shape)
        sampled, _ = sample_action(policy, noise, mask)
        if policy_name == agent.EVALUATION:  # the published curves are of the sampled policy, too
            action = sampled
        else:
            at_random = control_training.uniform_action(random_key, len(sampled), mask)
            action = jnp.where(step < schedule.first_step, at_random, sampled)
        actions = jnp.concatenate([memory.action, action[:, None]], axis=1)[:, 1:]
        return action, Memory(actions, memory.age + 1)

    def model_loss(model, windows: types.SequenceBatch, images, filtered):
        """The model's loss `[]` on windows `[M, L + 1, ...]`, and its metrics.

        The images of the windows are flat, `[M (L + 1), 64, 64, 3]`.
        """
        latents, posterior, prior = filtered
        joined = latents.joined.swapaxes(0, 1)  # [M, L + 1, d]
        decoded = network.apply(model, joined.reshape(-1, latent_size), method="decode")
        std = jnp.sqrt(jnp.float32(config.pixel_variance))
        of_image = world_model.log_normal(images, decoded, std).reshape(len(joined), -1).sum(1)
        divergence = world_model.kl_divergence(*posterior, *prior).sum(0)
        reward = network.apply(
            model, joined[:, :-1], windows.action[:, :-1], joined[:, 1:], method="reward"
        )
        of_reward = world_model.log_normal(windows.reward[:, :-1, None], *reward)[..., 0]
        within = ~windows.is_first[:, 1:]  # no reward is received from an episode to the next
        of_reward = jnp.where(within, of_reward, 0.0).sum(1)
        metrics = {
            "loss_image": -jnp.mean(of_image),
            "loss_reward": -jnp.mean(of_reward),
            "loss_divergence": jnp.mean(divergence),
        }
        return jnp.mean(divergence - of_image - of_reward), metrics

    def behaviour(params: SlacParams, target, run, windows, features, latents, key):
        """Losses of critics, actor and temperature on windows `[B, L + 1, ...]`.

        Returns:
          Their sum `[]`, the squared errors `[B]`, metrics.
        """
        next_key, actor_key = jax.random.split(key)
        mask = control_training.action_mask(run, num_actions)
        temperature = fixed(jnp.exp(params.log_temperature))
        before, after = latents.joined[-2], latents.joined[-1]

        def policy_of(actor_params, at: slice, actions: slice):
            seen = slac.from_first(
                features[:, at], windows.action[:, actions], windows.is_first[:, at]
            )
            return actor.apply(actor_params, *seen)

        policy_t = policy_of(fixed(params.actor), slice(1, None), slice(1, -1))
        noise = jax.random.normal(next_key, policy_t.mean.shape)
        a_t, log_density_t = sample_action(policy_t, noise, mask)
        q_t = critics.apply(target, after, a_t)
        v_t = sac_losses.soft_value(q_t, log_density_t, temperature)
        last = -2  # the step before the last frame
        q_tm1 = critics.apply(params.critics, before, windows.action[:, last])
        discount = config.discount * windows.discount[:, last]
        errors = sac_losses.critic_loss(q_tm1, windows.reward[:, last], discount, v_t)
        loss_critic = 0.5 * jnp.mean(errors)

        policy = policy_of(params.actor, slice(None, -1), slice(None, last))
        noise = jax.random.normal(actor_key, policy.mean.shape)
        action, log_density = sample_action(policy, noise, mask)
        q = critics.apply(fixed(params.critics), before, action)
        loss_actor = jnp.mean(sac_losses.actor_loss(q, log_density, temperature))
        excess = fixed(-log_density + run.num_valid_actions)
        loss_temperature = params.log_temperature * jnp.mean(excess)
        metrics = {
            "loss_critic": loss_critic,
            "loss_actor": loss_actor,
            "loss_temperature": loss_temperature,
            "entropy": -jnp.mean(log_density),
            "q_mean": jnp.mean(q_tm1),
        }
        return loss_critic + loss_actor + loss_temperature, errors, metrics

    def loss(params: types.TrainableParams, state: types.LearnerState, run, batch, key, kind: int):
        noise_key, behaviour_key = jax.random.split(key)
        own: SlacParams = params.agent
        windows: types.SequenceBatch = batch.transitions
        size, learning = len(windows.reward), config.model_batch_size
        led_by = jnp.pad(windows.action[:, :-1], ((0, 0), (1, 0), (0, 0)))
        z1_key, z2_key = jax.random.split(noise_key)
        # The model's windows have the same noise whether or not the others are there.
        shape = (length + 1, config.batch_size)
        noise = Latents(
            jax.random.normal(z1_key, (*shape, config.z1_size)),
            jax.random.normal(z2_key, (*shape, config.z2_size)),
        )

        frames = world_model.as_one_batch(windows.observation)

        def filtered(model, rows: slice):
            start, end = (row * config.window_frames for row in (rows.start, rows.stop))
            # Without the barrier, XLA repeats the cast inside the loops of the products.
            images = jax.lax.optimization_barrier(_scaled(frames[start:end]))
            features = encode(model, images, config.window_frames)
            own_noise = jax.tree.map(lambda x: x[:, rows], noise)
            found = filter_(model, features, led_by[rows], windows.is_first[rows], own_noise)
            return images, features, found

        # Gradients of the model are of the first windows alone.
        images, features, found = filtered(own.model, slice(0, learning))
        of_model = jax.tree.map(lambda x: x[:learning], windows)
        loss_model, metrics = model_loss(own.model, of_model, images, found)

        metrics["loss_model"] = loss_model
        if kind == MODEL:
            return loss_model, (jnp.zeros(size), metrics)
        latents = found[0]
        if learning < size:
            _, more_features, more = filtered(fixed(own.model), slice(learning, size))
            features = jnp.concatenate([features, more_features])
            latents = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), latents, more[0])
        of_behaviour, errors, more_metrics = behaviour(
            own, state.target_params, run, windows, fixed(features), fixed(latents),
            behaviour_key,
        )  # fmt: skip
        metrics |= more_metrics | {"temperature": jnp.exp(own.log_temperature)}
        return loss_model + of_behaviour, (errors, metrics)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0):
        key, loss_key = jax.random.split(native.wrap_key(state.key))
        gradients, (errors, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state, run, batch, loss_key, kind
        )
        p, g, o = state.params.agent, gradients.agent, state.opt_state
        model, model_opt, metrics["gradient_norm"] = model_optimizer.step(g.model, o.model, p.model)
        params, opt_state = p._replace(model=model), o._replace(model=model_opt)
        target_params = state.target_params
        if kind == JOINT:  # the others learn, too
            (actor_params, actor_opt, _), (critic_params, critic_opt, _), (temperature, opt, _) = (
                optimizer.step(*parts) for parts in zip(g[1:], o[1:], p[1:], strict=True)
            )
            params = SlacParams(model, actor_params, critic_params, temperature)
            opt_state = OptimizerStates(model_opt, actor_opt, critic_opt, opt)
            target_params = optax.incremental_update(
                critic_params, target_params, config.critic_tau
            )
        state = types.LearnerState(
            params=types.TrainableParams(params, {}),
            target_params=target_params,
            opt_state=opt_state,
            key=jax.random.key_data(key),
            updates=state.updates + 1,
            task_state={},
        )
        return state, types.UpdateResult(errors, metrics)

    def embed(params: SlacParams, pairs: types.Pairs) -> jax.Array:
        """phi(s, a) = [z, a], the latents filtered with the means of all distributions."""
        context: types.Context = pairs.observation
        features = encode(params.model, _scaled(world_model.as_one_batch(context.frames)), length)
        before = jnp.pad(context.exists[:, :-1], ((0, 0), (1, 0)))
        is_first = context.exists & ~before
        noise = network.init_latent(length, len(features))
        latents, _, _ = filter_(params.model, features, context.action, is_first, noise)
        return jnp.concatenate([latents.joined[-1], pairs.action], axis=-1)

    schedule = Pretraining(
        *training.schedule(config, spec.action_repeat, config.pretraining_updates + 1)
    )
    rule = control_training.contrast_rule(config, spec.action_repeat)._replace(number=0)
    return agent.Agent(
        init=init,
        act=act,
        update=update,
        embed=embed,
        compare=agent.make_compare(embed, {}),
        run_constants=lambda game: {},
        action=jax.ShapeDtypeStruct((num_actions,), np.float32),
        observations=observations,
        protocol=control_training.environment_protocol(length),
        replay=control_training.replay_settings(
            config,
            rule,
            SequenceRule(config.window_frames, "follows"),
            SequenceRule(config.window_frames, "follows", config.model_batch_size),
        ),  # fmt: skip
        schedule=schedule,
        evaluation=control_training.evaluation_settings(config, "sampled"),
        resources=_resources(config),
        init_memory=init_memory,
    )


def _scaled(frames: jax.Array) -> jax.Array:
    """Pixels in [0, 1]."""
    return frames.astype(jnp.float32) / 255.0


def _resources(config: SlacConfig) -> agent.Resources:
    """Memory of an update: of the model's frames, and a quarter for those that are only encoded."""
    frames = (config.model_batch_size + config.batch_size / 4) * config.window_frames
    return agent.Resources(
        batches_over_runs=False,
        logs_frames=config.replay.resumed_frames == "stored",
        activation_bytes=int(4 * frames * training.NUMBERS_A_FRAME * config.filters // 32),
    )
