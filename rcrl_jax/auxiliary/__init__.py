"""Auxiliary tasks: each a pair of pure functions that snaps into an agent's update."""
