"""Programs of a clone that measure the project, and names under which it starts others."""

from rcrl_jax import starting

starting.begin_program()
