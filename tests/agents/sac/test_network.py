"""SAC's networks: initial values and shapes; `test_branches.py` compares their values."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.sac import network as sac

SIZE, FRAME_STACK, FILTERS = 17, 2, 4


def gram(kernel):
    """Products of its rows or of its columns, whichever are fewer; identity if orthogonal."""
    return kernel @ kernel.T if kernel.shape[0] <= kernel.shape[1] else kernel.T @ kernel


def images():
    return np.random.default_rng(0).integers(0, 256, (3, FRAME_STACK, SIZE, SIZE, 3), np.uint8)


@pytest.mark.parametrize("inputs, outputs", [(9, 32), (32, 32), (32, 9)])
def test_a_delta_orthogonal_kernel_has_an_orthogonal_centre_and_is_zero_elsewhere(inputs, outputs):
    init = sac.delta_orthogonal(math.sqrt(2.0))
    kernel = np.array(init(jax.random.key(0), (3, 3, inputs, outputs)))
    centre = kernel[1, 1].copy()
    np.testing.assert_allclose(gram(centre), 2.0 * np.eye(min(inputs, outputs)), atol=1e-5)
    kernel[1, 1] = 0.0
    assert not kernel.any()


def test_embeddings_have_mean_0_and_variance_1():
    network = sac.Embedding(5)
    x = np.random.default_rng(0).normal(size=(4, 20)).astype(np.float32)
    psi = np.array(jax.jit(network.init_with_output)(jax.random.key(0), x)[0])
    np.testing.assert_allclose(psi.mean(axis=1), 0.0, atol=1e-5)
    np.testing.assert_allclose(psi.std(axis=1), 1.0, rtol=1e-3)


def test_critics_share_no_weights_and_start_orthogonal():
    network = sac.TwinCritics(16)
    x = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    values, params = jax.jit(network.init_with_output)(jax.random.key(0), x)
    assert values.shape == (4, 2)
    for name, layer in params["params"].items():
        kernel = np.array(layer["kernel"], np.float64)
        np.testing.assert_allclose(gram(kernel), np.eye(min(kernel.shape)), atol=1e-5, err_msg=name)
        assert not layer["bias"].any()
    jacobian = jax.jit(jax.jacrev(lambda p: network.apply(p, x).sum(axis=0)))(params)["params"]
    for i, critic in enumerate(("first", "second")):
        for name, layer in jacobian.items():
            assert bool(np.any(layer["kernel"][i])) == name.startswith(critic), name


def test_all_layers_start_orthogonal_with_zero_biases():
    """Convolutions in their centre, with the gain of a ReLU."""
    x = images()
    features, convolutions = jax.jit(sac.Convolutions(FILTERS).init_with_output)(
        jax.random.key(0), x
    )
    layers = [(layer, 2.0) for layer in convolutions["params"].values()]
    for network, inputs in ((sac.Embedding(5), features), (sac.Actor(8, 3, -10.0, 2.0), features)):
        made = jax.jit(network.init)(jax.random.key(1), inputs)["params"]
        layers += [(made[name], 1.0) for name in made if name.startswith("Dense")]
    assert len(layers) == 4 + 1 + 3
    for layer, square in layers:
        kernel = np.array(layer["kernel"], np.float64)
        if kernel.ndim == 4:
            centre = kernel[1, 1].copy()
            kernel[1, 1] = 0.0
            assert not kernel.any()
            kernel = centre
        np.testing.assert_allclose(gram(kernel), square * np.eye(min(kernel.shape)), atol=1e-5)
        assert not layer["bias"].any()


def test_log_std_is_squashed_between_its_bounds_and_keeps_a_gradient():
    network = sac.Actor(8, 3, -10.0, 2.0)
    x = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    policy, params = jax.jit(network.init_with_output)(jax.random.key(0), x)
    assert policy.mean.shape == policy.log_std.shape == (4, 3)
    last = params["params"]["Dense_2"]

    @jax.jit
    def policy_and_gradient(params):
        gradient = jax.grad(lambda p: network.apply(p, x).log_std.sum())(params)
        return network.apply(params, x), gradient["params"]["Dense_2"]["bias"]

    for bias, expected in [(-2.0, -9.7842), (0.0, -4.0), (2.0, 1.7842)]:
        params["params"]["Dense_2"] = {
            "kernel": jnp.zeros_like(last["kernel"]),
            "bias": jnp.full_like(last["bias"], bias),
        }
        policy, gradient = policy_and_gradient(params)
        np.testing.assert_allclose(policy.log_std, expected, rtol=1e-4)
        np.testing.assert_allclose(policy.mean, bias)
        assert np.all(gradient[3:] > 0)


@pytest.mark.parametrize("size", [17, 18, 84])
def test_decoder_outputs_images_of_the_encoder_s_size(size):
    decoder = sac.Decoder(4, size, 6)
    shape = jax.eval_shape(
        lambda key, psi: decoder.init_with_output(key, psi)[0],
        jax.random.key(0), jnp.zeros((2, 5)),
    ).shape  # fmt: skip
    assert shape == (2, size, size, 6)
    assert sac.conv_sizes(17) == [8, 6, 4, 2]


def test_the_decoder_predicts_zero_where_the_encoder_does_not_look():
    decoder, psi = sac.Decoder(4, 18, 6), jnp.ones((2, 5))
    params = jax.tree.map(lambda x: jnp.abs(x) + 0.1, decoder.init(jax.random.key(0), psi))
    image = np.asarray(decoder.apply(params, psi))
    assert image[:, :17, :17].all()
    assert not image[:, 17].any() and not image[:, :, 17].any()


def test_actor_and_critics_have_two_hidden_layers_of_relus():
    x = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)

    def slow(params, names):
        y = x
        for i, name in enumerate(names):
            layer = params["params"][name]
            y = y @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
            y = np.maximum(y, 0) if i < 2 else y
        return y

    values, params = jax.jit(sac.TwinCritics(16).init_with_output)(jax.random.key(0), x)
    for i, critic in enumerate(("first", "second")):
        names = [f"{critic}_{part}" for part in ("hidden_1", "hidden_2", "value")]
        np.testing.assert_allclose(values[:, [i]], slow(params, names), rtol=1e-4, atol=1e-5)
    policy, params = jax.jit(sac.Actor(8, 3, -10.0, 2.0).init_with_output)(jax.random.key(0), x)
    raw = slow(params, [f"Dense_{i}" for i in range(3)])
    np.testing.assert_allclose(policy.mean, raw[:, :3], rtol=1e-4, atol=1e-5)
