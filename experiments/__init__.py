"""The programs to run from the command line."""

from rcrl_jax import signals

signals.end_starting_program()
