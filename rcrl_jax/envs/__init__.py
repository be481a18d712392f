"""Environments: one vector protocol, its Atari and Catch backends, and the agent's view of it."""
