r"""Measures training against two PyTorch code bases, in turns on the same machine.

    git clone https://github.com/Kaixhin/Rainbow ../Rainbow
    git clone https://github.com/aravindsrinivas/curl_rainbow ../curl_rainbow
    python -m benchmarks.peers --kaixhin=../Rainbow --curl_rainbow=../curl_rainbow \
        --peer_python=../torch/bin/python

The last path is a Python with torch, ale_py, opencv-python-headless, kornia, plotly and numpy.

All programs stay loaded and step in turns, so that a change of the machine's speed meets them
alike. A step is one agent step with its update. Prints, and writes to results/peers/<device>.json:
agent steps per second of each program in every round, and the ratios of ours to theirs within a
round. Nothing else should be running meanwhile.
"""

import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from absl import app, flags

from benchmarks import device_file, training
from experiments import command_line
from rcrl_jax import files
from rcrl_jax.config import presets
from rcrl_jax.envs import atari
from rcrl_jax.runs import manifest
from rcrl_jax.training import host_memory
from rcrl_jax.training.plan import Plan, RunId

# Which of our presets is compared with which peer. `erainbow` and `curl` compute the same algorithm
# as theirs; no public code is known for RCRL, which has the same base agent as CURL.
PAIRS = (("erainbow", "kaixhin"), ("curl", "curl_rainbow"), ("rcrl", "curl_rainbow"))
GAME = "Pong"
_WARM_STEPS = 20
_PARTS = ("agent.py", "env.py", "memory.py")  # files of each peer

Advance = Callable[[int], float]  # takes that many steps; returns the seconds that they took


class PeerFailed(Exception):  # noqa: N818 - says what is the matter
    """Another code base's program does not run."""


def our_training(preset: str) -> Advance:
    """Starts training with a preset, up to its first updates."""
    config = presets.ATARI_PRESETS[preset]
    plan = Plan(
        preset=preset,
        config=config,
        runs=(RunId(GAME, 0),),
        total_steps=100_000,
        workdir=pathlib.Path(),
        eval_episodes=1,
        make_environment=lambda seeds: atari.make_atari(GAME, np.reshape(seeds, -1)),
    )
    steps = training.start(plan).steps

    def advance(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            step = next(steps)
        jax.block_until_ready(step.state.learner)
        return time.perf_counter() - start

    advance(config.learn_start + _WARM_STEPS)
    return advance


class Peer:
    """A process that steps another code base's training."""

    def __init__(self, name: str, python: str, directory: str) -> None:
        """Starts it and waits for its first updates; raises PeerFailed if it ends."""
        self._name = name
        self.process = subprocess.Popen(
            [python, pathlib.Path(__file__).with_name("peer_process.py"), directory, GAME.lower()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.torch = self._answer().removeprefix("ready ")

    def __call__(self, count: int) -> float:
        """Takes steps; returns the seconds that they took."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        if not (line := self.process.stdout.readline()):
            raise PeerFailed(f"{self._name} has ended with exit code {self.process.wait()}")
        return line.strip()


def ratios(rates: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Ours divided by theirs within each round, by pair 'ours / theirs'.

    Args:
      rates: program -> agent steps per second of each round.
    """
    return {
        f"{ours} / {theirs}": [a / b for a, b in zip(rates[ours], rates[theirs], strict=True)]
        for ours, theirs in PAIRS
        if ours in rates and theirs in rates
    }


def report(rates: Mapping[str, Sequence[float]]) -> str:
    """Medians and ranges as text."""
    lines = ["agent steps per second with an update each, median of the rounds (range):"]
    for name, own in rates.items():
        lines.append(
            f"  {name:<24}{statistics.median(own):8.1f} ({min(own):.1f} to {max(own):.1f})"
        )
    lines.append("ratios within a round, median (range):")
    for name, own in ratios(rates).items():
        lines.append(
            f"  {name:<24}{statistics.median(own):8.2f} ({min(own):.2f} to {max(own):.2f})"
        )
    return "\n".join(lines)


def _commit(directory: str) -> str | None:
    found = subprocess.run(
        ["git", "-C", directory, "rev-parse", "HEAD"], capture_output=True, text=True
    )
    return found.stdout.strip() or None


def _define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("kaixhin", None, "directory of Kaixhin/Rainbow")
    flags.DEFINE_string("curl_rainbow", None, "directory of curl_rainbow")
    flags.DEFINE_string("peer_python", "python", "Python that runs them")
    flags.DEFINE_integer("rounds", 7, "rounds, in which each program steps", lower_bound=1)
    flags.DEFINE_integer("steps", 200, "learning steps of a program a round", lower_bound=1)
    flags.DEFINE_string("output", "results/peers", "directory of the JSON file")


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    given = {"kaixhin": flags.FLAGS.kaixhin, "curl_rainbow": flags.FLAGS.curl_rainbow}
    directories = {name: directory for name, directory in given.items() if directory is not None}
    if not directories:
        command_line.refuse("name a directory: --kaixhin or --curl_rainbow")
    for directory in directories.values():
        for part in _PARTS:
            if not (pathlib.Path(directory) / part).is_file():
                command_line.refuse(f"{directory} holds no {part}: clone the repository there")
    host_memory.keep_freed_memory(large_blocks=False)
    programs: dict[str, Advance] = {}
    peers: dict[str, Peer] = {}
    try:
        path = device_file.prepare(flags.FLAGS.output)
        for name, directory in directories.items():
            print(f"starting {name}", flush=True)
            peers[name] = programs[name] = Peer(name, flags.FLAGS.peer_python, directory)
        for preset, theirs in PAIRS:
            if theirs in peers:
                print(f"starting {preset}", flush=True)
                programs[preset] = our_training(preset)
        rates: dict[str, list[float]] = {name: [] for name in programs}
        for round_ in range(flags.FLAGS.rounds):
            print(f"round {round_ + 1} of {flags.FLAGS.rounds}", flush=True)
            for name, advance in programs.items():
                rates[name].append(flags.FLAGS.steps / advance(flags.FLAGS.steps))
    except (ValueError, OSError, PeerFailed) as error:
        command_line.refuse(str(error))
    finally:
        for peer in peers.values():
            peer.process.terminate()
    print(report(rates))

    measured = {
        "game": GAME,
        "steps": flags.FLAGS.steps,
        "steps_per_s": rates,
        "ratios": ratios(rates),
        "peers": {
            name: {"git_commit": _commit(directory), "torch": peers[name].torch}
            for name, directory in directories.items()
        },
        **manifest.circumstances(),
    }
    files.write_json_atomically(path, measured)
    print(f"written to {path}")


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
