"""The file of a benchmark's figures: one for each kind of device."""

import pathlib
import platform

from rcrl_jax import files


def prepare(directory: str) -> pathlib.Path:
    """Makes the directory; returns `<directory>/<device>.json`.

    Call it before anything is measured, so that a bad directory costs no measurement.

    Raises:
      OSError: the directory cannot be made or written.
    """
    import jax  # here, because programs set up memory before JAX starts its threads

    files.make_writable(directory)
    kind = jax.devices()[0].device_kind
    name = f"{platform.machine()}-{kind}" if kind == "cpu" else kind
    return pathlib.Path(directory) / f"{name.replace(' ', '_')}.json"
