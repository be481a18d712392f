"""Losses as pure functions, written for one item and batched by `jax.vmap`."""
