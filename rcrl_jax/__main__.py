"""Says which programs there are."""

import rcrl_jax
from rcrl_jax.programs import commands

DOES = {
    "rcrl-atari": "trains on Atari",
    "rcrl-dmc": "trains on DMControl",
    "rcrl-minatar": "trains on MinAtar",
    "rcrl-train": "trains on a game of your own",
    "rcrl-sweep": "carries out many runs",
    "rcrl-evaluate": "scores and films trained agents",
    "rcrl-share": "packs a trained agent for others",
    "rcrl-doctor": "checks this machine",
    "rcrl-report": "writes a page of runs",
    "rcrl-compare": "compares two arms",
    "rcrl-table1": "the paper's table of 26 games",
    "rcrl-table2": "the paper's table of two budgets",
    "rcrl-figure-dmc": "the paper's curves on DMControl",
}

print(f"rcrl_jax {rcrl_jax.__version__} has these programs; --help describes each.\n")
print(f"    {'in the folder of a clone':<36}  anywhere")
for command, program in commands.PROGRAMS.items():
    print(f"    python -m {program:<23}or {command:<16} {DOES[command]}")
