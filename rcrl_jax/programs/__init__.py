"""The programs that an installed user runs; `commands.py` has their names."""

from rcrl_jax import starting

starting.begin_program()
