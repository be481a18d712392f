"""Auxiliary tasks: each is a container of pure functions that an agent's update calls."""
