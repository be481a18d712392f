r"""Measures training against other code bases, in PyTorch and in JAX, in turns.

    git clone https://github.com/Kaixhin/Rainbow ../Rainbow
    git clone https://github.com/aravindsrinivas/curl_rainbow ../curl_rainbow
    git clone https://github.com/MishaLaskin/curl ../curl
    git clone https://github.com/google/dopamine ../dopamine
    git clone https://github.com/vwxyzjn/cleanrl ../cleanrl
    git clone https://github.com/ikostrikov/jaxrl ../jaxrl
    git clone https://github.com/instadeepai/flashbax ../flashbax
    python -m benchmarks.peers --kaixhin=../Rainbow --curl_rainbow=../curl_rainbow \
        --peer_python=../torch/bin/python --output=results/peers/avx512
    python -m benchmarks.peers --curl=../curl --peer_python=../torch/bin/python --steps=4 \
        --output=results/peers/control
    taskset -c 0 python -m benchmarks.peers --dopamine=../dopamine --cleanrl=../cleanrl \
        --jaxrl=../jaxrl --flashbax=../flashbax --jax_python=../jaxpeers/bin/python \
        --output=results/peers/jax

`--peer_python` is a Python with torch, ale_py, opencv-python-headless, kornia, plotly and numpy;
`--jax_python` one with what results/peers/README.md lists. `taskset` gives all programs one core.

Programs that are compared with one another stay loaded and step in turns, so that a change of the
machine's speed affects all of them; the others run before or after. A step is an agent step with
its update; an update, for SAC with its sampling; or a turn of the replay. Prints each program's
time by the clock and of its process, the FLOP of an update, and the ratios within a round. Writes
all to <output>/<device>.json, in place of what is there. Nothing else should run meanwhile.
"""

import pathlib
import subprocess

from absl import app, flags

from benchmarks import device_file
from benchmarks.peers import measure
from rcrl_jax import files
from rcrl_jax.programs import command_line
from rcrl_jax.runs import manifest

# Code base -> its programs, and files that its directory must hold.
CODE = {
    "kaixhin": (("kaixhin",), ("agent.py", "env.py", "memory.py")),
    "curl_rainbow": (("curl_rainbow",), ("agent.py", "env.py", "memory.py")),
    "curl": (("curl_control",), ("curl_sac.py", "encoder.py", "utils.py")),
    "dopamine": (("dopamine_der", "dopamine_drq"), ("dopamine/labs/atari_100k/configs/DER.gin",)),
    "cleanrl": (("cleanrl",), ("cleanrl/c51_atari_jax.py",)),
    "jaxrl": (("jaxrl_drq", "jaxrl_sac"), ("jaxrl/agents/drq/drq_learner.py",)),
    "flashbax": (("flashbax_1", "flashbax_26"), ("flashbax/__init__.py",)),
}
_IN_TORCH = ("kaixhin", "curl_rainbow", "curl")


def _commit(directory: str) -> str | None:
    found = subprocess.run(
        ["git", "-C", directory, "rev-parse", "HEAD"], capture_output=True, text=True
    )
    return found.stdout.strip() or None


def _define_flags() -> None:
    """Not called at import: tests import several modules that define flags of the same names."""
    for code in CODE:
        flags.DEFINE_string(code, None, f"directory of a clone of {code}; absent: not measured")
    flags.DEFINE_string("peer_python", "python", "Python that runs the code in PyTorch")
    flags.DEFINE_string("jax_python", "python", "Python that runs the code in JAX")
    flags.DEFINE_integer("rounds", 7, "rounds, in which each program steps", lower_bound=1)
    flags.DEFINE_integer(
        "steps", None, "steps of a program a round; absent: as many as take --seconds",
        lower_bound=1,
    )  # fmt: skip
    flags.DEFINE_float("seconds", 5.0, "about how long a program steps a round", lower_bound=0.0)
    flags.DEFINE_string("output", "results/peers", "directory of the JSON file")


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    given = {code: flags.FLAGS[code].value for code in CODE}
    directories = {code: directory for code, directory in given.items() if directory is not None}
    if not directories:
        command_line.refuse(f"name a directory: {', '.join(f'--{code}' for code in CODE)}")
    commands = {}
    for code, directory in directories.items():
        programs, parts = CODE[code]
        for part in parts:
            if not (pathlib.Path(directory) / part).is_file():
                command_line.refuse(f"{directory} holds no {part}: clone the repository there")
        python = flags.FLAGS.peer_python if code in _IN_TORCH else flags.FLAGS.jax_python
        for name in programs:
            commands[name] = measure.peer_command(name, python, directory)
    measured: dict[str, measure.Measured] = {}
    pairs = [pair for group in measure.groups(commands) for pair in group]
    processes: dict[str, measure.Process] = {}
    try:
        path = device_file.prepare(flags.FLAGS.output)
        for group in measure.groups(commands):
            for name in dict.fromkeys(name for pair in group for name in pair[:2]):
                print(f"starting {name}", flush=True)
                command = commands.get(name) or measure.our_command(name)
                processes[name] = measure.Process(name, command)
            settings = flags.FLAGS.rounds, flags.FLAGS.steps, flags.FLAGS.seconds
            measured |= measure.in_turns(processes, *settings)
            while processes:
                processes.popitem()[1].end()
    except (ValueError, OSError, measure.PeerFailed) as error:
        command_line.refuse(str(error))
    finally:
        for process in processes.values():
            process.end()
    print(measure.report(measured, pairs))
    written = {
        "programs": {name: own._asdict() for name, own in measured.items()},
        "steps_per_s": {
            name: [1e3 / ms for ms in own.milliseconds("wall_s")] for name, own in measured.items()
        },
        **{
            "ratios" if kind == "wall" else f"ratios_{kind}": {
                f"{pair.ours} / {pair.theirs}": found[kind]
                for pair in pairs
                if kind in (found := measure.ratios(measured, pair))
            }
            for kind in measure.KINDS
        },
        "git_commits": {code: _commit(directory) for code, directory in directories.items()},
        **manifest.circumstances(),
    }
    files.write_json_atomically(path, written)
    print(f"written to {path}")


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
