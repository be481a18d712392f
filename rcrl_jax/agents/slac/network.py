"""SLAC's latent variable model and its loss, actor and critics (Lee et al., 2020).

Each frame has two latents, z1 and z2. Only z1 reads the frame. Prior and posterior of z2 are the
same network, so only z1 has a divergence.

    first frame        z1 ~ N(0, I)         or, given the frame, q(. | e)
                       z2 ~ p(. | z1)
    following frames   z1' ~ p(. | z2, a)   or, given the frame, q(. | e', z2, a)
                       z2' ~ p(. | z1', z2, a)

    z = [z1, z2] ──┬── decoder ── frame           [z, a, z'] ── reward
                   └── [z, a] ── critics          8 encoded frames, 7 actions ── actor

Weights are Glorot uniform, biases zero. All convolutions have a leaky ReLU, even the decoder's last
one, as in the authors' code (alexlee-gk/slac).
"""

import functools
from typing import Any, NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.agents import world_models
from rcrl_jax.agents.world_models import IMAGE_SIZE, Gaussian, Mlp, StridedKernel
from rcrl_jax.networks.policy import Policy
from rcrl_jax.ops.strided_convolution import convolve, convolve_transposed

_KERNELS = (5, 3, 3, 3)  # of stride 2, 'SAME'; 64 -> 32 -> 16 -> 8 -> 4 pixels
_LAST_SIDE = 4  # of the last convolution, whose output is one vector
_gaussian = functools.partial(world_models.gaussian, least_std=1e-5)


def leaky_relu(x: jax.Array) -> jax.Array:
    """Slope 0.2 below zero."""
    return nn.leaky_relu(x, 0.2)


class Encoder(nn.Module):
    """Four convolutions of stride 2, and one over the whole remaining image."""

    filters: int  # of the first convolution; further ones: 2, 4, 8 and 8 times as many

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        """Maps `[N, 64, 64, 3]` to features `[N, 8 filters]`."""
        chex.assert_shape(image, (None, IMAGE_SIZE, IMAGE_SIZE, 3))
        x = image
        for doubled, side in enumerate(_KERNELS):
            kernel = StridedKernel(side, self.filters << doubled)(x.shape[-1])
            # TensorFlow pads by side - 2 in all, the larger half at the end.
            edge = ((side - 2) // 2, (side - 1) // 2)
            x = leaky_relu(convolve(jnp.pad(x, ((0, 0), edge, edge, (0, 0))), *kernel))
        kernel, bias = StridedKernel(_LAST_SIDE, 8 * self.filters)(x.shape[-1])
        product = x.reshape(len(x), -1) @ kernel.reshape(-1, kernel.shape[-1])
        return leaky_relu(product + bias[None])


class Decoder(nn.Module):
    """The encoder in reverse."""

    filters: int  # as in `Encoder`

    @nn.compact
    def __call__(self, latent: jax.Array) -> jax.Array:
        """Maps `[N, d]` to the means of the pixels `[N, 64, 64, 3]`."""
        chex.assert_rank(latent, 2)
        kernel = StridedKernel(_LAST_SIDE, 8 * self.filters)(latent.shape[-1])
        x = leaky_relu(convolve_transposed(latent[:, None, None], *kernel))
        for side, filters in zip(reversed(_KERNELS), (4, 2, 1, None), strict=True):
            channels = 3 if filters is None else filters * self.filters
            size = 2 * x.shape[1]
            x = convolve_transposed(x, *StridedKernel(side, channels)(x.shape[-1]))
            start = (side - 2) // 2  # the padding of the convolution, cut off here
            x = leaky_relu(x[:, start : start + size, start : start + size])
        return x


class Latents(NamedTuple):
    """The two latents of a frame."""

    z1: jax.Array  # [..., z1_size]
    z2: jax.Array  # [..., z2_size]

    @property
    def joined(self) -> jax.Array:
        """The input of decoder, reward network and critics."""
        return jnp.concatenate([self.z1, self.z2], axis=-1)


class LatentModel(nn.Module):
    """The model; its methods are pure.

    Attributes:
      filters: channels of the encoder's first convolution.
      z1_size: width of z1.
      z2_size: width of z2.
      hidden: units of the two hidden layers of all dense networks.
    """

    filters: int
    z1_size: int
    z2_size: int
    hidden: int

    @property
    def feature_size(self) -> int:
        """Width of an encoded frame."""
        return 8 * self.filters

    @property
    def latent_size(self) -> int:
        """Width of `Latents.joined`."""
        return self.z1_size + self.z2_size

    def setup(self) -> None:
        """Makes the parts."""
        self.encoder = Encoder(self.filters)
        self.decoder = Decoder(self.filters)
        self.prior_z1 = self._head(self.z1_size)
        self.posterior_z1_first = self._head(self.z1_size)
        self.posterior_z1 = self._head(self.z1_size)
        self.prior_z2_first = self._head(self.z2_size)
        self.prior_z2 = self._head(self.z2_size)
        self.reward_head = self._head(1)

    def _head(self, size: int) -> Mlp:
        return Mlp(self.hidden, 2, 2 * size, leaky_relu)

    def __call__(self, image: jax.Array, action: jax.Array) -> None:
        """Touches every parameter, for `init`: `[N, 64, 64, 3]`, `[N, A]`."""
        feature, first = self.encode(image), jnp.ones(len(image), bool)
        noise = self.init_latent(len(image))
        of_first = self.observe_first(feature, noise)
        latents, _ = self.observe(
            self.init_latent(len(image)), action, feature, of_first, first, noise
        )
        self.prior(latents.z2, action, first)
        self.decode(latents.joined)
        self.reward(latents.joined, action, latents.joined)

    def init_latent(self, *batch: int) -> Latents:
        """Zeros; no network reads the latents before a first frame."""
        return Latents(jnp.zeros((*batch, self.z1_size)), jnp.zeros((*batch, self.z2_size)))

    def encode(self, image: jax.Array) -> jax.Array:
        """Features `[N, 8 filters]` of images `[N, 64, 64, 3]`."""
        return self.encoder(image)

    def observe(
        self,
        last: Latents,
        action: jax.Array,
        feature: jax.Array,
        of_first: tuple[Latents, Gaussian],
        is_first: jax.Array,
        noise: Latents,
    ) -> tuple[Latents, Gaussian]:
        """One step of the filter.

        Args:
          last: latents of the frame before, `[N, ...]`.
          action: `[N, A]`, taken on the frame before.
          feature: `[N, 8 filters]`, of the frame.
          of_first: the results for first frames, from `observe_first`.
          is_first: `[N] bool`, whether the frame before is unknown.
          noise: standard normal, of the shape of latents.

        Returns:
          The latents; the posterior of z1.
        """
        before = jnp.concatenate([last.z2, action], axis=-1)
        posterior = _gaussian(self.posterior_z1(jnp.concatenate([feature, before], axis=-1)))
        z1 = _sample(posterior, noise.z1)
        z2 = _gaussian(self.prior_z2(jnp.concatenate([z1, before], axis=-1)))
        following = Latents(z1, _sample(z2, noise.z2)), posterior
        return _where(is_first, of_first, following)

    def observe_first(self, feature: jax.Array, noise: Latents) -> tuple[Latents, Gaussian]:
        """Latents of first frames, which depend on no earlier frame, and the posterior of z1.

        Args:
          feature: `[..., 8 filters]`, of the frames.
          noise: standard normal, of the shape of latents.
        """
        posterior = _gaussian(self.posterior_z1_first(feature))
        z1 = _sample(posterior, noise.z1)
        z2 = _gaussian(self.prior_z2_first(z1))
        return Latents(z1, _sample(z2, noise.z2)), posterior

    def prior(self, last_z2: jax.Array, action: jax.Array, is_first: jax.Array) -> Gaussian:
        """The prior of z1, `[..., z1_size]`.

        Args:
          last_z2: `[..., z2_size]`, of the frame before.
          action: `[..., A]`, taken on the frame before.
          is_first: `[...] bool`, whether the frame before is unknown.
        """
        following = _gaussian(self.prior_z1(jnp.concatenate([last_z2, action], axis=-1)))
        standard = Gaussian(jnp.zeros_like(following.mean), jnp.ones_like(following.std))
        return _where(is_first, standard, following)

    def decode(self, latent: jax.Array) -> jax.Array:
        """Means of the pixels `[N, 64, 64, 3]` of latents `[N, d]`."""
        return self.decoder(latent)

    def reward(self, latent: jax.Array, action: jax.Array, following: jax.Array) -> Gaussian:
        """The reward `[..., 1]` of steps from `[..., d]` by `[..., A]` to `[..., d]`."""
        return _gaussian(self.reward_head(jnp.concatenate([latent, action, following], axis=-1)))


def _sample(distribution: Gaussian, noise: jax.Array) -> jax.Array:
    return distribution.mean + distribution.std * noise


def _where(rows: jax.Array, first: Any, other: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(rows[..., None], a, b), first, other)


class Filtered(NamedTuple):
    """Windows of L frames, filtered by a model."""

    latents: Latents  # [L, N, ...], draws from the posteriors
    posterior: Gaussian  # [L, N, z1_size], of z1
    prior: Gaussian  # likewise


def encode_windows(
    model: LatentModel, params: types.Params, images: jax.Array, length: int
) -> jax.Array:
    """All images at once: `[N L, 64, 64, 3] -> [N, L, 8 filters]`, L being the `length`."""
    features = model.apply(params, images, method="encode")
    return features.reshape(-1, length, features.shape[-1])


def filter_window(
    model: LatentModel,
    params: types.Params,
    actions: jax.Array,
    features: jax.Array,
    is_first: jax.Array,
    noise: Latents,
) -> Filtered:
    """Filters windows of consecutive frames, in one loop over time.

    Args:
      model: the networks.
      params: the model's parameters.
      actions: `[N, L, A]`, the action that led to each frame; unread at first frames.
      features: `[N, L, 8 filters]`, of the frames.
      is_first: `[N, L] bool`; the first frame of a window always counts as True.
      noise: standard normal, of the shape of latents `[L, N, ...]`.
    """
    actions, features, is_first = (x.swapaxes(0, 1) for x in (actions, features, is_first))
    is_first = is_first.at[0].set(True)
    # All at once, outside the loop.
    of_first = model.apply(params, features, noise, method="observe_first")
    latents, posterior = world_models.filter_window(
        model, params, actions, features, of_first, is_first, noise
    )
    last_z2 = jnp.pad(latents.z2[:-1], ((1, 0), (0, 0), (0, 0)))  # unread at the first frame
    prior = model.apply(params, last_z2, actions, is_first, method="prior")
    return Filtered(latents, posterior, prior)


def model_loss(
    model: LatentModel,
    params: types.Params,
    windows: types.SequenceBatch,
    images: jax.Array,
    filtered: Filtered,
    pixel_variance: float,
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """The negative evidence lower bound of windows of L frames, `[]`, and its parts.

    Args:
      model: the networks.
      params: the model's parameters.
      windows: `[N, L, ...]`.
      images: `[N L, 64, 64, 3]`, frames of the windows, pixels in [0, 1].
      filtered: the filtered windows.
      pixel_variance: of a pixel, given the latents.
    """
    joined = filtered.latents.joined.swapaxes(0, 1)  # [N, L, d]
    decoded = model.apply(params, joined.reshape(-1, joined.shape[-1]), method="decode")
    std = jnp.sqrt(jnp.float32(pixel_variance))
    log_image = world_models.log_normal(images, decoded, std).reshape(len(joined), -1).sum(1)
    divergence = world_models.kl_divergence(*filtered.posterior, *filtered.prior).sum(0)
    reward = model.apply(
        params, joined[:, :-1], windows.action[:, :-1], joined[:, 1:], method="reward"
    )
    log_reward = world_models.log_normal(windows.reward[:, :-1, None], *reward)[..., 0]
    within = ~windows.is_first[:, 1:]  # a step to the next episode has no reward
    log_reward = jnp.where(within, log_reward, 0.0).sum(1)
    metrics = {
        "loss_image": -jnp.mean(log_image),
        "loss_reward": -jnp.mean(log_reward),
        "loss_divergence": jnp.mean(divergence),
        "loss_model": jnp.mean(divergence - log_image - log_reward),
    }
    return metrics["loss_model"], metrics


def from_first(
    features: jax.Array, actions: jax.Array, is_first: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Pads the current episode to L frames, as the actor reads it.

    Args:
      features: `[N, L, d]`, of consecutive frames.
      actions: `[N, L - 1, A]`, between the frames.
      is_first: `[N, L] bool`, whether a frame is the first of its episode.

    Returns:
      Features and actions. Before the first frame of the newest episode, features repeat the
      feature of that frame, and actions are zero.
    """
    place = jnp.arange(is_first.shape[1])
    first = jnp.max(jnp.where(is_first, place[None], 0), axis=1)  # [N]
    kept = jnp.maximum(place[None], first[:, None])  # [N, L]
    filled = jnp.take_along_axis(features, kept[:, :, None], axis=1)
    known = place[None, :-1] >= first[:, None]
    return filled, jnp.where(known[:, :, None], actions, 0.0)


class Actor(nn.Module):
    """A Gaussian policy before the tanh of its samples, on encoded frames and actions."""

    hidden: int
    max_num_actions: int
    log_std_min: float
    log_std_max: float

    @nn.compact
    def __call__(self, features: jax.Array, actions: jax.Array) -> Policy:
        """Maps `[N, L, d]` and `[N, L - 1, A]` to means and log standard deviations `[N, A]`."""
        n = len(features)
        x = jnp.concatenate([features.reshape(n, -1), actions.reshape(n, -1)], axis=-1)
        raw = Mlp(self.hidden, 2, 2 * self.max_num_actions, nn.relu)(x)
        mean, log_std = jnp.split(raw, 2, axis=-1)
        return Policy(mean, jnp.clip(log_std, self.log_std_min, self.log_std_max))


class TwinCritics(nn.Module):
    """Two critics without shared weights."""

    hidden: int

    @nn.compact
    def __call__(self, latent: jax.Array, action: jax.Array) -> jax.Array:
        """Maps latents `[N, d]` and actions `[N, A]` to the values of both critics `[N, 2]`."""
        x = jnp.concatenate([latent, action], axis=-1)
        critics = [Mlp(self.hidden, 2, 1, nn.relu)(x) for _ in range(2)]
        return jnp.concatenate(critics, axis=-1)
