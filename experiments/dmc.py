"""Trains on DMControl: `rcrl_jax.programs.dmc`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("dmc")
