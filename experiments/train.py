"""Trains on a user's own game: `rcrl_jax.programs.train`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("train")
