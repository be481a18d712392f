"""The files of runs: where they lie and what is in them. Knows no fleet, no loop and no plan."""
