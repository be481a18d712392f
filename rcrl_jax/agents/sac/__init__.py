"""Soft actor-critic from pixels or states."""
