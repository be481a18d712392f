"""The kernels of the data-efficient encoder."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.rainbow.encoders import data_efficient as encoders
from rcrl_jax.ops import native

KERNELS = native.get("encoder")
needs_kernels = pytest.mark.skipif(
    KERNELS is None, reason="encoder.cc is not compiled, or this processor has no AVX-512"
)


def whole_numbers(images: int, width: int, seed: int = 0):
    """Inputs of which every sum is a whole number, or one and a half, that float32 holds."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 16, (images, 225, width), np.uint8)
    w1 = rng.integers(-1, 2, (width, 32)).astype(np.float32)
    w2 = rng.integers(-1, 2, (800, 64)).astype(np.float32)
    b1, b2 = (np.full(size, 0.5, np.float32) for size in (32, 64))
    gradient = rng.integers(-2, 3, (images, 576)).astype(np.float32)
    return pixels, (w1, b1, w2, b2), gradient


def slowly(pixels, weights, gradient):
    """Features `[N, 576]` and the gradients by the weights, in float64."""
    w1, b1, w2, b2 = (np.asarray(w, np.float64) for w in weights)
    n, rows = len(pixels), pixels.reshape(-1, len(w1)).astype(np.float64)
    cells = np.maximum(rows @ w1 + b1, 0).reshape(n * 9, 800)
    features = np.maximum(cells @ w2 + b2, 0)
    passed = np.where(features > 0, np.asarray(gradient, np.float64).reshape(n * 9, 64), 0)
    of_cells = np.where(cells > 0, passed @ w2.T, 0).reshape(-1, 32)
    by_weights = rows.T @ of_cells, of_cells.sum(0), cells.T @ passed, passed.sum(0)
    return features.reshape(n, 576), by_weights


def by_kernels(pixels, weights, gradient, encode=None):
    """As `slowly`."""
    encode = encode or KERNELS.encode
    features, pull_back = jax.vjp(lambda weights: encode(pixels, *weights), weights)
    return features, pull_back(jnp.asarray(gradient))[0]


@needs_kernels
@pytest.mark.parametrize("images, width", [(1, 100), (5, 7), (16, 25), (33, 100), (33, 64)])
def test_whole_numbers_are_exact(images, width):
    """Of one image, of a group, and of groups of which the last is not full."""
    inputs = whole_numbers(images, width)
    features, gradients = slowly(*inputs)
    assert 0.2 < np.mean(features > 0) < 0.8
    found, by_weights = by_kernels(*inputs)
    np.testing.assert_array_equal(found, features)
    for own, right in zip(by_weights, gradients, strict=True):
        np.testing.assert_array_equal(own, right)


@needs_kernels
def test_the_error_is_far_below_that_of_tf32():
    """With positive weights every ReLU passes, so no sum near 0 decides about a gradient."""
    rng = np.random.default_rng(1)
    pixels, _, _ = whole_numbers(20, 100)
    pixels = rng.integers(0, 256, pixels.shape, np.uint8)
    shapes = (100, 32), (32,), (800, 64), (64,)
    weights = tuple(rng.uniform(0.1, 1, shape).astype(np.float32) for shape in shapes)
    gradient = rng.normal(size=(20, 576)).astype(np.float32)

    def rounded(numbers):
        return np.asarray(jax.lax.reduce_precision(numbers, 8, 10))

    w1, b1, w2, b2 = weights
    right, by_weights = slowly(pixels, weights, gradient)
    tf32, tf32_by_weights = slowly(pixels, (rounded(w1), b1, rounded(w2), b2), rounded(gradient))
    rounded_weights = (tf32, tf32_by_weights[0], tf32_by_weights[2])
    exact = (right, by_weights[0], by_weights[2])
    results = by_kernels(pixels, weights, gradient)
    own, own_by_weights = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), results)
    found = (own, own_by_weights[0], own_by_weights[2])
    for one, rounded_one, exact_one in zip(found, rounded_weights, exact, strict=True):
        assert np.std(one - exact_one) < np.std(rounded_one - exact_one) / 10
    np.testing.assert_allclose(own_by_weights[3], by_weights[3], rtol=1e-4, atol=1e-3)


@needs_kernels
def test_a_run_of_a_fleet_equals_the_run_alone():
    runs = [whole_numbers(18, 25, seed) for seed in range(3)]
    runs = [(x, tuple(w * np.float32(0.37) for w in weights), g) for x, weights, g in runs]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *runs)
    together = jax.jit(jax.vmap(by_kernels))(*stacked)
    for i, run in enumerate(runs):
        alone = jax.jit(by_kernels)(*run)
        for own, right in zip(jax.tree.leaves(together), jax.tree.leaves(alone), strict=True):
            np.testing.assert_array_equal(own[i], right)


@needs_kernels
@pytest.mark.parametrize("which", [0, 3])
def test_a_weight_that_is_not_a_number_is_noticed(which):
    pixels, weights, gradient = whole_numbers(2, 25)
    weights[which].flat[0] = np.nan
    features, _ = by_kernels(pixels, weights, gradient)
    assert np.isnan(features).any()


@needs_kernels
def test_no_images_give_no_features_and_no_gradient():
    features, by_weights = by_kernels(*whole_numbers(0, 25))
    assert features.shape == (0, 576)
    assert not any(np.any(gradient) for gradient in by_weights)


@needs_kernels
def test_other_shapes_are_refused():
    pixels, (w1, b1, w2, b2), gradient = whole_numbers(2, 25)

    def encode(*arguments):  # an error may come after the call returns
        return jax.block_until_ready(KERNELS.encode(*arguments))

    with pytest.raises(Exception, match="225 cells"):
        encode(pixels[:, :9], w1, b1, w2, b2)
    with pytest.raises(Exception, match="not those of the encoder"):
        encode(pixels, w1[:, :16], b1[:16], w2[:400], b2)
    with pytest.raises(Exception, match="second bias"):
        encode(pixels, w1, b1, w2, b2[:1])
    with pytest.raises(Exception, match="gradients have other shapes"):
        saved = (pixels, w1, b1, w2, gradient)
        jax.block_until_ready(KERNELS._backward(saved, gradient[:1])[1:])


def encode_each(pixels, w1, b1, w2, b2):
    """By the function that chooses the platform, which takes the kernels of convolutions."""
    w1 = 255.0 * w1.reshape(-1, 5, 5, 32).transpose(1, 2, 0, 3)
    observation = pixels.reshape(len(pixels), 225, -1, 25)
    return encoders.encode_each((observation,), w1, b1, w2.reshape(5, 5, 32, 64), b2)[0]


def lowered(platform: str) -> str:
    pixels, weights, gradient = whole_numbers(1, 25)
    inputs = (pixels, weights, gradient)
    program = jax.jit(functools.partial(by_kernels, encode=encode_each))
    return program.trace(*inputs).lower(lowering_platforms=(platform,)).as_text()


@pytest.mark.parametrize("precision", ["tensorfloat32", "highest", "BF16_BF16_F32"])
def test_the_encoder_calls_the_kernels_on_the_cpu_alone_and_not_in_bfloat16(precision, monkeypatch):
    compiled = KERNELS is not None and precision != "BF16_BF16_F32"
    with jax.default_matmul_precision(precision):
        assert ("rcrl_patches_encode" in lowered("cpu")) == compiled
        assert ("rcrl_patches_differentiate" in lowered("cpu")) == compiled
        assert "rcrl_patches" not in lowered("cuda")
        monkeypatch.setattr(native, "get", lambda name: None)
        jax.clear_caches()  # JAX remembers what each platform computes
        assert "rcrl_patches" not in lowered("cpu")
