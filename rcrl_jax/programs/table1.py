r"""Table 1 of the paper: 26 games of Atari-100k, published scores with ours beside them.

    python -m benchmarks.table1 --results=results --output=runs/report
    python -m benchmarks.table1 --scores=mine.csv

Prints the table and what our runs say about the paper's claims. Writes `table1.{csv,md,tex,html}`
and `table1_verdicts.*`. Runs that are left out are named on stderr. `--scores` adds an agent
trained with any code: a CSV file with columns game, seed, score.
"""

from rcrl_jax.tables import command

if __name__ == "__main__":
    command.start("table1")
