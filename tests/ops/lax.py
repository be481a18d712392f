"""The convolution of jax.lax, which ours are compared with."""

import jax


def convolve(images, kernel, bias=None, stride=1, padding="VALID", **options):
    """`[N, H, W, in] -> [N, H', W', out]`."""
    y = jax.lax.conv_general_dilated(
        images, kernel, (stride, stride), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"),
        **options,
    )  # fmt: skip
    return y if bias is None else y + bias[None, None, None]
