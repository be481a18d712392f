r"""The paper's figure of DMControl: our learning curves over published ones, and a table of scores.

    python -m benchmarks.figure_dmc --results=results --output=runs/report

Writes the figure `figure_dmc.png`, the scores at 100,000 and 500,000 environment steps as
`figure_dmc.{csv,md,tex,html}`, with notes on how each published line was measured, and
`figure_dmc_verdicts.*`. The figure alone shows unfinished runs, of arms without a finished run.
Runs that are left out are named on stderr.
"""

from rcrl_jax.tables import command

if __name__ == "__main__":
    command.start("figure_dmc")
