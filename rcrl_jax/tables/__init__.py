"""What finished runs say: one data frame of all runs, statistics, verdicts, tables, the page.

runs.py         every run below some directories as one data frame; run_files.py checks each
arms.py         which agent a run trained, and under which conditions
pools.py        which runs may be pooled
statistics.py   intervals, the stratified rank test, aggregates
summary.py      one's own arms by games, and estimates over the games
published.py    published runs and curves; `rcrl_jax.reference` has the published scores
scores.py       the paper's score tables with ours beside; control_figure.py its learning curves
claims.py       the paper's claims, and the rule that judges them
registered.py   the runs of a pre-registered question
command.py      the paper's tables as programs
page.py         one HTML page of everything: panels.py has its figures, templates/ its words
table.py        a table as CSV, Markdown, LaTeX, HTML and text
"""

import sys

from rcrl_jax.programs import command_line, commands

try:
    import jinja2  # noqa: F401
    import pandas  # noqa: F401
except ModuleNotFoundError as missing:
    remedy = f"no {missing.name}: make trial, or pip install 'rcrl-jax[tables]'"
    if command_line.asks_for_help(sys.argv):
        print(commands.as_typed(sys.modules["__main__"].__doc__ or ""), end="\n\n")
        print(f"{remedy}; then --help lists the flags, too")
        sys.exit(0)
    command_line.refuse(remedy)
