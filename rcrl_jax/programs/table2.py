r"""Table 2 of the paper: five games after 100,000 and after 1.5 million steps.

    python -m benchmarks.table2 --results=results --output=runs/report

Prints the table and what our runs say about the paper's claim at the larger budget. Writes
`table2.{csv,md,tex,html}` and `table2_verdicts.*`. Runs that are left out are named on stderr.
"""

from rcrl_jax.tables import command

if __name__ == "__main__":
    command.start("table2")
