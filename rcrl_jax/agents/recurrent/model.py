"""What Dreamer and PlaNet share: the world model in an agent, its loss, filtering while acting."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents import control_training
from rcrl_jax.agents import world_model_training as training
from rcrl_jax.agents.agent import Resources
from rcrl_jax.agents.recurrent import loss as losses
from rcrl_jax.agents.recurrent import network as rssm
from rcrl_jax.agents.recurrent.config import RecurrentModelConfig
from rcrl_jax.agents.recurrent.network import Latent, WorldModel
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.networks import world_model
from rcrl_jax.tasks import task

# The cell, and whether one layer yields means and standard deviations of a distribution.
_CELLS = {"block": (rssm.BlockGru, False), "keras": (rssm.KerasGru, True)}

Preprocess = Callable[[jax.Array, chex.PRNGKey | None], jax.Array]
"""`(frames [..., 64, 64, 3] uint8, key) -> float32` around zero, of the same shape."""


class Memory(NamedTuple):
    """What acting carries from step to step."""

    latent: Latent  # a draw from the posterior of the last frame
    action: jax.Array  # [N, A], taken since


class ModelLoss(NamedTuple):
    """What the model's loss yields."""

    total: jax.Array  # [], auxiliary tasks included
    latents: Latent  # [L, B, ...], draws from the posteriors
    window_loss: jax.Array  # [B]
    metrics: dict[str, jax.Array]


class RecurrentModel(NamedTuple):
    """The world model as functions of its parameters, for one run.

    Attributes:
      network: the networks.
      init: `key -> params`.
      loss: `(params, auxiliary params, task states, run, batch, key) -> ModelLoss`.
      init_memory: `N -> Memory` at the start of an episode.
      filter: `(params, memory, observation [N, C, *frame] uint8, key) -> Latent` of the newest
        frame.
      embed: `(params, pairs) -> phi [N, d + A]`.
      tasks: auxiliary tasks, by name.
      needs: what the tasks need of the replay.
    """

    network: WorldModel
    init: Callable[[chex.PRNGKey], types.Params]
    loss: Callable[..., ModelLoss]
    init_memory: Callable[[int], Memory]
    filter: Callable[[types.Params, Memory, jax.Array, chex.PRNGKey], Latent]
    embed: Callable[[types.Params, types.Pairs], jax.Array]
    tasks: Mapping[str, task.AuxiliaryTask]
    needs: task.Needs

    def resources(self, config: RecurrentModelConfig, *, behaviour: int = 0) -> Resources:
        """Memory of an update: of all frames of windows, and of contexts.

        Args:
          config: of the agent.
          behaviour: numbers that are kept for what learns in the model's imagination.
        """
        windows = config.batch_size * config.sequence_length
        contexts = 3 * self.needs.contrast_rule.number * config.context
        numbers = (windows + contexts) * training.NUMBERS_A_FRAME * config.filters // 32
        return Resources(
            batches_over_runs=False,
            logs_frames=config.replay.resumed_frames == "stored",
            activation_bytes=4 * (numbers + behaviour),
        )


def make_recurrent_model(
    config: RecurrentModelConfig,
    spec: EnvironmentSpec,
    makers: Mapping[str, task.TaskMaker],
    *,
    activation: world_model.Activation,
    reward_layers: int,
    preprocess: Preprocess,
    reward_scale: float = 1.0,
) -> RecurrentModel:
    """Makes the world model of an agent.

    Args:
      config: of the agent.
      spec: of its environments.
      makers: of the auxiliary tasks, by name.
      activation: of dense layers.
      reward_layers: hidden layers of the reward network.
      preprocess: of frames `[..., 64, 64, 3]`, with the key of their noise, or None for no noise.
      reward_scale: weight of the reward's log-likelihood.

    Raises:
      Incompatible: a task is weighted by importance, its anchors are the RL batch, or two tasks
        exclude each other.
    """
    max_num_actions = spec.max_num_actions
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
    feature_size = config.stoch_size + config.deter_size

    def init(key: chex.PRNGKey) -> types.Params:
        image = jnp.zeros((1, world_model.IMAGE_SIZE, world_model.IMAGE_SIZE, 3))
        return network.init(key, image, jnp.zeros((1, max_num_actions)))

    def project(params: types.Params, images: jax.Array, length: int) -> jax.Array:
        """`[N L, 64, 64, 3] -> [L, N, hidden]`, all images at once."""
        projected = network.apply(params, images, method="project")
        return projected.reshape(-1, length, projected.shape[-1]).swapaxes(0, 1)

    def feature(params: types.Params, context: types.Context) -> jax.Array:
        # No noise: what is measured must not depend on it, and that of a fixed key would tell a
        # task which rows of its batch are positives.
        images = preprocess(world_model.as_one_batch(context.frames), None)
        projected = project(params, images, context.frames.shape[1])

        def step(last, inputs):
            action, of_frame, exists = inputs
            latent, _ = network.apply(
                params, last, action, of_frame, jnp.zeros_like(last.sample), method="observe"
            )
            keep = exists[:, None]
            return jax.tree.map(lambda new, old: jnp.where(keep, new, old), latent, last), None

        inputs = context.action.swapaxes(0, 1), projected, context.exists.T
        last, _ = jax.lax.scan(step, network.init_latent(len(context.exists)), inputs)
        return last.feature

    def embed(params: types.Params, pairs: types.Pairs) -> jax.Array:
        psi = feature(params, pairs.observation)
        return control_training.join(params, psi, pairs.action)

    parts = task.AgentParts(
        encode=feature,
        encode_target=feature,
        join=control_training.join,
        augment=lambda key, observation: observation,
        psi_size=feature_size,
        phi_size=feature_size + max_num_actions,
        contrast_rule=control_training.contrast_rule(config, spec.action_repeat),
        batch_size=config.batch_size,
    )
    tasks = {name: make(parts, config) for name, make in makers.items()}
    if weighted := [name for name, one in tasks.items() if one.importance_weighted]:
        raise types.Incompatible(f"windows have no importance weights: {', '.join(weighted)}")
    needs = task.needs_of(tasks, parts)
    if needs.contrast_rule.number and needs.contrast_rule.anchors == "rl_batch":
        raise types.Incompatible(
            "return_contrast.anchors: 'rl_batch' needs an agent that learns from transitions, this "
            "one learns from windows; choose 'as_transitions' or 'uniform'"
        )

    def encode_images(params: types.Params, images: Any) -> Any:
        """The features of the contexts in a tree, all filtered at once."""
        contexts, structure = jax.tree.flatten(
            images, is_leaf=lambda x: isinstance(x, types.Context)
        )
        if not contexts:
            return images
        together = jax.tree.map(lambda *each: jnp.concatenate(each), *contexts)
        ends = np.cumsum([len(context.exists) for context in contexts])
        return jax.tree.unflatten(structure, jnp.split(feature(params, together), ends[:-1]))

    def loss(params, auxiliary, task_states, run, batch: types.Batch, key) -> ModelLoss:
        image_key, noise_key, tasks_key = jax.random.split(key, 3)
        windows: types.SequenceBatch = batch.transitions
        chex.assert_rank([windows.observation, windows.action, windows.reward], [5, 3, 2])
        size, length = windows.reward.shape
        frames = world_model.as_one_batch(windows.observation)
        # Without the barrier, XLA repeats the cast inside the loops of the products.
        images = jax.lax.optimization_barrier(preprocess(frames, image_key))
        noise = jax.random.normal(noise_key, (length, size, config.stoch_size))
        projected = project(params, images, length)
        latents, posterior = world_model.filter_window(
            network, params, windows.action.swapaxes(0, 1), projected, noise
        )
        prior = network.apply(params, latents.deter, method="prior")
        features = latents.feature.swapaxes(0, 1)  # [B, L, d]
        decoded = network.apply(params, features.reshape(-1, feature_size), method="decode")
        of_image = world_model.log_normal(images, decoded).sum((1, 2, 3)).reshape(size, length)
        reward = network.apply(params, features, method="reward")
        of_reward = world_model.log_normal(windows.reward, reward)
        divergence = world_model.kl_divergence(*posterior, *prior)
        window_loss = -jnp.mean(of_image + reward_scale * of_reward, axis=1)
        loss_divergence = losses.beyond_free_nats(
            divergence, config.free_nats, in_each_step=config.free_nats_of == "step"
        )

        task_keys = [jax.random.fold_in(tasks_key, i) for i in range(len(tasks))]
        view = task.UpdateView(params, params, features[:, -1], batch, batch)
        images_of_tasks = task.images_of(tasks, batch, batch, task_keys)
        of_tasks = task.total_loss(
            tasks, auxiliary, view, encode_images(params, images_of_tasks), task_states,
            run.constants, task_keys,
        )  # fmt: skip
        metrics = {
            "loss_image": -jnp.mean(of_image),
            "loss_reward": -jnp.mean(of_reward),
            "loss_divergence": loss_divergence,
            "divergence": jnp.mean(divergence),
        }
        total = jnp.mean(window_loss) + loss_divergence + of_tasks.total
        return ModelLoss(total, latents, window_loss, metrics | of_tasks.metrics)

    def init_memory(number: int) -> Memory:
        return Memory(network.init_latent(number), jnp.zeros((number, max_num_actions)))

    def filter_(params, memory: Memory, observation, key) -> Latent:
        image_key, noise_key = jax.random.split(key)
        projected = network.apply(
            params, preprocess(observation[:, -1], image_key), method="project"
        )
        noise = jax.random.normal(noise_key, memory.latent.sample.shape)
        return network.apply(
            params, memory.latent, memory.action, projected, noise, method="observe"
        )[0]

    return RecurrentModel(
        network,
        init,
        loss,
        init_memory,
        filter_,
        embed,
        tasks,
        needs,
    )


def explore(
    action: jax.Array,
    mask: jax.Array,
    key: chex.PRNGKey,
    *,
    std: float,
    at_random: jax.Array,
) -> jax.Array:
    """Actions of training: with noise, clipped; or uniform ones before learning.

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
    uniform = control_training.uniform_action(random_key, len(action), mask)
    return jnp.where(at_random, uniform, valid)
