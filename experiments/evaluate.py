"""Scores and films trained agents: `rcrl_jax.programs.evaluate`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("evaluate")
