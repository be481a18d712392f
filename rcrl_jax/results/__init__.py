"""Finished and unfinished runs as records, and the same runs in other projects' formats.

    arms.py      which arm a run belongs to, and under which conditions it was made
    runs.py      one run's files, checked against each other
    store.py     every run below some directories
    pools.py     which runs may be pooled, and their scores by arm and game
    export.py    the score files of rliable, marl-eval and DreamerV3

Start with the examples at the top of `store.py` and `pools.py`.
"""
