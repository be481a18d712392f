"""What finished runs say: one data frame of all runs, statistics, verdicts, tables, the page.

runs.py         every run below some directories, checked, as one data frame
pools.py        which of them may be pooled
arms.py         which agent a run trained, and under which conditions
statistics.py   intervals, the stratified rank test, aggregates
claims.py       the paper's claims; verdicts.py judges them
single_runs.py  what one run a game can say
registered.py   the runs of a pre-registered question
table.py        a table as CSV, Markdown, LaTeX, HTML and text
page.py         one HTML page of everything; templates/ is what it looks like
published.py    published runs and curves; `rcrl_jax.reference` has the published scores
"""
