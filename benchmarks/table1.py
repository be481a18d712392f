"""Table 1 of the paper: `rcrl_jax.programs.table1`."""

from rcrl_jax.programs import commands

if __name__ == "__main__":
    commands.start("table1")
