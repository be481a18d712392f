"""Trains on Atari: `rcrl_jax.programs.atari100k`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("atari100k")
