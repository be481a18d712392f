"""Flax modules: encoders, noisy layers, dueling heads, the discriminator and SAC's networks.

The first axis of all inputs is the batch; the discriminator takes any leading axes. There is no
axis of runs: a fleet adds it with `jax.vmap`.
"""
