"""Programs of a clone, and names under which it starts those of `rcrl_jax.programs`."""

from rcrl_jax import starting

starting.begin_program()
