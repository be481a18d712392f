"""Writes a page of runs: `rcrl_jax.programs.report`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("report")
