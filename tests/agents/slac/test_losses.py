"""SLAC's losses and gradients equal those of a reference that takes row after row, step after step.

The reference has XLA's convolutions, and no code of the package but the shapes of its parameters.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.agents import test_world_models as small
from tests.training import toy_world_models

OWN = 2  # action components of the run, of six
FRAMES = toy_world_models.SMALL_SLAC["sequence_length"] + 1
LEARNING = toy_world_models.SMALL_SLAC["model_batch_size"]  # of the rows
PIXEL_STD = math.sqrt(0.1)
# An episode begins in the first row at its second frame, in the last row at its first and third.
FIRST = np.array([[0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 0]], bool)
PARTS = ("model", "critics", "actor", "log_temperature")


def leaky_relu(x):
    return jnp.where(x > 0, x, 0.2 * x)


def mlp(layers, x, activation):
    for i in range(3):
        x = x @ layers[f"Dense_{i}"]["kernel"] + layers[f"Dense_{i}"]["bias"]
        x = x if i == 2 else activation(x)
    return x


def convolve(layer, x, stride, padding, dilation=1):
    order = ("NHWC", "HWIO", "NHWC")
    y = jax.lax.conv_general_dilated(
        x, layer["kernel"], (stride, stride), padding, (dilation, dilation), dimension_numbers=order
    )
    return leaky_relu(y + layer["bias"][None, None, None])


def encode(layers, images):
    x = images
    for i in range(4):
        x = convolve(layers[f"StridedKernel_{i}"], x, 2, "SAME")
    return convolve(layers["StridedKernel_4"], x, 1, "VALID")[:, 0, 0]


def decode(layers, latents):
    x = latents[:, None, None]
    for i in range(5):
        layer = layers[f"StridedKernel_{i}"]
        side = len(layer["kernel"])
        mirrored = {**layer, "kernel": layer["kernel"][::-1, ::-1]}
        if i == 0:
            x = convolve(mirrored, x, 1, [(side - 1, side - 1)] * 2)
            continue
        size, cut = 2 * x.shape[1], (side - 2) // 2  # what 'SAME' cuts off at the start
        x = convolve(mirrored, x, 1, [(side - 1, side - 1)] * 2, dilation=2)
        x = x[:, cut : cut + size, cut : cut + size]
    return x


def gaussian(layers, *inputs):
    mean, raw = jnp.split(mlp(layers, jnp.concatenate(inputs), leaky_relu), 2)
    return mean, jnp.log1p(jnp.exp(raw)) + 1e-5


def log_normal(x, mean, std):
    return jnp.sum(-0.5 * ((x - mean) / std) ** 2 - jnp.log(std) - 0.5 * math.log(2 * math.pi))


def filter_row(layers, features, actions, first, noise):
    """Of each frame the latents, and mean and deviation of z1's posterior and prior."""
    found, z2 = [], None
    for t in range(FRAMES):
        if t == 0 or first[t]:
            posterior = gaussian(layers["posterior_z1_first"], features[t])
            prior = jnp.zeros(3), jnp.ones(3)
            z1 = posterior[0] + posterior[1] * noise[0][t]
            of_z2 = gaussian(layers["prior_z2_first"], z1)
        else:
            before = z2, actions[t - 1]
            posterior = gaussian(layers["posterior_z1"], features[t], *before)
            prior = gaussian(layers["prior_z1"], *before)
            z1 = posterior[0] + posterior[1] * noise[0][t]
            of_z2 = gaussian(layers["prior_z2"], z1, *before)
        z2 = of_z2[0] + of_z2[1] * noise[1][t]
        found.append((jnp.concatenate([z1, z2]), posterior, prior))
    return found


def loss_of_row(layers, images, actions, rewards, first, found):
    """Image, reward and divergence, each summed over time."""
    latents = [latent for latent, _, _ in found]
    decoded = decode(layers["decoder"], jnp.stack(latents))
    of_image = -log_normal(images, decoded, jnp.full(decoded.shape, PIXEL_STD))
    of_reward = divergence = 0.0
    for t in range(FRAMES - 1):
        if not first[t + 1]:  # no reward is received from an episode to the next
            mean, std = gaussian(layers["reward_head"], latents[t], actions[t], latents[t + 1])
            of_reward -= log_normal(rewards[t], mean, std)
    for _, (mean, std), (prior_mean, prior_std) in found:
        ratio, distance = std / prior_std, (mean - prior_mean) / prior_std
        divergence += 0.5 * jnp.sum(ratio**2 + distance**2 - 1 - 2 * jnp.log(ratio))
    return jnp.stack([of_image, of_reward, divergence])


def act(layers, features, actions, first, noise):
    """An action and its log-density from frames of one row and the actions between them."""
    start = max(np.nonzero(first)[0], default=0)
    seen = [features[max(t, start)] for t in range(len(first))]
    done = [actions[t] * (t >= start) for t in range(len(first) - 1)]
    raw = mlp(layers["Mlp_0"], jnp.concatenate([*seen, *done]), lambda x: jnp.maximum(x, 0))
    mean, log_std = raw[: small.WIDTH], jnp.clip(raw[small.WIDTH :], -20, 2)
    action = jnp.tanh(mean + jnp.exp(log_std) * noise)
    of_normal = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    log_density = jnp.sum((of_normal - jnp.log(1 - action**2))[:OWN])
    return action * (np.arange(small.WIDTH) < OWN), log_density


def values(layers, latent, action):
    both = jnp.concatenate([latent, action])
    return jnp.concatenate([
        mlp(layers[f"Mlp_{i}"], both, lambda x: jnp.maximum(x, 0)) for i in range(2)
    ])  # fmt: skip


def reference(own, target, windows, noise, next_noise, actor_noise):
    """Loss by part, each as it reaches the parameters of the same name, and metrics by name."""
    model, actor, critics = (part["params"] for part in own[:3])
    alpha = jnp.exp(own.log_temperature)
    images = windows.observation.astype(np.float32) / 255
    rows = []
    for row in range(len(images)):
        first, actions = FIRST[row], windows.action[row]
        features = encode(model["encoder"], images[row])
        found = filter_row(model, features, actions, first, [x[:, row] for x in noise])
        of_model = jnp.zeros(3)
        if row < LEARNING:
            of_model = loss_of_row(model, images[row], actions, windows.reward[row], first, found)
        before, after = found[-2][0], found[-1][0]
        next_action, next_density = act(
            actor, features[1:], actions[1:-1], first[1:], next_noise[row]
        )
        following = values(target["params"], after, next_action).min() - alpha * next_density
        y = windows.reward[row, -2] + 0.99 * windows.discount[row, -2] * following
        q = values(critics, before, actions[-2])
        action, density = act(actor, features[:-1], actions[:-2], first[:-1], actor_noise[row])
        of_actor = alpha * density - values(critics, before, action).min()
        of_temperature = own.log_temperature * jax.lax.stop_gradient(OWN - density)
        error = jnp.sum((q - jax.lax.stop_gradient(y)) ** 2)
        rows.append([*of_model, 0.5 * error, of_actor, of_temperature, -density, q.mean()])
    table = jnp.asarray(rows)
    image, reward, divergence = table[:LEARNING, :3].mean(0)
    critic, of_actor, of_temperature, entropy, q = table[:, 3:].mean(0)
    losses = image + reward + divergence, critic, of_actor, of_temperature
    names = ("image", "reward", "divergence", "model", "critic", "actor", "temperature")
    each = (image, reward, divergence, *losses)
    metrics = {f"loss_{name}": loss for name, loss in zip(names, each, strict=True)}
    return dict(zip(PARTS, losses, strict=True)), metrics | {"entropy": entropy, "q_mean": q}


def test_losses_and_gradients_equal_a_slow_reference():
    agent = small.agent_of("slac")
    rng = np.random.default_rng(1)
    start = small.state_of("slac")

    def moved(tree):  # biases are zero at first, and targets are the critics
        return jax.tree.map(lambda x: x + rng.normal(0, 0.1, x.shape).astype(np.float32), tree)

    own, target = moved(start.params.agent), moved(start.target_params)
    state = start._replace(params=start.params._replace(agent=own), target_params=target)
    batch = small.batch_of(agent, OWN)
    windows = batch.transitions._replace(is_first=FIRST)
    windows.discount[1, -2] = 0.0  # a terminal step
    after, result = small.update_of("slac")(
        small.run_of(agent, OWN), state, batch._replace(transitions=windows)
    )

    _, key = jax.random.split(jax.random.wrap_key_data(state.key))
    noise_key, behaviour_key = jax.random.split(key)
    sizes = zip(jax.random.split(noise_key), (3, 4), strict=True)
    noise = [jax.random.normal(k, (FRAMES, small.BATCH, size)) for k, size in sizes]
    shape = (small.BATCH, small.WIDTH)
    of_actions = [jax.random.normal(k, shape) for k in jax.random.split(behaviour_key)]
    expected = functools.partial(
        reference, target=target, windows=windows, noise=noise,
        next_noise=of_actions[0], actor_noise=of_actions[1],
    )  # fmt: skip

    @jax.jit
    def losses_and_gradients(own):
        def loss_of(part):
            return lambda value: expected(own._replace(**{part: value}))[0][part]

        gradients = {part: jax.grad(loss_of(part))(getattr(own, part)) for part in PARTS}
        return expected(own)[1], gradients

    metrics, gradients = losses_and_gradients(own)
    for name, value in metrics.items():
        assert result.metrics[name] == pytest.approx(float(value), rel=1e-4), name
    states = after.opt_state
    moments = states.model, states.critics, states.actor, states.temperature
    for part, moment in zip(PARTS, moments, strict=True):
        scale = max(np.abs(x).max() for x in jax.tree.leaves(gradients[part]))
        for (path, own_part), found in zip(
            jax.tree.leaves_with_path(gradients[part]), jax.tree.leaves(moment.mu), strict=True
        ):
            # Adam's first moment is a tenth of its first gradient.
            np.testing.assert_allclose(
                10 * found, own_part, rtol=1e-3, atol=1e-5 * scale, err_msg=f"{part} {path}"
            )
