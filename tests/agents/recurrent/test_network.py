"""The world model's networks: cells by hand, one loop equal to single steps."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents import world_models
from rcrl_jax.agents.recurrent import network as rssm
from tests.ops import lax

SMALL = {
    "filters": 1, "deter": 5, "stoch": 3, "hidden": 4, "reward_layers": 2, "reward_width": 4,
    "activation": nn.elu, "cell": rssm.KerasGru, "joint_stats": True,
}  # fmt: skip


def make(**changes):
    model = rssm.WorldModel(**(SMALL | changes))
    image, action = jnp.zeros((1, 64, 64, 3)), jnp.zeros((1, 2))
    return model, jax.jit(model.init)(jax.random.key(0), image, action)


def sigmoid(x):
    return 1.0 / (1.0 + np.exp(-x))


@pytest.mark.parametrize("cell", [rssm.KerasGru, rssm.BlockGru])
def test_cells_follow_their_equations(cell):
    """Weights of one kind of gate after the other, worked out in double precision."""
    rng = np.random.default_rng(0)
    hidden, x = rng.normal(size=(2, 3)), rng.normal(size=(2, 4))
    module = cell(3)
    shapes = jax.eval_shape(module.init, jax.random.key(0), hidden, x)
    params = jax.tree.map(lambda s: rng.normal(size=s.shape), shapes)
    p = params["params"]
    if cell is rssm.KerasGru:
        i, s = x @ p["kernel"] + p["bias"][0], hidden @ p["recurrent"] + p["bias"][1]
        keep, reset = sigmoid(i[:, :3] + s[:, :3]), sigmoid(i[:, 3:6] + s[:, 3:6])
        candidate = np.tanh(i[:, 6:] + reset * s[:, 6:])  # after the product
    else:
        gates = sigmoid(np.concatenate([x, hidden], 1) @ p["gates_kernel"] + p["gates_bias"])
        reset, keep = gates[:, :3], gates[:, 3:]
        joined = np.concatenate([x, reset * hidden], 1)  # before the product
        candidate = np.tanh(joined @ p["candidate_kernel"] + p["candidate_bias"])
    expected = keep * hidden + (1 - keep) * candidate
    np.testing.assert_allclose(module.apply(params, hidden, x), expected, rtol=1e-5, atol=1e-6)


def test_initial_weights_are_those_of_keras_and_tensorflow():
    _, params = make(cell=rssm.BlockGru, deter=50, hidden=70)
    gru = params["params"]["gru"]
    assert np.all(gru["gates_bias"] == 1) and not gru["candidate_bias"].any()
    _, params = make(deter=50, hidden=70)
    gru, posterior = params["params"]["gru"], params["params"]["posterior_kernel"]
    # Drawn as one matrix: the bound of each gate is that of 70 inputs and 150 outputs.
    bound = np.sqrt(6 / (70 + 150))
    assert 0.98 * bound < np.abs(gru["kernel"]).max() <= bound
    np.testing.assert_allclose(gru["recurrent"] @ gru["recurrent"].T, np.eye(50), atol=1e-5)
    assert not gru["bias"].any()
    for joint, outputs in ((True, 40), (False, 20)):  # means and deviations by one layer, or two
        _, params = make(hidden=30, stoch=20, joint_stats=joint)
        bound = np.sqrt(6 / (30 + outputs))
        for name in ("prior_stats", "posterior_stats"):
            for half in np.split(params["params"][name]["kernel"], 2, axis=1):
                assert 0.95 * bound < np.abs(half).max() <= bound
    bound = np.sqrt(6 / (50 + 32 + 70))  # one matrix for [h, e]
    assert 0.98 * bound < np.abs(posterior).max() <= bound


def slow_step(params, last, action, projected, noise):
    """One filter step of one sequence in double precision; ELU and Keras's GRU."""
    p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["params"])

    def affine(name, x):
        return x @ p[name]["kernel"] + p[name]["bias"]

    def elu(x):
        return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)

    def stats(x):
        mean, raw = np.split(x, 2)
        return mean, np.log1p(np.exp(raw)) + 0.1

    sample, deter = last
    x = elu(affine("transition", np.concatenate([sample, action])))
    i, s = x @ p["gru"]["kernel"], deter @ p["gru"]["recurrent"]
    i, s = i + p["gru"]["bias"][0], s + p["gru"]["bias"][1]
    n = len(deter)
    keep, reset = sigmoid(i[:n] + s[:n]), sigmoid(i[n : 2 * n] + s[n : 2 * n])
    deter = keep * deter + (1 - keep) * np.tanh(i[2 * n :] + reset * s[2 * n :])
    prior = stats(affine("prior_stats", elu(affine("prior_hidden", deter))))
    joined = deter @ p["posterior_kernel"][:n] + projected + p["posterior_bias"]
    mean, std = stats(affine("posterior_stats", elu(joined)))
    return (mean + std * noise, deter), (mean, std), prior


def window(model, length=4, batch=2):
    rng = np.random.default_rng(3)
    sizes = 2, model.hidden, model.stoch  # of actions, projected embeddings, noise
    return [rng.normal(size=(length, batch, size)).astype(np.float32) for size in sizes]


def test_the_filter_equals_a_slow_reference():
    model, params = make()
    inputs = window(model)
    latents, posteriors = jax.jit(functools.partial(world_models.filter_window, model))(
        params, *inputs
    )
    priors = model.apply(params, latents.deter, method="prior")
    for b in range(2):
        last = np.zeros(3), np.zeros(5)
        for t in range(4):
            last, posterior, prior = slow_step(params, last, *(x[t, b] for x in inputs))
            for mine, reference in ((latents, last), (posteriors, posterior), (priors, prior)):
                for x, y in zip(mine, reference, strict=True):
                    np.testing.assert_allclose(x[t, b], y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cell", [rssm.KerasGru, rssm.BlockGru])
def test_a_filter_step_by_step_equals_the_loop_bit_for_bit(cell):
    """At equal embeddings and noise, as acting and learning have them."""
    model, params = make(cell=cell)
    inputs = window(model)
    loop, _ = jax.jit(functools.partial(world_models.filter_window, model))(params, *inputs)
    observe = jax.jit(functools.partial(model.apply, method="observe"))
    last = model.init_latent(2)
    for t in range(4):
        last, _ = observe(params, last, *(x[t] for x in inputs))
        for stepped, looped in zip(last, loop, strict=True):
            np.testing.assert_array_equal(stepped, looped[t])


def test_the_posterior_reads_frame_and_state_and_imagination_the_prior_alone():
    model, params = make()
    rng = np.random.default_rng(0)
    image = rng.normal(size=(2, 64, 64, 3)).astype(np.float32)
    apply = functools.partial(model.apply, params)
    projected = apply(image, method="project")
    embedding = apply(image, method=lambda m, x: m.encoder(x))
    kernel = params["params"]["posterior_kernel"]
    np.testing.assert_allclose(projected, embedding @ kernel[5:], rtol=1e-5)
    last, action = model.init_latent(2), np.ones((2, 2), np.float32)
    noise = np.ones((2, 3), np.float32)
    latent, _ = apply(last, action, projected, noise, method="observe")
    prior = apply(latent.deter, method="prior")
    imagined = apply(last, action, noise, method="imagine")
    np.testing.assert_array_equal(imagined.deter, latent.deter)
    np.testing.assert_allclose(imagined.sample, prior.mean + prior.std, rtol=1e-6)
    assert latent.feature.shape == (2, 8)
    assert apply(latent.feature, method="decode").shape == image.shape
    assert apply(latent.feature, method="reward").shape == (2,)


def test_encoder_decoder_and_heads_equal_layers_of_lax():
    rng, key = np.random.default_rng(0), jax.random.key(0)
    image, feature = (rng.normal(size=s).astype(np.float32) for s in ((2, 64, 64, 3), (2, 7)))
    found, params = jax.jit(rssm.Encoder(2).init_with_output)(key, image)
    x = image
    for i in range(4):
        x = jax.nn.relu(lax.convolve(x, **params["params"][f"StridedKernel_{i}"], stride=2))
    np.testing.assert_allclose(found, x.reshape(2, -1), rtol=1e-4, atol=1e-5)
    found, params = jax.jit(rssm.Decoder(2).init_with_output)(key, feature)
    x = (feature @ params["params"]["Dense_0"]["kernel"])[:, None, None]
    for i, side in enumerate((5, 5, 6, 6)):
        layer, around = params["params"][f"StridedKernel_{i}"], [(side - 1, side - 1)] * 2
        mirrored = layer["kernel"][::-1, ::-1]
        x = lax.convolve(x, mirrored, layer["bias"], 1, around, lhs_dilation=(2, 2))
        x = jax.nn.relu(x) if i < 3 else x
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)
    found, params = jax.jit(world_models.Mlp(4, 2, 3, nn.elu).init_with_output)(key, feature)
    x = feature
    for i in range(3):  # biases are zero
        x = x @ params["params"][f"Dense_{i}"]["kernel"]
        x = jax.nn.elu(x) if i < 2 else x
    np.testing.assert_allclose(found, x, rtol=1e-4, atol=1e-5)
