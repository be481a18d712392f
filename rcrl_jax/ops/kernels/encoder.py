"""Calls the kernels of `encoder.cc`, the data-efficient encoder on the CPU."""

import jax
import jax.numpy as jnp

from rcrl_jax.ops.kernels import _encoder

for _name in ("encode", "differentiate"):
    jax.ffi.register_ffi_target(f"rcrl_patches_{_name}", getattr(_encoder, _name), platform="cpu")
INSTRUCTIONS = _encoder.INSTRUCTIONS


@jax.custom_vjp
def encode(
    pixels: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array
) -> jax.Array:
    """See `encode_patches` of `encoders/data_efficient.py`; the CPU alone has it."""
    outputs = jax.ShapeDtypeStruct((len(pixels), 9, 64), jnp.float32)
    return _call("encode", outputs)(pixels, w1, b1, w2, b2).reshape(len(pixels), 9 * 64)


def _forward(pixels, w1, b1, w2, b2):
    features = encode(pixels, w1, b1, w2, b2)
    return features, (pixels, w1, b1, w2, features)


def _backward(saved, gradient):
    _, w1, b1, w2, _ = saved
    results = [
        jax.ShapeDtypeStruct(shape, jnp.float32)
        for shape in (w1.shape, b1.shape, w2.shape, w2.shape[1:])
    ]
    return None, *_call("differentiate", results)(*saved, gradient)


encode.defvjp(_forward, _backward)


def _call(name: str, results):
    # The kernels take all runs of a fleet at once.
    return jax.ffi.ffi_call(f"rcrl_patches_{name}", results, vmap_method="broadcast_all")
