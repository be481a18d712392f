"""Carries out many runs: `rcrl_jax.programs.sweep`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("sweep")
