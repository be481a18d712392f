"""Says which programs there are."""

import rcrl_jax

print(f"""rcrl_jax {rcrl_jax.__version__} has these programs; --help describes each.

    in the folder of a clone              anywhere
    python -m experiments.atari100k   or rcrl-atari       trains on Atari
    python -m experiments.dmc         or rcrl-dmc         trains on DMControl
    python -m experiments.sweep       or rcrl-sweep       carries out many runs
    python -m experiments.evaluate    or rcrl-evaluate    scores and films trained agents
    python -m benchmarks.report       or rcrl-report      writes a page of runs
    python -m benchmarks.compare      or rcrl-compare     compares two arms
    python -m experiments.doctor      or rcrl-doctor      checks this machine""")
