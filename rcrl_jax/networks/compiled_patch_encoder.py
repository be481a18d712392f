"""Calls the kernels of `patch_encoder.cc`, an encoder for CPUs with a matrix unit."""

import jax
import jax.numpy as jnp

_has_unit = False
try:
    from rcrl_jax.networks import _patch_encoder

    if hasattr(_patch_encoder, "encode"):  # the processor has a matrix unit
        for _name in ("encode", "differentiate"):
            jax.ffi.register_ffi_target(
                f"rcrl_patches_{_name}", getattr(_patch_encoder, _name), platform="cpu"
            )
        _has_unit = True
except (ImportError, RuntimeError):  # not compiled, or for another version of JAX
    _patch_encoder = None


def is_compiled() -> bool:
    """Whether `patch_encoder.cc` was compiled when the package was installed."""
    return _patch_encoder is not None


def instructions() -> str:
    """What encodes patches on the CPU in TF32: 'Amx', the kernels, or 'XLA'."""
    return "Amx" if _has_unit else "XLA"


@jax.custom_vjp
def encode(
    pixels: jax.Array, w1: jax.Array, b1: jax.Array, w2: jax.Array, b2: jax.Array
) -> jax.Array:
    """See `encoders.encode_patches`; the kernels have 225 patches, I = 32 and O = 64."""
    outputs = jax.ShapeDtypeStruct((len(pixels), 9, 64), jnp.float32)
    return _call("encode", outputs)(pixels, w1, b1, w2, b2).reshape(len(pixels), 9 * 64)


def _forward(pixels, w1, b1, w2, b2):
    features = encode(pixels, w1, b1, w2, b2)
    return features, (pixels, w1, b1, w2, features)


def _backward(saved, gradient):
    _, w1, b1, w2, _ = saved
    results = [
        jax.ShapeDtypeStruct(shape, jnp.float32)
        for shape in (w1.shape[::-1], b1.shape, w2.shape[::-1], w2.shape[1:])
    ]
    by_w1, by_b1, by_w2, by_b2 = _call("differentiate", results)(*saved, gradient)
    return None, by_w1.T, by_b1, by_w2.T, by_b2


encode.defvjp(_forward, _backward)


def _call(name: str, results):
    # The kernels take all runs of a fleet at once.
    return jax.ffi.ffi_call(f"rcrl_patches_{name}", results, vmap_method="broadcast_all")
