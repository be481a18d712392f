"""Two sweeps collect one run at the same moment: `python -m tests.programs.collisions NUMBER`.

They have one --results and different --workdir. Prints how many collisions lost something.
"""

import multiprocessing
import pathlib
import random
import sys
import tempfile
import time
from multiprocessing.synchronize import Barrier

from rcrl_jax import files
from rcrl_jax.programs.sweeps import work
from rcrl_jax.programs.sweeps.spec import SweepError
from tests.programs import toy_sweep
from tests.programs.toy_sweep import alone

SIDES = ("a", "b")
_MOST_DELAY_S = 0.05  # so that each operation of one meets each of the other


def collide(root: pathlib.Path, number: int) -> list[str]:
    """Forces collisions; returns one line for each of what they lost, and for each refusal."""
    context = multiprocessing.get_context("spawn")
    barrier, refused = context.Barrier(len(SIDES)), context.SimpleQueue()
    made = []
    for index in range(number):
        directory = root / str(index)
        directory.mkdir()
        spec = toy_sweep.make_spec(directory)
        for side in SIDES:
            toy_sweep.write_work(spec, spec.units[0], directory / side)
        made.append((spec, directory))
    places = [directory for _, directory in made]
    processes = [
        context.Process(target=_collect, args=(places, side, barrier, refused)) for side in SIDES
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    lines = []
    while not refused.empty():
        lines.append(refused.get())
    for spec, directory in made:
        unit = spec.units[0]
        target = spec.result_paths(unit).directory
        found = sorted(path.name for path in target.iterdir()) if target.exists() else []
        if found != sorted(toy_sweep.COLLECTED) or not work.is_finished(spec, unit):
            lines.append(f"{target} holds {found}")
        if left := [side for side in SIDES if any((directory / side).iterdir())]:
            lines.append(f"{directory}: not collected from {left}")
    return lines


def _collect(places: list[pathlib.Path], side: str, barrier: Barrier, refused) -> None:
    specs = [toy_sweep.read_spec(directory / "spec.toml") for directory in places]
    delays = random.Random(side)
    for directory, spec in zip(places, specs, strict=True):
        barrier.wait(60)
        time.sleep(delays.uniform(0.0, _MOST_DELAY_S))
        try:
            work.collect(spec, alone(spec.units[0]), directory / side)
        except (SweepError, files.InUse, files.Damaged, OSError) as error:
            refused.put(f"{side}: {error!r}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made_here:
        lost = collide(pathlib.Path(made_here), int(sys.argv[1]))
    print(*lost, f"{sys.argv[1]} collisions, {len(lost)} complaints", sep="\n")
    sys.exit(bool(lost))
