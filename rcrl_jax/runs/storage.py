"""How the arrays of a checkpoint lie on the disk: orbax's files, and digests of them.

The files are verified before orbax reads them. Its C++ threads print a traceback for every array
that they cannot read.
"""

import asyncio
import contextlib
import hashlib
import logging
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from rcrl_jax import files, types
from rcrl_jax.runs import parameters

DIGESTS = "digests.json"
"""The file of the step, of SHA-256 of all files, of types and shapes of the learner's arrays."""

PARTS = ("learner", "progress", DIGESTS)
"""What lies in the directory of a checkpoint."""

_Kinds = Mapping[str, Sequence[Any]]  # name of an array -> its type, its shape


def write(
    directory: pathlib.Path, step: int, learner: types.LearnerState, progress: dict[str, Any]
) -> None:
    """Writes a directory: the learner, what else a checkpoint holds, and digests of both.

    Its final name is the number of agent steps, `step`.

    Raises:
      Exception: it cannot be written; orbax raises many classes.
    """
    with _quiet_library():
        ocp.Checkpointer(_handler()).save(
            directory,
            ocp.args.Composite(
                learner=ocp.args.StandardSave(learner), progress=ocp.args.StandardSave(progress)
            ),
        )
    described = {
        "step": step,
        "sha256": {
            str(path.relative_to(directory)): _digest(path)
            for path in sorted(directory.rglob("*"))
            if path.is_file()
        },
        "learner": _kinds(learner),
    }
    files.write_json_atomically(directory / DIGESTS, described)


def read(
    directory: pathlib.Path, like: types.LearnerState
) -> tuple[types.LearnerState, dict[str, Any]]:
    """Reads what `write` has written, in NumPy; changes nothing on the disk.

    Raises:
      Exception: a file is missing or has changed, or it is a learner of other types and shapes.
    """
    _check_kinds(_verify(directory), _kinds(like))
    with _quiet_library():
        saved = ocp.Checkpointer(_handler()).restore(
            directory,
            ocp.args.Composite(
                learner=ocp.args.StandardRestore(like),
                progress=ocp.args.StandardRestore(),
            ),
        )
    return saved.learner, jax.tree.map(np.asarray, saved.progress)


def read_agents(directory: pathlib.Path, like: types.Params) -> types.Params:
    """Reads only the agents' parameters.

    Args:
      directory: written by `write`.
      like: parameters of the same structure, or their shapes.

    Raises:
      Exception: a file is missing or has changed, or it holds other parameters.
    """
    written = _verify(directory, part="learner/")
    prefix = "params/agent/"
    own = {n.removeprefix(prefix): written[n] for n in written if n.startswith(prefix)}
    _check_kinds(own, _kinds(like))
    wanted = {"params": {"agent": jax.tree.map(_shape, like)}}
    with _quiet_library():
        saved = ocp.PyTreeCheckpointer().restore(
            directory / "learner",
            ocp.args.PyTreeRestore(
                wanted,
                restore_args=jax.tree.map(lambda _: ocp.RestoreArgs(np.ndarray), wanted),
                partial_restore=True,
            ),
        )
    agents = saved["params"]["agent"]
    # Leaves that the checkpoint lacks stay `ShapeDtypeStruct`; the others keep their saved shapes.
    if not all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(agents)):
        raise ValueError("it is of other runs")
    check_alike(agents, like)
    return agents


def check_alike(tree: Any, like: Any) -> None:
    """Raises ValueError unless arrays have the names, types and shapes of those of `like`."""
    _check_kinds(_kinds(tree), _kinds(like))


def _check_kinds(there: _Kinds, wanted: _Kinds) -> None:
    for name in sorted(there.keys() | wanted.keys()):
        if there.get(name) != wanted.get(name):
            raise ValueError(
                f"it is of other runs: {name} is {_describe(there.get(name))}, "
                f"expected {_describe(wanted.get(name))}"
            )


def _verify(directory: pathlib.Path, part: str = "") -> _Kinds:
    """Compares the files of a directory with their digests.

    Args:
      directory: of a checkpoint.
      part: verifies only files whose relative path begins with this.

    Returns:
      The kinds of the learner's arrays.

    Raises:
      ValueError: a file is missing or has changed; the message names it. Or the directory has the
        name of another step.
      OSError: a file cannot be read.
    """
    described = files.read_json(directory / DIGESTS, dict)
    if described.keys() != {"step", "sha256", "learner"}:
        raise ValueError(f"its file {DIGESTS} has changed since it was saved")
    if str(described["step"]) != directory.name:
        raise ValueError(f"it is the checkpoint of step {described['step']}")
    for name, digest in described["sha256"].items():
        if not name.startswith(part):
            continue
        if not (directory / name).is_file():
            raise ValueError(f"its file {name} is missing")
        if _digest(directory / name) != digest:
            raise ValueError(f"its file {name} has changed since it was saved")
    return described["learner"]


def _kinds(tree: Any) -> dict[str, list[Any]]:
    """Types and shapes of the arrays of a tree, or of what stands for them, by name."""
    return {
        name: [str(leaf.dtype), [*leaf.shape]] for name, leaf in parameters.by_name(tree).items()
    }


def _digest(path: pathlib.Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _describe(kind: Sequence[Any] | None) -> str:
    return f"{kind[0]}{kind[1]}" if kind else "absent"


def _shape(leaf: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)


class _QuietLoop(asyncio.SelectorEventLoop):
    """An event loop that ignores what comes after it was closed.

    The storage library raises the first error and closes its loop. Its C++ threads then report to
    the closed loop, and print a traceback for every array.
    """

    def call_soon_threadsafe(self, callback, *args, context=None):
        with contextlib.suppress(RuntimeError):
            return super().call_soon_threadsafe(callback, *args, context=context)

    def call_exception_handler(self, context):
        """Drops errors after the first one."""


class _QuietLoops(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _QuietLoop()


@contextlib.contextmanager
def _quiet_library() -> Iterator[None]:
    """In the block, the storage library raises its errors and prints none.

    After a failed block the filter stays, because the library's threads go on and fail later.
    """
    before, logger = asyncio.get_event_loop_policy(), logging.getLogger("absl")
    asyncio.set_event_loop_policy(_QuietLoops())
    logger.addFilter(_is_not_of_library)
    try:
        yield
        logger.removeFilter(_is_not_of_library)
    finally:
        asyncio.set_event_loop_policy(before)


def _is_not_of_library(record: logging.LogRecord) -> bool:
    return "orbax" not in pathlib.PurePath(record.pathname).parts


def _handler() -> ocp.CompositeCheckpointHandler:
    return ocp.CompositeCheckpointHandler(
        learner=ocp.StandardCheckpointHandler(),
        progress=ocp.StandardCheckpointHandler(),
    )
