"""Programs that only a clone has, and short names for the programs of `rcrl_jax.programs`."""

from rcrl_jax import starting

starting.begin_program()
