"""Compares two arms: `rcrl_jax.programs.compare`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("compare")
