"""Packs a run for Hugging Face: `rcrl_jax.programs.share`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("share")
