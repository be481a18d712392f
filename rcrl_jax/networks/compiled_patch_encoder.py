"""Calls the kernels of `patch_encoder.cc`, the data-efficient encoder on the CPU."""

import functools

import jax
import jax.numpy as jnp

from rcrl_jax.networks import precision

try:
    from rcrl_jax.networks import _patch_encoder

    for _name in ("encode", "differentiate"):
        jax.ffi.register_ffi_target(
            f"rcrl_patches_{_name}", getattr(_patch_encoder, _name), platform="cpu"
        )
except (ImportError, RuntimeError):  # not compiled, or for another version of JAX
    _patch_encoder = None


def is_compiled() -> bool:
    """Whether `patch_encoder.cc` was compiled when the package was installed."""
    return _patch_encoder is not None


def instructions() -> str:
    """What encodes patches on this CPU: the kernels' instructions, such as 'Avx512', or 'XLA'.

    'Amx' is for TF32; in float32 such a processor uses its vectors, and in bfloat16 every one XLA.
    """
    compiled = _patch_encoder.instructions() if is_compiled() else []
    return compiled[-1] if compiled else "XLA"


@jax.custom_vjp
def encode(
    pixels: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array
) -> jax.Array:
    """See `encoders.encode_patches`; the CPU alone has it."""
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
    # The kernels take all runs of a fleet at once. A matrix unit computes in TF32 alone.
    call = jax.ffi.ffi_call(f"rcrl_patches_{name}", results, vmap_method="broadcast_all")
    return functools.partial(call, tf32=precision.is_tf32())
