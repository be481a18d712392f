"""Measures what settings of XLA do to the speed of an update on this device.

    python -m benchmarks.compiler_settings --presets=erainbow,rcrl --runs=1,5

Compiles the update once with every setting and then runs the compiled updates in turns, so that a
change of the machine's speed meets all of them alike. Prints, and writes to
results/compiler_settings/<device>.json: milliseconds of an update in every round, and the median
over the rounds of the ratio to the program's own settings. Nothing else should be running
meanwhile.
"""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

from absl import app, flags

from benchmarks import device_file
from experiments import command_line
from rcrl_jax import files
from rcrl_jax.config import presets
from rcrl_jax.training import host_memory

DEFAULT = "default"
WIDE = {"xla_cpu_prefer_vector_width": 512}
CONCURRENT = {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_CONCURRENCY_OPTIMIZED"}
SETTINGS: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "default again": {},  # how far two equal programs differ is the error of the others
    "xnnpack": {"xla_cpu_use_xnnpack": True},
    "vectors of 512 bits": WIDE,
    "concurrent schedule": CONCURRENT,
    "all three": {"xla_cpu_use_xnnpack": True, **WIDE, **CONCURRENT},
    "no fusion emitters": {"xla_cpu_use_fusion_emitters": False},
    "fast math": {"xla_cpu_enable_fast_math": True},
}


def measure(
    preset: str, runs: int, rounds: int, updates: int, settings: Mapping[str, Mapping[str, Any]]
) -> dict[str, list[float]]:
    """Milliseconds of an update of all runs in every round, by setting.

    Args:
      preset: an Atari preset.
      runs: R.
      rounds: how often each setting takes its turn.
      updates: updates of a turn.
      settings: name -> XLA's options, by their names in XLA_FLAGS.
    """
    import jax
    import numpy as np

    from rcrl_jax import types
    from rcrl_jax.agents.make_agent import make_agent
    from rcrl_jax.envs.protocol import discrete_spec
    from rcrl_jax.training import prediction
    from rcrl_jax.training.fleet import Fleet

    agent = make_agent(presets.ATARI_PRESETS[preset], discrete_spec((84, 84), 6))
    constants = jax.tree.map(
        lambda x: np.repeat(x[None], runs, axis=0), agent.run_constants("Pong")
    )
    fleet = Fleet(agent, range(runs), types.RunSpec(np.full(runs, 6, np.int32), constants))
    random = np.random.default_rng(0)

    def filled(x: np.ndarray) -> np.ndarray:
        return random.integers(0, 256, x.shape, np.uint8) if x.dtype == np.uint8 else x

    batch = jax.tree.map(filled, prediction.empty_batch(agent, runs, "host"))
    lowered = fleet.programs.update.lower(*fleet.update_arguments(fleet.init(), batch))
    programs = {name: lowered.compile(compiler_options=own) for name, own in settings.items()}
    learners = {name: fleet.init() for name in settings}
    milliseconds = {name: [] for name in settings}
    for round_ in range(1 + rounds):
        for name, update in programs.items():
            start = time.perf_counter()
            for _ in range(updates):
                learners[name], _ = update(*fleet.update_arguments(learners[name], batch))
            jax.block_until_ready(learners[name])
            if round_:  # the first round touches its memory for the first time
                milliseconds[name].append(1e3 * (time.perf_counter() - start) / updates)
    return milliseconds


def ratios(milliseconds: Mapping[str, Sequence[float]]) -> dict[str, list[float]]:
    """Time of each setting divided by that of the defaults in the same round."""
    default = milliseconds[DEFAULT]
    return {
        name: [a / b for a, b in zip(own, default, strict=True)]
        for name, own in milliseconds.items()
    }


def report(preset: str, runs: int, milliseconds: Mapping[str, Sequence[float]]) -> str:
    """One table as text."""
    lines = [f"{preset}, {runs} run(s): median ms an update; ratio to the default (quartiles)"]
    for name, own in ratios(milliseconds).items():
        low, middle, high = statistics.quantiles(own, n=4)
        time_ms = statistics.median(milliseconds[name])
        lines.append(f"  {name:<22}{time_ms:8.2f}   {middle:.3f} ({low:.3f} to {high:.3f})")
    return "\n".join(lines)


def _define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_list("presets", ["erainbow", "rcrl"], "Atari presets to measure")
    flags.DEFINE_list("runs", ["1", "5"], "numbers of runs in the fleet")
    flags.DEFINE_integer("rounds", 20, "rounds, in which each setting runs", lower_bound=5)
    flags.DEFINE_integer("updates", 20, "updates of one setting a round", lower_bound=1)
    flags.DEFINE_string("output", "results/compiler_settings", "directory of the JSON file")


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    unknown = [name for name in flags.FLAGS.presets if name not in presets.ATARI_PRESETS]
    if unknown or not flags.FLAGS.presets:
        command_line.refuse(
            f"--presets: {', '.join(unknown) or 'none given'}; "
            f"choose from {', '.join(presets.ATARI_PRESETS)}"
        )
    try:
        fleets = command_line.read_numbers("runs", 1000)
        host_memory.keep_freed_memory(large_blocks=False)
        path = device_file.prepare(flags.FLAGS.output)
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))
    tables = []
    for preset in flags.FLAGS.presets:
        for runs in fleets:
            own = measure(preset, runs, flags.FLAGS.rounds, flags.FLAGS.updates, SETTINGS)
            print(report(preset, runs, own), flush=True)
            tables.append({"preset": preset, "runs": runs, "milliseconds": own})

    from rcrl_jax.training import manifest

    measured = {"settings": SETTINGS, "tables": tables, **manifest.circumstances()}
    files.write_json_atomically(path, measured)
    print(f"written to {path}")


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
