"""Flax modules: encoders, noisy layers, dueling heads and the discriminator."""
