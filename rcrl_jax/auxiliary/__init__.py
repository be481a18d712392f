"""Auxiliary tasks: each a container of pure functions that snaps into an agent's update."""
