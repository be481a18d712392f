"""Flax modules of all agents: encoders, noisy layers, dueling heads, SAC, world models, SimPLe.

The first axis of all inputs is the batch. There is no axis of runs. The fleet batches over runs.
"""
