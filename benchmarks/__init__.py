"""Programs of a clone that measure the project, and short names for further programs."""

from rcrl_jax import starting

starting.begin_program()
