"""Dreamer and PlaNet, which share a recurrent state-space model."""
