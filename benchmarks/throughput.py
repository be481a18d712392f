r"""Measures the speed of training, and its share of the machine's rate of matrix products.

    python -m benchmarks.throughput --preset=rcrl
    python -m benchmarks.throughput --preset=rcrl_sac --config.batch_size=512

Agents of Atari play Pong, those of MinAtar Breakout, those of DMControl cheetah_run.

Prints, and writes to results/throughput/<device>.json:

* the machine's rate of float32 matrix products, measured on the spot;
* the time of each part of a training step alone;
* the time of the whole loop or, for agents that make several updates at once, the sum of the parts;
* the FLOP of the products of one update, and the share of the measured rate that the update
  reaches.

Nothing else should run meanwhile.
"""

import functools
import pathlib
import statistics
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from benchmarks import device_file
from benchmarks.compiled import counting, programs
from rcrl_jax import files, types, words
from rcrl_jax.config import choices, presets
from rcrl_jax.config.presets import Config
from rcrl_jax.envs import minatar
from rcrl_jax.programs import command_line
from rcrl_jax.runs import manifest
from rcrl_jax.training import build, host_memory, loop, prediction
from rcrl_jax.training.environments import environment_of
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan, RunId
from rcrl_jax.training.session import Session

_RUNS = flags.DEFINE_list("runs", ["1"], "numbers of runs in the fleet, e.g. 1,5,26,130")
_STEPS = flags.DEFINE_integer("loop_steps", 300, "learning steps of the timed loop", 10, 1_000_000)
_REPEATS = flags.DEFINE_integer("repeats", 30, "timed calls of each part", 3, 1_000_000)
_BATCHING = flags.DEFINE_enum("batching", "auto", choices.BATCHINGS, "how the fleet computes")
_FRAME_STORE = flags.DEFINE_enum(
    "frame_store", "auto", choices.FRAME_STORES, "where frames live; auto: as in training"
)
_OUTPUT = flags.DEFINE_string("output", "results/throughput", "directory of the JSON file")

_CONTROL = presets.control_presets()
_PRESETS = {**presets.ATARI_PRESETS, **presets.MINATAR_PRESETS, **_CONTROL}
_MOST_RUNS = 1000
_WARM_STEPS = 20  # learning steps before the clock starts: compilation, first page faults


def median_s(call: Callable[[], Any], repeats: int) -> float:
    """Median wall-clock seconds of `call`, which must return only when its work is done."""
    call()
    return statistics.median(timeit.repeat(call, number=1, repeat=repeats))


def measure_machine(repeats: int) -> dict[str, float]:
    """The rate of a large float32 matrix product."""
    size = 2048 if jax.default_backend() == "cpu" else 8192
    matrix = jax.random.normal(jax.random.key(0), (size, size))
    product = jax.jit(functools.partial(jnp.dot, precision="highest"))
    product_s = median_s(lambda: product(matrix, matrix).block_until_ready(), repeats)
    return {"matmul_gflop_per_s": 2 * size**3 / product_s / 1e9}


def make_plan(preset: str, settings: Config, runs: int) -> Plan:
    """A plan of `runs` runs of Pong, Breakout or cheetah_run."""
    game, backend = "Pong", "auto"
    if preset in presets.MINATAR_PRESETS:
        game, backend = "Breakout", minatar.BACKEND
    elif preset in _CONTROL:
        game, backend = "cheetah_run", "dm_control"
    ids = tuple(RunId(game, seed) for seed in range(runs))
    return Plan(
        preset=preset,
        config=settings,
        runs=ids,
        total_steps=settings.learn_start + _WARM_STEPS + _STEPS.value,
        workdir=pathlib.Path(_OUTPUT.value),
        eval_episodes=1,
        make_environment=build.environment_maker(settings, ids, backend),
        batching=_BATCHING.value,
        frame_store=build.choose_frame_store(
            _FRAME_STORE.value, pixels=settings.observation == "pixels"
        ),
    )


def predict_memory(plan):
    """What a plan's fleet needs; makes nothing."""
    game = plan.runs[0].game
    spec = environment_of(plan.config, game).spec(plan.config, (game,))
    fleet = prediction.fleet_of(plan, spec)
    return prediction.predict_memory(fleet, spec, plan.frame_store, plan.total_steps)


def measure_fleet(plan, memory) -> dict[str, float]:
    """Times the parts of a step of a plan's runs, and the whole loop, in milliseconds."""
    preset, settings, runs, repeats = plan.preset, plan.config, len(plan.runs), _REPEATS.value
    session = Session(plan)
    loop.start(session)
    environment, fleet, replay = session.environment, session.fleet, session.replay
    agent, schedule = fleet.agent, fleet.agent.schedule
    several = max(schedule.first_updates, schedule.updates) > 1
    first = schedule.learn_start + _WARM_STEPS
    last = schedule.learn_start if several else first + _STEPS.value
    for step in loop.train(session):
        if step.state.step == first:
            jax.block_until_ready(step.state.learner)
            start = time.perf_counter()
        if step.state.step == last:
            break
    jax.block_until_ready(step.state.learner)
    if not several:
        loop_ms = 1e3 * (time.perf_counter() - start) / _STEPS.value

    # Each part alone, including the wait for its result.
    learner = step.state.learner
    frames = step.state.observation[:, None]
    actions = np.zeros((runs, *agent.action.shape), agent.action.dtype)

    def act():
        np.asarray(fleet.act(learner.params.agent, frames, step.state.memory, step.state.step)[0])

    def sample():
        return replay.sample(0.5)

    drawn = sample()
    transition_loss = np.ones(drawn.index.shape, np.float32)

    def remember():
        session.history = History(runs, 1, agent.action.shape)
        loop.store_step(session, step.state.observation, actions, step.outcome)

    def update():
        nonlocal learner
        learner, result = fleet.update(learner, drawn.batch)
        jax.block_until_ready((learner, result))

    parts = {
        "act": act,
        "environment": lambda: environment.step(actions),
        "sample": sample,
        "update": update,
        "priorities": lambda: replay.update_priorities(drawn.index, transition_loss),
        "add": remember,
    }
    milliseconds = {f"{name}_ms": 1e3 * median_s(call, repeats) for name, call in parts.items()}
    cpu_s = min(timeit.repeat(update, time.process_time, number=1, repeat=repeats))
    updates_a_step = schedule.updates / schedule.update_period
    if several:  # the first updates alone may take hours
        of_update = ("sample_ms", "update_ms", "priorities_ms")
        loop_ms = sum(
            ms * (updates_a_step if name in of_update else 1) for name, ms in milliseconds.items()
        )
    run = types.RunSpec(environment.num_valid_actions[0], agent.run_constants(plan.runs[0].game))
    state, batch = jax.tree.map(lambda x: x[0], (learner, prediction.empty_batch(agent, 1, "host")))
    text, known = programs.update_text(agent, run, state, batch)
    flop = counting.flop(text, known)
    session.close()
    return {
        "preset": preset,
        "games": plan.runs[0].game,
        "batch_size": settings.batch_size,
        "runs": runs,
        "agent_steps_per_s": 1e3 * runs / loop_ms,
        "loop_ms": loop_ms,  # for world models, the sum of its parts
        "updates_a_step": updates_a_step,
        **milliseconds,
        "update_cpu_ms": 1e3 * cpu_s,  # CPU time of all threads, the smallest of the repetitions
        "update_gflop_per_run": flop / 1e9,
        "update_gflop_per_s": runs * flop / milliseconds["update_ms"] / 1e6,
        "host_gib": memory.host / 2**30,
        "device_gib": memory.device / 2**30,
    }


def report(machine: dict[str, float], fleets: Sequence[dict[str, Any]]) -> str:
    """The measurements as text."""
    lines = [f"float32 matrix product {machine['matmul_gflop_per_s']:.0f} GFLOP/s"]
    for f in fleets:
        rest = f["loop_ms"] - f["updates_a_step"] * f["update_ms"]
        share = f["update_gflop_per_s"] / machine["matmul_gflop_per_s"]
        cost = f["loop_ms"] / f["runs"] / (fleets[0]["loop_ms"] / fleets[0]["runs"])
        lines += [
            "",
            f"{f['preset']} on {f['games']}, {words.count('run', f['runs'])}: "
            f"{f['agent_steps_per_s']:.1f} agent steps/s, {f['loop_ms']:.2f} ms a step, "
            f"{cost:.2f} x the cost of a run at R = {fleets[0]['runs']}",
            f"  update       {f['update_ms']:8.2f} ms, {f['update_gflop_per_run']:.2f} GFLOP a run,"
            f" {f['update_gflop_per_s']:.0f} GFLOP/s = {share:.0%} of the measured rate;"
            f" {f['update_cpu_ms']:.0f} ms of CPU",
        ]
        for part in ("act", "environment", "sample", "priorities", "add"):
            lines.append(f"  {part:<12} {f[f'{part}_ms']:8.2f} ms")
        lines.append(
            f"  memory       host {f['host_gib']:.1f} GiB, device {f['device_gib']:.1f} GiB "
            "(predicted)"
        )
        lines.append(
            f"  loop - update{rest:8.2f} ms = {rest / f['loop_ms']:.0%} of the loop's time, "
            f"{f['updates_a_step']:g} updates a step"
        )
    return "\n".join(lines)


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    preset = flags.FLAGS.preset
    try:
        settings = command_line.read_config(_PRESETS)
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
        runs = command_line.read_numbers("runs", _MOST_RUNS)
        command_line.count_devices()
        plans = [make_plan(preset, settings, number) for number in runs]
        memories = [predict_memory(plan) for plan in plans]
        for plan, memory in zip(plans, memories, strict=True):
            prediction.check(memory, len(plan.runs), settings)
        path = device_file.prepare(_OUTPUT.value)
        measured = files.read_json(path, dict) if path.exists() else {}
        machine = measure_machine(_REPEATS.value)
        fleets = [measure_fleet(plan, memory) for plan, memory in zip(plans, memories, strict=True)]
    except (ValueError, ImportError, OSError) as error:
        command_line.refuse(str(error))
    print(report(machine, fleets))

    changed = {f"config.{name}": value for name, value in command_line.changed_fields().items()}
    for name in ("frame_store", "batching"):
        if not flags.FLAGS[name].using_default_value:
            changed[name] = flags.FLAGS[name].value
    key = " ".join([preset, *(f"--{name}={value}" for name, value in changed.items())])
    measured[key] = {
        "machine": machine,
        "fleets": fleets,
        **manifest.circumstances(),
    }
    files.write_json_atomically(path, measured)
    print(f"written to {path}")


if __name__ == "__main__":
    command_line.define_config(_PRESETS, "rcrl", sys.argv)
    app.run(main, flags_parser=command_line.parse)
