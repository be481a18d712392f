"""SLAC: soft actor-critic on the latents of a model."""
