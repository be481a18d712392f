"""The paper's figure of DMControl: `rcrl_jax.programs.figure_dmc`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("figure_dmc")
