"""SLAC, stochastic latent actor-critic (Lee et al., 2020), as pure functions of a run.

Which loss reaches which parameters:

    parameters            model   critic   actor   temperature
    model                   x
    critics                          x
    actor                                    x
    log temperature                                     x

Critics read latents; the actor reads encoded frames and actions. Neither changes the model. At
first only the model learns, from smaller batches. Then all losses are differentiated in one pass,
at the same parameters: the model learns from the first `model_batch_size` windows of the batch,
with the same latents as actor and critics.

    frame of a window    o0  o1  ...  o6  o7  o8
    action               a0  a1  ...  a6  a7
    actor at o7          o0 to o7, a0 to a6
    actor at o8              o1 to o8, a1 to a7
    critics              z7, a7 and z8
"""

import functools
from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import types
from rcrl_jax.agents import agent, control, world_models
from rcrl_jax.agents.slac import network as networks
from rcrl_jax.agents.slac.config import SlacConfig
from rcrl_jax.agents.slac.network import Latents
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks.policy import Policy, sample_action
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
    """The first updates train the model alone, all but those of a usual series."""

    @property
    def alone(self) -> int:
        """How many updates train the model alone."""
        return self.first_updates - self.updates

    def kind(self, step: int, made: int) -> int:
        """See `Schedule.kind`."""
        return MODEL if step == self.first_step and made < self.alone else JOINT

    def counts(self, start: int, end: int) -> tuple[int, ...]:
        """See `Schedule.counts`."""
        (number,) = super().counts(start, end)
        alone = self.alone if start <= self.first_step < end else 0
        return number - alone, alone


class OptimizerStates(NamedTuple):
    """States of four Adam optimisers."""

    model: optax.OptState
    actor: optax.OptState
    critics: optax.OptState
    temperature: optax.OptState


class LastActions(NamedTuple):
    """What acting carries from step to step; the frames come with the observation."""

    action: jax.Array  # [N, L - 1, A], the last ones; zero before the episode
    age: jax.Array  # [N] int32, agent steps since the start of the episode


class Parts(NamedTuple):
    """What all functions of the agent read; none of it is an array."""

    config: SlacConfig
    num_actions: int  # A, action components of the fleet's largest action space
    network: networks.LatentModel
    actor: networks.Actor
    critics: networks.TwinCritics
    model_optimizer: adam.Optimizer
    optimizer: adam.Optimizer  # of actor, critics and temperature, which have separate states
    schedule: Pretraining

    @property
    def length(self) -> int:
        """L, frames that the actor reads."""
        return self.config.sequence_length


def make_parts(config: SlacConfig, spec: EnvironmentSpec) -> Parts:
    """Makes networks, optimisers and schedule; arguments as in `make_agent`."""
    model_optimizer, optimizer = (
        adam.make_tensorflow_adam(rate, eps=config.adam_epsilon)
        for rate in (config.model_learning_rate, config.learning_rate)
    )
    first_updates = config.pretraining_updates + config.updates
    schedule = world_models.schedule(config, spec.action_repeat, first_updates)
    return Parts(
        config=config,
        num_actions=spec.max_num_actions,
        network=networks.LatentModel(
            config.filters, config.z1_size, config.z2_size, config.hidden_size
        ),
        actor=networks.Actor(
            config.hidden_size, spec.max_num_actions, config.log_std_min, config.log_std_max
        ),
        critics=networks.TwinCritics(config.hidden_size),
        model_optimizer=model_optimizer,
        optimizer=optimizer,
        schedule=Pretraining(*schedule),
    )


def init(
    parts: Parts,
    run: types.RunSpec,
    key: chex.PRNGKey,
    initial: Mapping[str, jax.Array] | None = None,
) -> types.LearnerState:
    """See `Agent.init`."""
    del run  # the networks do not depend on the run
    network = parts.network
    keys = jax.random.split(key, 4)
    image = jnp.zeros((1, world_models.IMAGE_SIZE, world_models.IMAGE_SIZE, 3))
    action = jnp.zeros((1, parts.num_actions))
    features = jnp.zeros((1, parts.length, network.feature_size))
    drawn = SlacParams(
        network.init(keys[0], image, action),
        parts.actor.init(keys[1], features, jnp.zeros((1, parts.length - 1, parts.num_actions))),
        parts.critics.init(keys[2], jnp.zeros((1, network.latent_size)), action),
        jnp.log(jnp.float32(parts.config.initial_temperature)),
    )
    params = agent.begin_with(drawn, initial)
    opt_state = OptimizerStates(
        parts.model_optimizer.init(params.model),
        *(parts.optimizer.init(part) for part in params[1:]),
    )
    trainable = types.TrainableParams(params, {})
    return agent.first_state({}, trainable, params.critics, opt_state, keys[3])


def init_memory(parts: Parts, number: int) -> LastActions:
    """See `Agent.init_memory`."""
    return LastActions(
        jnp.zeros((number, parts.length - 1, parts.num_actions)), jnp.zeros(number, jnp.int32)
    )


def act(
    parts: Parts, run, params: SlacParams, observation, memory: LastActions, key, policy_name, step
):
    """See `Agent.act`; the observation is `[N, L, 64, 64, 3] uint8`."""
    noise_key, random_key = jax.random.split(key)
    mask = control.action_mask(run, parts.num_actions)
    is_first = jnp.arange(parts.length)[None] == parts.length - 1 - memory.age[:, None]
    features = encode(parts, params.model, observation)
    policy = policy_of(parts, params.actor, features, memory.action, is_first)
    noise = jax.random.normal(noise_key, policy.mean.shape)
    sampled, _ = sample_action(policy, noise, mask)
    if policy_name == agent.EVALUATION:  # sampled, as in the published curves
        action = sampled
    else:
        at_random = control.uniform_action(random_key, len(sampled), mask)
        action = jnp.where(step < parts.schedule.first_step, at_random, sampled)
    actions = jnp.concatenate([memory.action, action[:, None]], axis=1)[:, 1:]
    return action, LastActions(actions, memory.age + 1)


def update(parts: Parts, run, state: types.LearnerState, batch: types.Batch, kind: int = JOINT):
    """See `Agent.update`."""
    key, loss_key = jax.random.split(native.wrap_key(state.key))
    params, opt_state, target_params = state.params.agent, state.opt_state, state.target_params
    gradients, (errors, metrics) = jax.grad(functools.partial(loss, parts), has_aux=True)(
        params, target_params, run, batch.transitions, loss_key, kind
    )
    model, model_state, metrics["gradient_norm"] = parts.model_optimizer.step(
        gradients.model, opt_state.model, params.model
    )
    if kind == MODEL:
        params, opt_state = params._replace(model=model), opt_state._replace(model=model_state)
    else:
        learned = map(parts.optimizer.step, gradients[1:], opt_state[1:], params[1:])
        others, other_states, _ = zip(*learned, strict=True)
        params = SlacParams(model, *others)
        opt_state = OptimizerStates(model_state, *other_states)
        target_params = optax.incremental_update(
            params.critics, target_params, parts.config.critic_tau
        )
    state = agent.next_state({}, state, types.TrainableParams(params, {}), opt_state, key)
    return state._replace(target_params=target_params), types.UpdateResult(errors, metrics)


def loss(
    parts: Parts, params: SlacParams, target_critics, run, windows: types.SequenceBatch, key, kind
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """All losses of a kind of update, on windows `[B, L + 1, ...]`.

    Returns:
      Their sum `[]`; squared errors of the critics `[B]`, zeros if the model learns alone; metrics.
    """
    config, fixed = parts.config, jax.lax.stop_gradient
    noise_key, behaviour_key = jax.random.split(key)
    size, learning = len(windows.reward), config.model_batch_size
    led_by = jnp.pad(windows.action[:, :-1], ((0, 0), (1, 0), (0, 0)))
    z1_key, z2_key = jax.random.split(noise_key)
    # The noise of the model's windows does not depend on the other windows.
    shape = (config.window_frames, config.batch_size)
    noise = Latents(
        jax.random.normal(z1_key, (*shape, config.z1_size)),
        jax.random.normal(z2_key, (*shape, config.z2_size)),
    )
    frames = world_models.as_one_batch(windows.observation)

    def filtered(model: types.Params, start: int, end: int):
        rows, length = slice(start, end), config.window_frames
        # Without the barrier, XLA repeats the cast inside the loops of the products.
        images = jax.lax.optimization_barrier(_scaled(frames[start * length : end * length]))
        features = networks.encode_windows(parts.network, model, images, length)
        row_noise = jax.tree.map(lambda x: x[:, rows], noise)
        found = networks.filter_window(
            parts.network, model, led_by[rows], features, windows.is_first[rows], row_noise
        )
        return images, features, found

    # Only the first windows give the model a gradient.
    images, features, found = filtered(params.model, 0, learning)
    model_windows = jax.tree.map(lambda x: x[:learning], windows)
    loss_model, metrics = networks.model_loss(
        parts.network, params.model, model_windows, images, found, config.pixel_variance
    )
    if kind == MODEL:
        return loss_model, (jnp.zeros(size), metrics)

    latents = found.latents
    if learning < size:
        _, more_features, more = filtered(fixed(params.model), learning, size)
        features = jnp.concatenate([features, more_features])
        latents = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1), latents, more.latents)
    loss_behaviour, errors, behaviour_metrics = behaviour_loss(
        parts, params, target_critics, run, windows, fixed(features), fixed(latents),
        behaviour_key,
    )  # fmt: skip
    metrics |= behaviour_metrics | {"temperature": jnp.exp(params.log_temperature)}
    return loss_model + loss_behaviour, (errors, metrics)


def behaviour_loss(
    parts: Parts,
    params: SlacParams,
    target_critics: types.Params,
    run: types.RunSpec,
    windows: types.SequenceBatch,
    features: jax.Array,
    latents: Latents,
    key: chex.PRNGKey,
) -> tuple[jax.Array, jax.Array, dict[str, jax.Array]]:
    """Losses of critics, actor and temperature on windows `[B, L + 1, ...]`.

    Features are `[B, L + 1, d]`, latents `[L + 1, B, ...]`.

    Returns:
      Their sum `[]`, the squared errors `[B]`, metrics.
    """
    fixed, critics = jax.lax.stop_gradient, parts.critics
    next_key, actor_key = jax.random.split(key)
    mask = control.action_mask(run, parts.num_actions)
    temperature = fixed(jnp.exp(params.log_temperature))
    before, after = latents.joined[-2], latents.joined[-1]

    def policy_at(actor: types.Params, frames: slice, between: slice) -> Policy:
        seen = features[:, frames], windows.action[:, between], windows.is_first[:, frames]
        return policy_of(parts, actor, *seen)

    policy_t = policy_at(fixed(params.actor), slice(1, None), slice(1, -1))
    noise = jax.random.normal(next_key, policy_t.mean.shape)
    a_t, log_density_t = sample_action(policy_t, noise, mask)
    q_t = critics.apply(target_critics, after, a_t)
    v_t = control.soft_value(q_t, log_density_t, temperature)
    last = -2  # the step before the last frame
    q_tm1 = critics.apply(params.critics, before, windows.action[:, last])
    discount = parts.config.discount * windows.discount[:, last]
    errors = control.critic_loss(q_tm1, windows.reward[:, last], discount, v_t)
    loss_critic = 0.5 * jnp.mean(errors)

    policy = policy_at(params.actor, slice(None, -1), slice(None, last))
    noise = jax.random.normal(actor_key, policy.mean.shape)
    action, log_density = sample_action(policy, noise, mask)
    q = critics.apply(fixed(params.critics), before, action)
    loss_actor = jnp.mean(control.actor_loss(q, log_density, temperature))
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


def embed(parts: Parts, params: SlacParams, pairs: types.Pairs) -> jax.Array:
    """phi(s, a) = [z, a], the latents filtered with the means of all distributions."""
    context: types.Context = pairs.observation
    features = encode(parts, params.model, context.frames)
    before = jnp.pad(context.exists[:, :-1], ((0, 0), (1, 0)))
    is_first = context.exists & ~before
    noise = parts.network.init_latent(parts.length, len(features))
    filtered = networks.filter_window(
        parts.network, params.model, context.action, features, is_first, noise
    )
    return jnp.concatenate([filtered.latents.joined[-1], pairs.action], axis=-1)


def encode(parts: Parts, model: types.Params, frames: jax.Array) -> jax.Array:
    """Features of stacks of L frames: `[N, L, 64, 64, 3] uint8 -> [N, L, d]`."""
    images = _scaled(world_models.as_one_batch(frames))
    return networks.encode_windows(parts.network, model, images, parts.length)


def policy_of(parts: Parts, actor: types.Params, features, action, is_first) -> Policy:
    """The policy `[N, A]` after the last of L frames; arguments as in `networks.from_first`."""
    return parts.actor.apply(actor, *networks.from_first(features, action, is_first))


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
    observations = world_models.observation_format(config, spec, config.sequence_length)
    parts = make_parts(config, spec)
    rule = control.contrast_rule(config, spec.action_repeat)._replace(number=0)
    return agent.Agent(
        **agent.bind(parts, {}, init=init, act=act, update=update, embed=embed),
        action=jax.ShapeDtypeStruct((parts.num_actions,), np.float32),
        observations=observations,
        protocol=control.environment_protocol(parts.length),
        replay=control.replay_settings(
            config,
            rule,
            SequenceRule(config.window_frames, "follows"),
            SequenceRule(config.window_frames, "follows", config.model_batch_size),
        ),
        schedule=parts.schedule,
        evaluation=control.evaluation_settings(config, "sampled"),
        resources=_resources(config),
        init_memory=functools.partial(init_memory, parts),
    )


def _scaled(frames: jax.Array) -> jax.Array:
    """Pixels in [0, 1]."""
    return frames.astype(jnp.float32) / 255.0


def _resources(config: SlacConfig) -> agent.Resources:
    """Memory of an update: the model's frames; the other frames count a quarter."""
    frames = (config.model_batch_size + config.batch_size / 4) * config.window_frames
    return agent.Resources(
        batches_over_runs=False,
        logs_frames=config.replay.resumed_frames == "stored",
        activation_bytes=int(4 * frames * world_models.NUMBERS_A_FRAME * config.filters // 32),
    )
