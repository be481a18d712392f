"""SimPLe's world models, deterministic and stochastic: loss and prediction."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import types
from rcrl_jax.agents.simple import bits as simple_bits
from rcrl_jax.agents.simple import loss as losses
from rcrl_jax.agents.simple import network as networks
from rcrl_jax.agents.simple.config import SimpleConfig


class World(NamedTuple):
    """A world model, deterministic or stochastic, as functions of its parameters.

    Attributes:
      init: `key -> params`.
      loss: `(params, windows, updates, key) -> (loss [], metrics)`.
      start: `(params, stacks [N, C, H, W, 3]) -> state` before the newest frame.
      step: `(params, state, stacks, action [N], key) -> (Prediction, state)`.
    """

    init: Callable[[chex.PRNGKey], types.Params]
    loss: Callable[..., tuple[jax.Array, dict[str, jax.Array]]]
    start: Callable[[types.Params, jax.Array], Any]
    step: Callable[..., tuple[networks.Prediction, Any]]


class Parts(NamedTuple):
    """What the functions of a model read; none of it is an array."""

    config: SimpleConfig
    network: networks.DeterministicModel | networks.StochasticModel


def _unet(world, bits=None) -> networks.UNet:
    return networks.UNet(
        world.filters, world.compress_steps, world.double_steps, world.middle_layers,
        world.dropout, world.middle_dropout, bits,
    )  # fmt: skip


def _labels(windows: types.SequenceBatch) -> tuple[jax.Array, jax.Array]:
    """Frames `[B, L, H, W, 3]` and rewards `[B, L]` as labels; a reward is -1, 0 or 1."""
    reward = jnp.round(jnp.clip(windows.reward, -1.0, 1.0)).astype(jnp.int32) + 1
    return windows.observation.astype(jnp.int32), reward


def loss_of_pixels(prediction: networks.Prediction, label: jax.Array, cutoff: float) -> jax.Array:
    """The loss `[]` of the pixels of frames `[N, H, W, 3] int32`."""

    def at_once(prediction, label):
        return losses.cut_cross_entropy(prediction.pixels, label, cutoff)

    by_colour = functools.partial(loss_by_colour, cutoff=cutoff)
    return jax.lax.platform_dependent(prediction, label, tpu=by_colour, default=at_once)


def loss_by_colour(prediction: networks.Prediction, label: jax.Array, cutoff: float) -> jax.Array:
    """`loss_of_pixels` as a TPU computes it, without logits in its memory."""
    of_colours = [
        losses.cut_cross_entropy(logits, label[..., colour], cutoff)
        for colour, logits in enumerate(prediction.colours)
    ]
    return jnp.mean(jnp.stack(of_colours))


def make_deterministic(config: SimpleConfig, max_num_actions: int) -> World:
    """The deterministic model, which predicts the frame after a stack."""
    world = config.deterministic
    network = networks.DeterministicModel(max_num_actions, world.filters, _unet(world))
    parts = Parts(config, network)
    return World(
        functools.partial(init_deterministic, parts),
        functools.partial(deterministic_loss, parts),
        lambda params, stacks: (),
        functools.partial(deterministic_step, parts),
    )


def init_deterministic(parts: Parts, key: chex.PRNGKey) -> types.Params:
    """See `World.init`."""
    frames = jnp.zeros((1, parts.config.frame_stack, *parts.config.frame_shape))
    return parts.network.init(key, frames, jnp.zeros(1, jnp.int32))


def deterministic_loss(parts: Parts, params, windows, updates, key):
    """See `World.loss`."""
    del updates
    world, stack = parts.config.deterministic, parts.config.frame_stack
    frames, reward = _labels(windows)
    keys = jax.random.split(key, world.target_frames + 1)
    given = frames.astype(jnp.float32)
    given = given.at[:, :stack].set(
        networks.with_pixel_noise(given[:, :stack], keys[0], world.pixel_noise)
    )
    of_pixels, of_reward = [], []
    seen = given[:, :stack]
    for i in range(world.target_frames):
        prediction = parts.network.apply(
            params, seen, windows.action[:, stack - 1 + i], True, rngs={"dropout": keys[i + 1]}
        )
        of_pixels.append(loss_of_pixels(prediction, frames[:, stack + i], world.cutoff))
        of_reward.append(
            losses.cut_cross_entropy(prediction.reward, reward[:, stack - 1 + i], world.cutoff)
        )
        # The source's mode 'prediction_only'.
        seen = jnp.concatenate([seen[:, 1:], prediction.frame[:, None]], axis=1)
    metrics = {
        "loss_pixels": jnp.mean(jnp.stack(of_pixels)),
        "loss_reward": jnp.mean(jnp.stack(of_reward)),
        "loss_bits": jnp.zeros(()),
    }
    return metrics["loss_pixels"] + metrics["loss_reward"], metrics


def deterministic_step(parts: Parts, params, state, stacks, action, key):
    """See `World.step`."""
    del key
    return parts.network.apply(params, stacks, action), state


def make_stochastic(config: SimpleConfig, max_num_actions: int) -> World:
    """The stochastic model, which learns to predict several frames in a row."""
    world = config.stochastic
    bits = simple_bits.BitInjection(
        world.filters, world.bits, world.flip_rate, world.ramp, world.most_predicted,
        world.most_used, world.predictor_size,
    )  # fmt: skip
    network = networks.StochasticModel(
        max_num_actions, world.filters, world.state_filters, _unet(world, bits)
    )
    functions = (init_stochastic, stochastic_loss, stochastic_start, stochastic_step)
    return World(*(functools.partial(own, Parts(config, network)) for own in functions))


def init_stochastic(parts: Parts, key: chex.PRNGKey) -> types.Params:
    """See `World.init`."""
    network, frame = parts.network, jnp.zeros((1, *parts.config.frame_shape))
    keys = jax.random.split(key, 3)
    rngs = dict(zip(("params", "dropout", "noise"), keys, strict=True))
    return network.init(
        rngs, network.start(frame), frame, jnp.zeros(1, jnp.int32), True, frame, jnp.zeros(())
    )


def stochastic_loss(parts: Parts, params, windows, updates, key):
    """See `World.loss`.

    The model reads true frames or, increasingly often, its predictions. Every step of a window
    trains the predicted next frame and its bits; from the last given frame on, also the predicted
    reward.
    """
    network, world, stack = parts.network, parts.config.stochastic, parts.config.frame_stack
    frames, reward = _labels(windows)
    updates = updates.astype(jnp.float32)
    by_time = jax.tree.map(lambda x: x.swapaxes(0, 1), (frames, windows.action, reward))
    frames, action, reward = by_time
    length = len(frames) - 1
    keys = jax.random.split(key, length)
    own = losses.scheduled_sampling(updates, world.ramp)

    def step(carried, inputs):
        state, frame = carried
        following, action, reward, is_target, key = inputs
        dropout_key, noise_key, sampling_key = jax.random.split(key, 3)
        label = following
        following = following.astype(jnp.float32)
        prediction, of_bits, state = network.apply(
            params, state, frame, action, True, following, updates,
            rngs={"dropout": dropout_key, "noise": noise_key},
        )  # fmt: skip
        takes_own = is_target & jax.random.bernoulli(sampling_key, own, (len(frame),))
        following = jnp.where(takes_own[:, None, None, None], prediction.frame, following)
        terms = (
            loss_of_pixels(prediction, label, world.cutoff),
            losses.cut_cross_entropy(prediction.reward, reward, world.cutoff),
            of_bits,
        )
        return (state, following), terms

    first = frames[0].astype(jnp.float32)
    is_target = jnp.arange(length) >= stack - 1
    _, (of_pixels, of_reward, of_bits) = jax.lax.scan(
        step,
        (network.start(first), first),
        (frames[1:], action[:-1], reward[:-1], is_target, keys),
    )
    metrics = {
        "loss_pixels": jnp.mean(of_pixels[stack - 1 :]),
        "loss_reward": jnp.mean(of_reward[stack - 1 :]),
        "loss_bits": jnp.mean(of_bits),
    }
    total = sum(metrics.values())
    if stack > 1:
        total += jnp.mean(of_pixels[: stack - 1])
    return total, metrics


def stochastic_start(parts: Parts, params, stacks):
    """See `World.start`."""
    state = parts.network.start(stacks[:, 0])
    for i in range(parts.config.frame_stack - 1):
        state = parts.network.apply(params, state, stacks[:, i], method="advance")
    return state


def stochastic_step(parts: Parts, params, state, stacks, action, key):
    """See `World.step`."""
    prediction, _, state = parts.network.apply(
        params, state, stacks[:, -1], action, rngs={"noise": key}
    )
    return prediction, state


def model_rate(config: SimpleConfig) -> optax.Schedule:
    """Step size of the model's optimiser: a linear warm-up, then an inverse root or a constant."""
    world = config.world

    def rate(updates):
        warm = jnp.minimum(updates / world.warmup, 1.0)
        if config.model == "stochastic":
            return world.learning_rate * warm
        return world.learning_rate * warm * jax.lax.rsqrt(jnp.maximum(1.0 * updates, world.warmup))

    return rate
