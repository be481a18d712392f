"""Programs that measure the project, and tables of its results."""

from rcrl_jax import starting

starting.begin_program()
