"""Flax modules: encoders, noisy layers, dueling heads and SAC's networks.

The first axis of all inputs is the batch. There is no axis of runs: a fleet adds it
with `jax.vmap`.
"""
