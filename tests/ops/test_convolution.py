"""The convolution and its gradients equal those of jax.lax, compiled here or by XLA."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax.ops import convolution, native
from tests.ops import lax

KERNELS = native.get("convolution")
needs_kernels = pytest.mark.skipif(
    KERNELS is None, reason="convolution.cc is not compiled, or not for this processor"
)


def reference(x, kernel, bias, stride, relu):
    y = lax.convolve(x, kernel, bias, stride)
    return jax.nn.relu(y) if relu else y


def inputs(images, height, width, channels, filters, stride, side=3):
    """Images, kernel, bias and a gradient of the output, all random."""
    rng = np.random.default_rng(0)
    shapes = (
        (images, height, width, channels), (side, side, channels, filters), (filters,),
        (images, (height - side) // stride + 1, (width - side) // stride + 1, filters),
    )  # fmt: skip
    return [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def results(function, arrays, stride, relu):
    """Outputs and all gradients."""

    @jax.jit
    def compute(x, kernel, bias, gradient):
        y, backwards = jax.vjp(lambda *a: function(*a, stride, relu), x, kernel, bias)
        return y, *backwards(gradient)

    return [np.asarray(a) for a in compute(*arrays)]


def assert_equal_those_of_lax(arrays, stride, relu, error=1e-5):
    mine = results(convolution.convolve, arrays, stride, relu)
    theirs = results(reference, arrays, stride, relu)
    # Terms of a sum may cancel; then both sums are no more exact than their largest terms allow.
    magnitudes = results(reference, [np.abs(a) for a in arrays], stride, relu)
    for name, *found in zip(("y", "x", "kernel", "bias"), mine, theirs, magnitudes, strict=True):
        one, other, terms = found
        rounding = np.finfo(np.float32).eps * terms.max()
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, atol=error * scale + rounding, err_msg=name)


@pytest.mark.parametrize("kernels", [pytest.param("ours", marks=needs_kernels), "xla"])
@pytest.mark.parametrize(
    "side, stride, height, width, relu",
    [(3, 1, 7, 5, True), (3, 2, 8, 9, False), (3, 2, 9, 8, True), (2, 1, 6, 4, True)],
)
def test_outputs_and_gradients_equal_those_of_lax(
    side, stride, height, width, relu, kernels, monkeypatch
):
    if kernels == "xla":
        monkeypatch.setattr(native, "get", lambda name: None)
        jax.clear_caches()
        assert native.describe()["convolution"] == "XLA"
    assert_equal_those_of_lax(inputs(2, height, width, 3, 4, stride, side), stride, relu)


@needs_kernels
@settings(max_examples=6)
@given(
    sizes=st.tuples(
        st.integers(1, 18), st.integers(3, 9), st.integers(3, 33),
        st.integers(1, 37), st.integers(1, 70), st.integers(1, 3), st.integers(1, 3),
    ),
    relu=st.booleans(),
)  # fmt: skip
def test_any_shape_equals_that_of_lax(sizes, relu):
    x, kernel, bias, gradient = inputs(*sizes)
    if relu:  # sums that are exact, and not 0, where rounding decides what passes
        x, kernel, bias = np.round(3 * x), np.round(3 * kernel), np.round(bias) + 0.5
    assert_equal_those_of_lax([x, kernel, bias, gradient], sizes[5], relu)


@needs_kernels
@pytest.mark.parametrize("stride", [1, 2])
def test_every_set_of_instructions_gives_the_same_numbers(stride):
    """Bit for bit; a fleet may resume on a processor without AVX-512."""
    use, fastest = KERNELS._convolution.use, KERNELS.INSTRUCTIONS
    assert fastest in ("Avx2", "Avx512") and native.describe()["convolution"] == fastest
    arrays = inputs(9, 7, 31, 20, 40, stride)
    expected = results(convolution.convolve, arrays, stride, True)
    try:
        use("Avx2")
        found = results(convolution.convolve, arrays, stride, True)
    finally:
        use(fastest)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    with pytest.raises(ValueError, match="no instructions abacus"):
        use("abacus")


@needs_kernels
def test_a_batch_of_convolutions_equals_one_after_the_other():
    x, kernel, bias, _ = inputs(2, 5, 6, 3, 4, 1)
    batched = jax.vmap(lambda x, k, b: convolution.convolve(x, k, b, 1, True))
    stacked = [np.stack([a, 2 * a]) for a in (x, kernel, bias)]
    for i, y in enumerate(batched(*stacked)):
        own = convolution.convolve(*(a[i] for a in stacked), 1, True)
        np.testing.assert_array_equal(y, own)


@needs_kernels
@pytest.mark.parametrize("channels, bad", [(3, np.nan), (32, np.inf)])
def test_what_is_not_finite_shows_where_that_of_lax_does(bad, channels):
    x, kernel, bias, gradient = inputs(2, 6, 7, channels, 5, 1)
    x[1, 2, 3, 1] = bad
    mine = results(convolution.convolve, (x, kernel, bias, gradient), 1, True)
    theirs = results(reference, (x, kernel, bias, gradient), 1, True)
    assert not np.isfinite(mine[0]).all() and not np.isfinite(mine[2]).all()
    for one, other in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(np.isfinite(one), np.isfinite(other))


@needs_kernels
def test_no_images_give_no_outputs_and_no_gradient():
    x, kernel, bias, gradient = inputs(0, 6, 7, 3, 5, 1)
    y, *gradients = results(convolution.convolve, (x, kernel, bias, gradient), 1, True)
    assert y.shape == (0, 4, 5, 5)
    assert all(not g.any() for g in gradients)


@needs_kernels
def test_the_kernels_refuse_shapes_that_do_not_fit():
    x, kernel, bias, gradient = inputs(2, 5, 6, 3, 4, 1)
    wait = jax.block_until_ready  # an error may come after the call returns
    with pytest.raises(Exception, match="a bias for each filter"):
        wait(KERNELS.convolve(x, kernel, bias[:2], stride=1, relu=True))
    with pytest.raises(Exception, match="not those of a convolution"):
        wait(KERNELS.convolve(x[..., :2], kernel, bias, stride=1, relu=True))
    with pytest.raises(Exception, match="not those of a convolution"):
        wait(KERNELS.image_gradient(kernel[:0, :0], x, x, relu=False))
    with pytest.raises(Exception, match="differ"):
        options = {"side": 3, "stride": 1, "relu": True}
        wait(KERNELS.kernel_gradient(x, gradient[:1], gradient, **options))


@needs_kernels
@pytest.mark.parametrize("precision", ["tensorfloat32", "highest", "BF16_BF16_F32"])
def test_the_kernel_leaves_products_of_bfloat16_to_xla(precision):
    x, kernel, bias, _ = inputs(1, 5, 5, 3, 4, 1)
    convolve = jax.jit(lambda *arrays: convolution.convolve(*arrays, 1, True))
    with jax.default_matmul_precision(precision):
        text = convolve.lower(x, kernel, bias).as_text()
    assert ("rcrl_convolve" in text) == (precision != "BF16_BF16_F32")
