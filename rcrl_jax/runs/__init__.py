"""The files of runs: nothing else opens them. Knows no fleet, no loop and no plan."""
