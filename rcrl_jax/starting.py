"""What a program does before it imports anything else."""

import os
import sys

from rcrl_jax import signals

_OF_A_SHELL = {
    # Notebooks name a canvas that this environment may lack. Then matplotlib cannot be imported,
    # nor can envpool, which imports it. Figures are files here.
    "MPLBACKEND": "agg",
    # Wishes of other programs. Agents compute in 32 bits, optax mixes types, and NumPy's arrays go
    # to the device with every update.
    "JAX_ENABLE_X64": "0",
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
    "JAX_TRANSFER_GUARD": "allow",
}


def begin_program() -> None:
    """Ends a starting program in one line at a stop signal; sets variables that would break it.

    Packages of programs call it before anything else is imported. It does nothing where another
    program imports them.
    """
    # `python -m` sets the first to -m while it looks for the program, then to its path.
    if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0]).startswith("rcrl-"):
        signals.end_starting_program()
        os.environ.update(_OF_A_SHELL)
