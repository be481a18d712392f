"""Table 2 of the paper: `rcrl_jax.programs.table2`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("table2")
