"""Starts the commands of a sweep on the nodes of a Ray cluster.

All nodes see the driver's files under the same paths: the code, its Python environment, the sweep's
directory. Ray chooses nodes and starts a command again elsewhere if its node dies; the command goes
on from its last checkpoint.
"""

import contextlib
import fcntl
import logging
import os
import pathlib
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rcrl_jax.training.sweep import child
from rcrl_jax.training.sweep.launchers import Ending, available_cores, start_child
from rcrl_jax.training.sweep.spec import SweepError

if TYPE_CHECKING:
    import ray

_POLL_S = 0.2
_CONNECT_S = 10.0
_MOST_LOST_NODES = 10  # for each attempt; a fleet that takes its nodes down must end sometime
_LOCAL_STORE_BYTES = 100 * 2**20  # only exit codes go through Ray
_PASSED_ON = ("JAX_", "XLA_", "PYTHON", "MUJOCO_", "PYOPENGL_")


@contextlib.contextmanager
def connected(
    address: str, *, cpus: int, gpus: int, niceness: int, say: Callable[[str], None]
) -> Iterator["RayLauncher"]:
    """Connects to a Ray cluster while the block lasts; then fleets that still run are ended.

    Args:
        address: of the cluster; `auto` finds the one that this machine belongs to, `local` starts
            one on this machine alone.
        cpus: cores that Ray reserves for a fleet.
        gpus: GPUs that Ray reserves for a fleet, and shows to it.
        niceness: added to the niceness of Ray's workers.
        say: prints a line for the user.

    Raises:
        SweepError: Ray is not installed, or there is no such cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SweepError("--launcher=ray needs Ray: pip install 'rcrl-jax[ray]'") from None
    try:
        _check_listens(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
        own = {"include_dashboard": False, "object_store_memory": _LOCAL_STORE_BYTES}
        ray.init(
            address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **(own if address == "local" else {}),
        )
    except (OSError, RuntimeError, ValueError) as error:
        raise SweepError(
            f"--address: no Ray cluster at {address!r} ({type(error).__name__}); start one with "
            "`ray start --head`, or let --address=local start one for this machine"
        ) from error
    try:
        wanted = {"CPU": cpus, "GPU": gpus}
        if not any(
            all(node["Resources"].get(name, 0) >= number for name, number in wanted.items())
            for node in ray.nodes()
            if node["Alive"]
        ):
            say(f"no node has {cpus} CPUs and {gpus} GPUs now: fleets wait until one joins")
        yield RayLauncher(cpus=cpus, gpus=gpus, niceness=niceness)
    finally:
        ray.shutdown()


def _check_listens(address: str) -> None:
    """Raises OSError if nothing listens at `host:port`: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


class RayLauncher:
    """Starts commands as Ray tasks; Ray lets them wait until a node has room."""

    def __init__(self, *, cpus: int, gpus: int, niceness: int):
        """Starts nothing yet; `connected` explains the arguments."""
        import ray

        # A task that ends with an exit code has succeeded, as Ray sees it: only a lost node or
        # worker makes Ray try it again.
        self._run = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=_MOST_LOST_NODES)(
            _run_on_node
        )
        self._cpus = cpus
        self._niceness = niceness

    def has_room(self) -> bool:
        """True: what has no room yet waits in Ray."""
        return True

    def start(self, command: Sequence[str], log: pathlib.Path) -> "_Task":
        """Hands a command over to Ray."""
        log = log.absolute()
        place = log.with_name(f".{log.stem}.place")
        place.unlink(missing_ok=True)
        environment = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
        task = self._run.remote(
            list(command), log, place, os.getcwd(), self._cpus, self._niceness, environment
        )
        return _Task(task, place)


class _Task:
    """A command that Ray runs; its place is in a file, which all nodes see."""

    def __init__(self, task: "ray.ObjectRef", path: pathlib.Path):
        self._task = task
        self._path = path
        self._place: str | None = None
        self._stopped = False

    def place(self) -> str | None:
        with contextlib.suppress(OSError):  # before it runs, and after its end
            self._place = self._path.read_text(encoding="utf-8") or self._place
        return self._place

    def poll(self) -> Ending | None:
        import ray

        done, _ = ray.wait([self._task], timeout=0)
        if not done:
            return None
        self.place()
        self._path.unlink(missing_ok=True)
        try:
            return Ending(ray.get(self._task))
        except ray.exceptions.RayError as error:
            first_line = str(error).strip().partition("\n")[0]
            return Ending(None, f"Ray: {type(error).__name__}: {first_line}")

    def stop(self) -> None:
        import ray

        if not self._stopped:  # a second interruption would end the task before the command
            self._stopped = True
            ray.cancel(self._task)


def _run_on_node(
    command: Sequence[str],
    log: pathlib.Path,
    place: pathlib.Path,
    directory: str,
    cpus: int,
    niceness: int,
    environment: Mapping[str, str],
) -> int:
    """Runs a command on this node and returns its exit code; Ray calls it in a worker."""
    # Ray cancels a task by SIGINT, which workers ignore if Ray was started in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with reserved_cores(cpus) as cores:
        process = start_child(
            command,
            log,
            cores=cores,
            niceness=niceness,
            environment=environment,
            directory=directory,
        )
        try:
            where = f"node {socket.gethostname()}, process {process.pid}, cores {cores}"
            place.write_text(where, encoding="utf-8")
            while process.poll() is None:
                time.sleep(_POLL_S)
        except KeyboardInterrupt:  # Ray cancels a task so
            process.terminate()
            process.wait()
            raise
    return process.returncode


@contextlib.contextmanager
def reserved_cores(count: int) -> Iterator[str]:
    """Yields cores of this node, as `child` takes them, that no other fleet has meanwhile.

    Ray counts cores, but does not tell processes which are theirs. XLA would start a thread for
    every core of the node in each fleet. If fewer than `count` cores are free, because Ray was told
    that the node has more than there are, the fleet may use all.
    """
    folder = pathlib.Path(tempfile.gettempdir(), f"rcrl_jax_cores_{os.getuid()}")
    folder.mkdir(exist_ok=True)
    cores: list[str] = []
    with contextlib.ExitStack() as stack:
        for core in map(str, available_cores() or ()):
            if len(cores) == count:
                break
            file = stack.enter_context(open(folder / core, "a"))
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                cores.append(core)
        yield ",".join(cores) if 0 < count == len(cores) else child.ANY_CORE
