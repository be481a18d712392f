"""Says which programs there are."""

import rcrl_jax

print(f"""rcrl_jax {rcrl_jax.__version__} has these programs; --help describes each.

    in the folder of a clone              anywhere
    python -m experiments.atari100k  or rcrl-atari       trains on Atari
    python -m experiments.dmc        or rcrl-dmc         trains on DMControl
    python -m experiments.minatar    or rcrl-minatar     trains on MinAtar
    python -m experiments.train      or rcrl-train       trains on a game of your own
    python -m experiments.sweep      or rcrl-sweep       carries out many runs
    python -m experiments.evaluate   or rcrl-evaluate    scores and films trained agents
    python -m experiments.share      or rcrl-share       packs a trained agent for others
    python -m experiments.doctor     or rcrl-doctor      checks this machine
    python -m benchmarks.report      or rcrl-report      writes a page of runs
    python -m benchmarks.compare     or rcrl-compare     compares two arms
    python -m benchmarks.table1      or rcrl-table1      the paper's table of 26 games
    python -m benchmarks.table2      or rcrl-table2      the paper's table of two budgets
    python -m benchmarks.figure_dmc  or rcrl-figure-dmc  the paper's curves on DMControl""")
