"""The programs to run from the command line."""

from rcrl_jax import starting

starting.begin_program()
