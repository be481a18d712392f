"""The files of a benchmark's results, one for each kind of device."""

import pathlib
import platform

import jax

from rcrl_jax import files


def prepare(directory: str) -> pathlib.Path:
    """Makes the directory; returns `<directory>/<device>.json`.

    Call it before anything is measured, so that a bad directory costs no measurement.

    Raises:
      OSError: the directory cannot be made or written.
    """
    files.make_writable(directory)
    kind = jax.devices()[0].device_kind
    name = f"{platform.machine()}-{kind}" if kind == "cpu" else kind
    return pathlib.Path(directory) / f"{name.replace(' ', '_')}.json"
