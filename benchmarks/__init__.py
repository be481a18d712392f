"""Programs that measure the project, and tables of its results."""

from rcrl_jax import signals

signals.end_starting_program()
