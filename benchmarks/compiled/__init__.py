"""What a fleet runs, compiled for accelerators that are not here; `__main__.py` is the program."""
