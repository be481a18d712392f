"""Programs that measure the project on the machine at hand."""

from rcrl_jax import signals

signals.end_starting_program()
