"""What a program does before it imports anything else."""

import os
import sys

from rcrl_jax import signals

_OF_A_SHELL = {
    # Notebooks set a backend of matplotlib that may be missing here. Then neither matplotlib nor
    # envpool, which imports it, can be imported. Our figures are files.
    "MPLBACKEND": "agg",
    # Users may have set these for other programs. Agents compute in 32 bits, optax mixes types, and
    # every update sends NumPy arrays to the device.
    "JAX_ENABLE_X64": "0",
    "JAX_NUMPY_DTYPE_PROMOTION": "standard",
    "JAX_TRANSFER_GUARD": "allow",
}


def begin_program() -> None:
    """Ends a starting program in one line at a stop signal; resets variables that would break it.

    Packages of programs call this before they import anything else. It does nothing if another
    program imports these packages.
    """
    # `python -m` sets argv[0] to -m while it looks for the program, then to the program's path.
    if sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0]).startswith("rcrl-"):
        signals.end_starting_program()
        os.environ.update(_OF_A_SHELL)
