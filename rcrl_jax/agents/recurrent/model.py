"""What Dreamer and PlaNet share: the world model in an agent, its loss, filtering while acting."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents import control, world_models
from rcrl_jax.agents.agent import Resources
from rcrl_jax.agents.recurrent import loss as losses
from rcrl_jax.agents.recurrent import network as rssm
from rcrl_jax.agents.recurrent.config import RecurrentModelConfig
from rcrl_jax.agents.recurrent.network import Latent, WorldModel
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.tasks import task

# The cell, and whether one layer yields means and standard deviations of a distribution.
_CELLS = {"block": (rssm.BlockGru, False), "keras": (rssm.KerasGru, True)}

Preprocess = Callable[[jax.Array, chex.PRNGKey | None], jax.Array]
"""`(frames [..., 64, 64, 3] uint8, key) -> float32` around zero, of the same shape."""


class Filtered(NamedTuple):
    """What acting carries from step to step."""

    latent: Latent  # a draw from the posterior of the last frame
    action: jax.Array  # [N, A], taken at that frame


class ModelLoss(NamedTuple):
    """What the model's loss yields."""

    total: jax.Array  # [], auxiliary tasks included
    latents: Latent  # [L, B, ...], draws from the posteriors
    window_loss: jax.Array  # [B]
    metrics: dict[str, jax.Array]


class RecurrentModel(NamedTuple):
    """What all functions of the world model read; none of it is an array."""

    config: RecurrentModelConfig
    num_actions: int  # A, action components of the fleet's largest action space
    network: WorldModel
    preprocess: Preprocess
    reward_scale: float  # weight of the reward's log-likelihood
    tasks: Mapping[str, task.AuxiliaryTask]  # by name
    needs: task.Needs  # what the tasks need


def make_recurrent_model(
    config: RecurrentModelConfig,
    spec: EnvironmentSpec,
    makers: Mapping[str, task.TaskMaker],
    *,
    activation: world_models.Activation,
    reward_layers: int,
    preprocess: Preprocess,
    reward_scale: float = 1.0,
) -> RecurrentModel:
    """Makes the world model of an agent.

    Args:
      config: of the agent.
      spec: of its environments.
      makers: functions that make the auxiliary tasks, by name.
      activation: of dense layers.
      reward_layers: hidden layers of the reward network.
      preprocess: `(frames [..., 64, 64, 3], key) -> images`; no noise if the key is None.
      reward_scale: weight of the reward's log-likelihood.

    Raises:
      Incompatible: a task is weighted by importance or takes the RL batch as anchors, or two tasks
        exclude each other.
    """
    network = WorldModel(
        config.filters,
        config.deter_size,
        config.stoch_size,
        config.hidden_size,
        reward_layers,
        config.head_size,
        activation,
        *_CELLS[config.cell],
    )
    encode = functools.partial(filter_context, network, preprocess)
    parts = task.AgentParts(
        encode=encode,
        encode_target=encode,
        join=control.join,
        augment=lambda key, observation: observation,
        psi_size=network.feature_size,
        phi_size=network.feature_size + spec.max_num_actions,
        contrast_rule=control.contrast_rule(config, spec.action_repeat),
        batch_size=config.batch_size,
    )
    tasks = {name: make(parts, config) for name, make in makers.items()}
    if weighted := [name for name, one in tasks.items() if one.importance_weighted]:
        raise types.Incompatible(f"windows have no importance weights: {', '.join(weighted)}")
    needs = task.needs_of(tasks, parts)
    if needs.contrast_rule.number and needs.contrast_rule.anchors == "rl_batch":
        raise types.Incompatible(
            "anchors='rl_batch' needs an agent that learns from transitions, this one learns from "
            "windows"
        )
    return RecurrentModel(
        config, spec.max_num_actions, network, preprocess, reward_scale, tasks, needs
    )


def init_model(world: RecurrentModel, key: chex.PRNGKey) -> types.Params:
    """The initial parameters of the networks."""
    image = jnp.zeros((1, world_models.IMAGE_SIZE, world_models.IMAGE_SIZE, 3))
    return world.network.init(key, image, jnp.zeros((1, world.num_actions)))


def init_memory(world: RecurrentModel, number: int) -> Filtered:
    """See `Agent.init_memory`."""
    return Filtered(world.network.init_latent(number), jnp.zeros((number, world.num_actions)))


def filter_newest(
    world: RecurrentModel,
    params: types.Params,
    memory: Filtered,
    observation: jax.Array,
    key: chex.PRNGKey,
) -> Latent:
    """The latent `[N, ...]` of the newest frame of `observation [N, C, 64, 64, 3] uint8`."""
    image_key, noise_key = jax.random.split(key)
    images = world.preprocess(observation[:, -1], image_key)
    projected = world.network.apply(params, images, method="project")
    noise = jax.random.normal(noise_key, memory.latent.sample.shape)
    return world.network.apply(
        params, memory.latent, memory.action, projected, noise, method="observe"
    )[0]


def model_loss(
    world: RecurrentModel,
    params: types.Params,
    auxiliary: Mapping[str, types.Params],
    task_states: Mapping[str, types.Params],
    run: types.RunSpec,
    batch: types.Batch,
    key: chex.PRNGKey,
) -> ModelLoss:
    """The model's loss on windows `[B, L, ...]`, with the losses of auxiliary tasks.

    Args:
      world: the model.
      params: of the model.
      auxiliary: parameters of the tasks, by name.
      task_states: by name.
      run: the run.
      batch: windows, and contrastive samples.
      key: of all noise.
    """
    config, network = world.config, world.network
    image_key, noise_key, tasks_key = jax.random.split(key, 3)
    windows: types.SequenceBatch = batch.transitions
    chex.assert_rank([windows.observation, windows.action, windows.reward], [5, 3, 2])
    size, length = windows.reward.shape
    frames = world_models.as_one_batch(windows.observation)
    # Without the barrier, XLA repeats the cast inside the loops of the products.
    images = jax.lax.optimization_barrier(world.preprocess(frames, image_key))
    noise = jax.random.normal(noise_key, (length, size, config.stoch_size))
    projected = _project(network, params, images, length)
    latents, posterior = world_models.filter_window(
        network, params, windows.action.swapaxes(0, 1), projected, noise
    )
    prior = network.apply(params, latents.deter, method="prior")
    features = latents.feature.swapaxes(0, 1)  # [B, L, d]
    flat = features.reshape(-1, network.feature_size)
    decoded = network.apply(params, flat, method="decode")
    log_image = world_models.log_normal(images, decoded).sum((1, 2, 3)).reshape(size, length)
    reward = network.apply(params, features, method="reward")
    log_reward = world_models.log_normal(windows.reward, reward)
    divergence = world_models.kl_divergence(*posterior, *prior)
    window_loss = -jnp.mean(log_image + world.reward_scale * log_reward, axis=1)
    loss_divergence = losses.beyond_free_nats(
        divergence, config.free_nats, in_each_step=config.free_nats_of == "step"
    )
    auxiliary_loss = _auxiliary_loss(
        world, params, auxiliary, features, task_states, run, batch, tasks_key
    )
    metrics = {
        "loss_image": -jnp.mean(log_image),
        "loss_reward": -jnp.mean(log_reward),
        "loss_divergence": loss_divergence,
        "divergence": jnp.mean(divergence),
    }
    total = jnp.mean(window_loss) + loss_divergence + auxiliary_loss.total
    metrics |= {"loss_model": total} | auxiliary_loss.metrics
    return ModelLoss(total, latents, window_loss, metrics)


def _auxiliary_loss(
    world: RecurrentModel, params, auxiliary, features, task_states, run, batch, key
) -> task.AuxiliaryLoss:
    """The losses of the tasks; the contexts of all tasks are filtered at once."""
    keys = [jax.random.fold_in(key, i) for i in range(len(world.tasks))]
    view = task.UpdateView(params, params, features[:, -1], batch, batch)
    images = task.images_of(world.tasks, batch, batch, keys)
    contexts, structure = jax.tree.flatten(images, is_leaf=lambda x: isinstance(x, types.Context))
    if contexts:
        together = jax.tree.map(lambda *each: jnp.concatenate(each), *contexts)
        ends = np.cumsum([len(context.exists) for context in contexts])
        features = filter_context(world.network, world.preprocess, params, together)
        images = jax.tree.unflatten(structure, jnp.split(features, ends[:-1]))
    return task.total_loss(world.tasks, auxiliary, view, images, task_states, run.constants, keys)


def embed(world: RecurrentModel, params: types.Params, pairs: types.Pairs) -> jax.Array:
    """phi(s, a) `[N, d + A]`: the feature of the filtered context, and the action."""
    psi = filter_context(world.network, world.preprocess, params, pairs.observation)
    return control.join(params, psi, pairs.action)


def filter_context(
    network: WorldModel, preprocess: Preprocess, params: types.Params, context: types.Context
) -> jax.Array:
    """The feature `[N, d]` of the last frame of each context, filtered from the start."""
    # Without noise: measurements must not depend on it, and noise of a fixed key would tell a task
    # which rows of its batch are positives.
    images = preprocess(world_models.as_one_batch(context.frames), None)
    projected = _project(network, params, images, context.frames.shape[1])

    def step(last, inputs):
        action, frame, exists = inputs
        latent, _ = network.apply(
            params, last, action, frame, jnp.zeros_like(last.sample), method="observe"
        )
        keep = exists[:, None]
        return jax.tree.map(lambda new, old: jnp.where(keep, new, old), latent, last), None

    inputs = context.action.swapaxes(0, 1), projected, context.exists.T
    last, _ = jax.lax.scan(step, network.init_latent(len(context.exists)), inputs)
    return last.feature


def _project(
    network: WorldModel, params: types.Params, images: jax.Array, length: int
) -> jax.Array:
    """`[N L, 64, 64, 3] -> [L, N, hidden]`, all images at once."""
    projected = network.apply(params, images, method="project")
    return projected.reshape(-1, length, projected.shape[-1]).swapaxes(0, 1)


def resources(world: RecurrentModel, *, behaviour: int = 0) -> Resources:
    """Memory of an update: of all frames of windows, and of contexts.

    Args:
      world: the model.
      behaviour: how many numbers the losses on imagined steps keep.
    """
    config = world.config
    windows = config.batch_size * config.sequence_length
    contexts = 3 * world.needs.contrast_rule.number * config.context
    numbers = (windows + contexts) * world_models.NUMBERS_A_FRAME * config.filters // 32
    return Resources(
        batches_over_runs=False,
        logs_frames=config.replay.resumed_frames == "stored",
        activation_bytes=4 * (numbers + behaviour),
    )


def explore(
    action: jax.Array,
    mask: jax.Array,
    key: chex.PRNGKey,
    *,
    std: float,
    at_random: jax.Array,
) -> jax.Array:
    """Training actions: with noise, clipped; before learning, uniform.

    Args:
      action: `[N, A]`, of the policy or planner.
      mask: `[A] bool`; other components stay zero.
      key: of the noise.
      std: of the noise.
      at_random: `[] bool`, whether to draw uniform actions instead.
    """
    noise_key, random_key = jax.random.split(key)
    noisy = jnp.clip(action + std * jax.random.normal(noise_key, action.shape), -1.0, 1.0)
    valid = jnp.where(jnp.broadcast_to(mask, action.shape), noisy, 0.0)
    uniform = control.uniform_action(random_key, len(action), mask)
    return jnp.where(at_random, uniform, valid)
