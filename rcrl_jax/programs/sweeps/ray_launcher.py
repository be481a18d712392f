"""Starts the commands of a sweep on the nodes of a Ray cluster.

All nodes see the driver's files under the same paths: the code, its Python environment, the sweep's
directory. Ray chooses nodes and starts a command again elsewhere if its node dies; the command goes
on from its last checkpoint.
"""

import contextlib
import logging
import os
import pathlib
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from rcrl_jax.programs.sweeps.local import start_process
from rcrl_jax.programs.sweeps.spec import SweepError

if TYPE_CHECKING:
    import ray

_POLL_S = 0.2
_CONNECT_S = 10.0
_MOST_LOST_NODES = 10  # for each attempt; a fleet that takes its nodes down must end sometime
_LOCAL_STORE_BYTES = 100 * 2**20  # only exit codes go through Ray
_PASSED_ON = ("JAX_", "XLA_", "PYTHON", "MUJOCO_", "PYOPENGL_", "WANDB_")


@contextlib.contextmanager
def connected(
    address: str, *, cpus: int, gpus: int, niceness: int
) -> Iterator[Callable[[Sequence[str], pathlib.Path], "_Task"]]:
    """Connects to a Ray cluster while the block lasts; then fleets that still run are ended.

    Args:
        address: of the cluster; `auto` finds the one that this machine belongs to, `local` starts
            one on this machine alone.
        cpus: cores that Ray reserves for a fleet.
        gpus: GPUs that Ray reserves for a fleet, and shows to it.
        niceness: added to the niceness of Ray's workers.

    Yields:
        (command, log) -> job: hands a command over to Ray, which lets it wait until a node has
        room, and appends what it prints to `log`.

    Raises:
        SweepError: Ray is not installed, or there is no such cluster.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # When a node dies, Ray shows its last log lines twice. The sweep names what starts again.
    os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", "^Raylet is terminated|^Task _run_on_node")
    try:
        import ray
    except ImportError:
        need = "make .venv/tested, or pip install 'rcrl-jax[ray]'"
        raise SweepError(f"--ray needs Ray: {need}") from None
    # By default Ray's files and sockets lie in /tmp/ray, where everybody may write. This is 0700.
    with tempfile.TemporaryDirectory(prefix="ray_", ignore_cleanup_errors=True) as private:
        try:
            _check_listens(os.environ.get("RAY_ADDRESS", "") if address == "auto" else address)
            own = {
                "include_dashboard": False,
                "object_store_memory": _LOCAL_STORE_BYTES,
                "_temp_dir": os.path.join(private, "ray"),
            }
            ray.init(
                address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                **(own if address == "local" else {}),
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise SweepError(
                f"--ray: no Ray cluster at {address!r} ({type(error).__name__}); start one with "
                "`ray start --head`, or let --ray=local start one for this machine"
            ) from error
        try:
            alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in alive):
                print(f"no node has {cpus} CPUs and {gpus} GPUs now: fleets wait until one joins")
            # For Ray, a task that ends with an exit code has succeeded: only a lost node or
            # worker makes Ray repeat it.
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": _MOST_LOST_NODES}
            run = ray.remote(**options)(_run_on_node)
            environment = {k: v for k, v in os.environ.items() if k.startswith(_PASSED_ON)}
            if gpus == 0:  # Ray does not hide a node's GPUs
                environment.setdefault("JAX_PLATFORMS", "cpu")
            settings = (os.getcwd(), cpus, niceness, environment)
            yield lambda command, log: _Task(run.remote(list(command), log.absolute(), *settings))
        finally:
            ray.shutdown()


def _check_listens(address: str) -> None:
    """Raises OSError if nothing listens at `host:port`: Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()


class _Task:
    """A command that Ray runs, with methods of `subprocess.Popen`."""

    def __init__(self, task: "ray.ObjectRef"):
        self._task = task
        self._stopped = False

    def poll(self) -> int | str | None:
        """The exit code, or what went wrong instead; None until then."""
        import ray

        done, _ = ray.wait([self._task], timeout=0)
        if not done:
            return None
        try:
            return ray.get(self._task)
        except ray.exceptions.RayError as error:
            first_line = str(error).strip().partition("\n")[0]
            return f"Ray: {type(error).__name__}: {first_line}"

    def terminate(self) -> None:
        """Asks the command to save its state and end."""
        import ray

        if not self._stopped:  # a second interruption would end the task while the command saves
            self._stopped = True
            ray.cancel(self._task)


def _run_on_node(
    command: Sequence[str],
    log: pathlib.Path,
    directory: str,
    cpus: int,
    niceness: int,
    environment: Mapping[str, str],
) -> int:
    """Runs a command on this node and returns its exit code; Ray calls it in a worker."""
    # Ray cancels a task by SIGINT, which workers ignore if Ray was started in the background.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(directory)
    os.environ.update(environment)
    process = start_process(command, log, cpus, niceness)
    try:
        while process.poll() is None:
            time.sleep(_POLL_S)
    except KeyboardInterrupt:  # Ray has cancelled the task
        process.terminate()
        process.wait()
        raise
    return process.returncode
