"""Checks this machine: `rcrl_jax.programs.doctor`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("doctor")
