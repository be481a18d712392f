"""Trains on MinAtar: `rcrl_jax.programs.minatar`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("minatar")
