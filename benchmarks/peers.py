r"""Measures training against three PyTorch code bases, in turns on the same machine.

    git clone https://github.com/Kaixhin/Rainbow ../Rainbow
    git clone https://github.com/aravindsrinivas/curl_rainbow ../curl_rainbow
    git clone https://github.com/MishaLaskin/curl ../curl
    python -m benchmarks.peers --kaixhin=../Rainbow --curl_rainbow=../curl_rainbow \
        --peer_python=../torch/bin/python
    python -m benchmarks.peers --curl=../curl --peer_python=../torch/bin/python --steps=4

The last path is a Python with torch, ale_py, opencv-python-headless, kornia, plotly and numpy.

All programs stay loaded and step in turns, so that a change of the machine's speed affects all of
them. A step is one agent step with its update; for SAC, where rendering would dominate, it is an
update with its sampling. Prints the agent steps per second of each program in every round, and the
ratios of our speed to theirs within a round. Writes both to results/peers/<device>.json, or to
<device>-control.json for SAC. Nothing else should run meanwhile.
"""

import pathlib
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np
from absl import app, flags

from benchmarks import device_file
from rcrl_jax import files
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import atari, dmc
from rcrl_jax.programs import command_line
from rcrl_jax.runs import manifest
from rcrl_jax.training import build, host_memory, loop
from rcrl_jax.training.plan import Plan, RunId
from rcrl_jax.training.session import Session

GAME = "Pong"
# Which of our presets is compared with which peer. `erainbow`, `curl` and `curl_sac` are the same
# algorithms as the peers'. We know no public code of RCRL, which has the same base agent as CURL.
PAIRS = (
    ("erainbow", "kaixhin"), ("curl", "curl_rainbow"), ("rcrl", "curl_rainbow"),
    ("curl_sac", "curl_control"), ("rcrl_sac", "curl_control"),
)  # fmt: skip
_WARM_STEPS, _WARM_UPDATES = 20, 3
_FILLED, _BATCH_SIZE = 1000, 128  # transitions in a replay of SAC and in its updates
_PARTS = {
    "kaixhin": ("agent.py", "env.py", "memory.py"),
    "curl_rainbow": ("agent.py", "env.py", "memory.py"),
    "curl_control": ("curl_sac.py", "encoder.py", "utils.py"),
}  # files of each peer

Advance = Callable[[int], float]  # takes that many steps; returns the seconds that they took


class PeerFailed(Exception):
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
    session = Session(plan)
    loop.start(session)
    steps = loop.train(session)

    def advance(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            next(steps)
        jax.block_until_ready(session.state.learner)
        return time.perf_counter() - start

    advance(config.learn_start + _WARM_STEPS)
    return advance


def our_updates(preset: str) -> Advance:
    """Updates SAC from a replay of noise, after its first updates."""
    config = fields.replace(
        presets.DMC_PRESETS[preset], {"batch_size": _BATCH_SIZE, "replay.capacity": 2 * _FILLED}
    )
    task = "cartpole_swingup"
    plan = Plan(
        preset=preset,
        config=config,
        runs=(RunId(task, 0),),
        total_steps=2 * _FILLED,
        workdir=pathlib.Path(),
        eval_episodes=1,
        make_environment=lambda seeds: None,
    )
    spec = dmc.make_spec(task, "pixels", config.render_size)
    fleet = build.assemble_fleet(plan, spec, [dmc.DMC_TASKS[task].action_size])
    replay = build.make_replay(fleet, "host")
    random = np.random.default_rng(0)
    for step in range(_FILLED):
        pixels = random.integers(0, 256, (2, 1, *spec.frame.shape), np.uint8)
        actions = np.zeros((1, *spec.action.shape), np.float32)
        actions[:, 0] = random.uniform(-1, 1)
        never, ended = np.zeros(1, bool), np.array([step % 125 == 124])
        reward = np.array([random.uniform()], np.float32)
        replay.add(pixels[0], actions, reward, never, ended, pixels[1])
    learner = fleet.init()

    def advance(count: int) -> float:
        nonlocal learner
        start = time.perf_counter()
        for _ in range(count):
            learner, _ = fleet.update(learner, replay.sample(1.0).batch)
        jax.block_until_ready(learner)
        return time.perf_counter() - start

    advance(_WARM_UPDATES)
    return advance


class Peer:
    """A process that steps another code base's training."""

    def __init__(self, name: str, python: str, directory: str) -> None:
        """Starts it and waits for its first updates; raises PeerFailed if it ends."""
        self._name = name
        what = GAME.lower() if name != "curl_control" else str(_BATCH_SIZE)
        self.process = subprocess.Popen(
            [python, pathlib.Path(__file__).with_name("peer_process.py"), directory, what],
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
    """Not called at import: tests import several modules that define flags of the same names."""
    flags.DEFINE_string("kaixhin", None, "directory of Kaixhin/Rainbow")
    flags.DEFINE_string("curl_rainbow", None, "directory of curl_rainbow")
    flags.DEFINE_string("curl", None, "directory of MishaLaskin/curl")
    flags.DEFINE_string("peer_python", "python", "Python that runs them")
    flags.DEFINE_integer("rounds", 7, "rounds, in which each program steps", lower_bound=1)
    flags.DEFINE_integer("steps", 200, "learning steps of a program a round", lower_bound=1)
    flags.DEFINE_string("output", "results/peers", "directory of the JSON file")


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    given = {
        "kaixhin": flags.FLAGS.kaixhin,
        "curl_rainbow": flags.FLAGS.curl_rainbow,
        "curl_control": flags.FLAGS.curl,
    }
    directories = {name: directory for name, directory in given.items() if directory is not None}
    if not directories:
        command_line.refuse("name a directory: --kaixhin, --curl_rainbow or --curl")
    control = "curl_control" in directories
    if control and len(directories) > 1:
        command_line.refuse("--curl: alone, because its updates take a hundred times as long")
    for name, directory in directories.items():
        for part in _PARTS[name]:
            if not (pathlib.Path(directory) / part).is_file():
                command_line.refuse(f"{directory} holds no {part}: clone the repository there")
    host_memory.keep_freed_memory(large_blocks=control)
    programs: dict[str, Advance] = {}
    peers: dict[str, Peer] = {}
    try:
        path = device_file.prepare(flags.FLAGS.output)
        if control:
            path = path.with_stem(f"{path.stem}-control")
        for name, directory in directories.items():
            print(f"starting {name}", flush=True)
            peers[name] = programs[name] = Peer(name, flags.FLAGS.peer_python, directory)
        for preset in dict.fromkeys(ours for ours, theirs in PAIRS if theirs in peers):
            print(f"starting {preset}", flush=True)
            programs[preset] = our_updates(preset) if control else our_training(preset)
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
        **({"batch_size": _BATCH_SIZE} if control else {"game": GAME}),
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
