"""Environments: one vector interface, its backends (Atari, DMControl, Catch), the agent's view."""
