"""What Dreamer, PlaNet and SLAC share: training settings, layers, Gaussians, the filter.

Weights are Glorot uniform, biases zero.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import observations, types
from rcrl_jax.agents.agent import Schedule
from rcrl_jax.config.world_models import WorldModelConfig
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import ObservationFormat

IMAGE_SIZE = 64
"""Height and width of a frame [pixels]."""

# Numbers per frame that an update keeps for its gradients, at 32 filters: inputs and outputs of all
# convolutions, for the forward and the backward pass.
NUMBERS_A_FRAME = 370_000

_glorot = nn.initializers.glorot_uniform()

Activation = Callable[[jax.Array], jax.Array]


def observation_format(
    config: WorldModelConfig, spec: EnvironmentSpec, frame_stack: int
) -> ObservationFormat:
    """Whole frames: the newest frames of an episode, with the actions between them.

    Raises:
      Incompatible: the environment's frames do not fit the networks.
    """
    expected = (config.render_size, config.render_size, 3)
    observations.check_frames(spec.frame, expected)
    layout = observations.as_rendered(expected, np.uint8)
    return ObservationFormat.uniform(frame_stack, layout)._replace(with_actions=True)


def schedule(config: WorldModelConfig, action_repeat: int, first_updates: int) -> Schedule:
    """The configuration's environment steps as agent steps."""
    return Schedule(
        config.agent_steps(config.learn_start, action_repeat),
        config.agent_steps(config.update_period, action_repeat),
        config.updates,
        first_updates,
    )


def as_one_batch(frames: jax.Array) -> jax.Array:
    """The frames of windows, `[N, L, 64, 64, 3] -> [N L, 64, 64, 3]`.

    Call it before any other computation on the frames: a TPU would pad L to 128.
    """
    return frames.reshape(-1, *frames.shape[2:])


def dense(features: int) -> nn.Dense:
    """A linear map with Glorot's uniform weights and zero bias."""
    return nn.Dense(features, kernel_init=_glorot)


class StridedKernel(nn.Module):
    """The parameters of a convolution."""

    side: int
    filters: int

    @nn.compact
    def __call__(self, channels: int) -> tuple[jax.Array, jax.Array]:
        """Kernel `[side, side, channels, filters]` and bias `[filters]`."""
        kernel = self.param("kernel", _glorot, (self.side, self.side, channels, self.filters))
        return kernel, self.param("bias", nn.initializers.zeros, (self.filters,))


class Mlp(nn.Module):
    """Hidden layers of equal width and a linear output."""

    width: int
    layers: int
    outputs: int
    activation: Activation

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Maps `[..., d]` to `[..., outputs]`."""
        for _ in range(self.layers):
            x = self.activation(dense(self.width)(x))
        return dense(self.outputs)(x)


class Gaussian(NamedTuple):
    """A diagonal normal distribution."""

    mean: jax.Array  # [..., S]
    std: jax.Array  # [..., S]


def gaussian(stats: jax.Array, least_std: float) -> Gaussian:
    """The distribution of a layer's output `[..., 2 S]`: means, and deviations before softplus."""
    mean, raw = jnp.split(stats, 2, axis=-1)
    return Gaussian(mean, nn.softplus(raw) + least_std)


def filter_window(
    model: nn.Module, params: types.Params, actions: jax.Array, *inputs: Any
) -> tuple[Any, Gaussian]:
    """Filters windows of consecutive frames from the initial latent, in one loop over time.

    Args:
      model: the networks, with methods `init_latent` and `observe`.
      params: the model's parameters.
      actions: `[L, B, A]`, the action that led to each frame.
      *inputs: trees of `[L, B, ...]`, the further arguments of `observe` for each step.

    Returns:
      States and posteriors, `[L, B, ...]`.
    """

    def step(last, inputs):
        results = model.apply(params, last, *inputs, method="observe")
        return results[0], results

    start = model.init_latent(actions.shape[1])
    return jax.lax.scan(step, start, (actions, *inputs))[1]


def log_normal(x: jax.Array, mean: jax.Array, std: jax.Array | float = 1.0) -> jax.Array:
    """Log-density of each number: `log N(x; mean, std)`, of the shape of `x`."""
    chex.assert_equal_shape([x, mean])
    return -0.5 * (jnp.square((x - mean) / std) + math.log(2.0 * math.pi)) - jnp.log(std)


def kl_divergence(
    mean: jax.Array, std: jax.Array, other_mean: jax.Array, other_std: jax.Array
) -> jax.Array:
    """KL(N(mean, std) || N(other_mean, other_std)) of diagonal normals: `[..., S] -> [...]`."""
    chex.assert_equal_shape([mean, std, other_mean, other_std])
    ratio = jnp.square(std / other_std)
    distance = jnp.square((mean - other_mean) / other_std)
    return 0.5 * jnp.sum(ratio + distance - 1.0 - jnp.log(ratio), axis=-1)
