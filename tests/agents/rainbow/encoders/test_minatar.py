"""The encoder of MinAtar's frames equals a convolution in loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax import observations
from rcrl_jax.agents.rainbow.encoders.minatar import MinAtarEncoder

ENCODER = MinAtarEncoder()
IMAGES, STACK = 3, 2


def frames_of(channels: int) -> np.ndarray:
    """`[N, C, 10, 10, channels] uint8`."""
    return np.random.default_rng(0).integers(0, 2, (IMAGES, STACK, 10, 10, channels), np.uint8)


def packed(frames: np.ndarray) -> np.ndarray:
    return observations.as_bits(frames.shape[2:]).stack(frames)


def loops(kernel, bias, frames, direction):
    """psi, and the gradients of `sum(psi * direction)` for the kernel and the bias."""
    images = np.concatenate(frames.swapaxes(0, 1), axis=-1)  # [N, 10, 10, C * channels]
    psi = np.zeros((len(images), 4, 4, 16))
    direction = direction.reshape(psi.shape)
    of_kernel, of_bias = np.zeros(kernel.shape), np.zeros(bias.shape)
    for n, y, x, out in np.ndindex(psi.shape):
        window = images[n, 2 * y : 2 * y + 4, 2 * x : 2 * x + 4].transpose(2, 0, 1)
        value = np.sum(window * kernel[..., out]) + bias[out]
        if value > 0:
            psi[n, y, x, out] = value
            of_kernel[..., out] += window * direction[n, y, x, out]
            of_bias[out] += direction[n, y, x, out]
    return psi.reshape(len(images), -1), of_kernel, of_bias


@pytest.mark.parametrize("channels", [1, 4, 7])
def test_psi_and_its_gradients_equal_those_of_loops(channels):
    frames = frames_of(channels)
    params = ENCODER.init(jax.random.key(0), packed(frames))["params"]
    direction = np.random.default_rng(1).normal(size=(IMAGES, 256)).astype(np.float32)

    def value(params):
        psi = ENCODER.apply({"params": params}, packed(frames))
        return jnp.sum(psi * direction), psi

    gradients, psi = jax.grad(value, has_aux=True)(params)
    kernel, bias = (np.asarray(params[f"conv1_{part}"], np.float64) for part in ("kernel", "bias"))
    expected = loops(kernel, bias, frames, direction)
    assert psi.shape == (IMAGES, 256) and 0.2 < np.mean(np.asarray(psi) > 0) < 0.8
    found = psi, gradients["conv1_kernel"], gradients["conv1_bias"]
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_several_batches_are_encoded_as_one_is():
    frames = packed(frames_of(4))
    params = ENCODER.init(jax.random.key(0), frames)
    each = ENCODER.apply(params, (frames[:1], frames[1:]), method="encode_each")
    whole = ENCODER.apply(params, frames)
    np.testing.assert_allclose(np.concatenate(each), whole, rtol=1e-5, atol=1e-6)


def test_channels_of_zeros_change_nothing():
    few = frames_of(4)[:, :1]
    many = np.pad(few, [(0, 0)] * 4 + [(0, 6)])
    one, other = (ENCODER.init_with_output(jax.random.key(0), packed(x)) for x in (few, many))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-5, atol=1e-6)


def test_initial_values_are_uniform_within_one_over_the_root_of_160():
    params = ENCODER.init(jax.random.key(0), packed(frames_of(4)))["params"]
    assert {name: array.shape for name, array in params.items()} == {
        "conv1_kernel": (STACK * 4, 4, 4, 16), "conv1_bias": (16,),
    }  # fmt: skip
    for array in params.values():
        values = np.ravel(array) * np.sqrt(160)
        assert stats.kstest(values, "uniform", args=(-1, 2)).pvalue > 1e-3
