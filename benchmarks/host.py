r"""Measures what the host does in a training step, without a device.

    python -m benchmarks.host --runs=1,26,130

Runs the training loop of `rcrl_jax/training/loop.py` on a full replay, with frames on the device.
The device is a stub: it copies its inputs, as a transfer would, and returns arrays of the right
shapes at once. So the loop's time is the host's time. Fleets of 26 runs or more are spread over the
26 games; smaller fleets play Pong.

Prints a table, and writes it with all numbers to results/host/<device>.md and .json. The process
takes --cores of the machine's cores. Host parts run in one thread. We measure their CPU time, which
other work on the machine changes little. The emulators run in further threads.
"""

import os
import sys
import time
import types as python_types
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks import device_file
from rcrl_jax import compilation, files, types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import presets
from rcrl_jax.envs import atari, protocol
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.ops import native
from rcrl_jax.programs import command_line, markdown
from rcrl_jax.replay.frames import DeviceFrameStore, detach_frames, device_frame_size
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.runs import manifest
from rcrl_jax.training import evaluation, host_memory, loop
from rcrl_jax.training.history import History
from rcrl_jax.training.session import LoopState

_WARM_STEPS = 5
_BLOCK = 1000  # steps whose outcomes are drawn in one call
_FRAMES = 16  # different synthetic frames of an environment
_SHARE_OF_REWARDS, _SHARE_OF_ENDS, _SHARE_OF_CUTS = 1 / 20, 1 / 300, 1 / 5000  # of steps
# Parts of a step that are timed inside the loop; what is left is "rest".
_PARTS = {
    "sample": ("replay", "sample"),
    "add": ("replay", "add"),
    "history": ("history", "add"),
    "priorities": ("replay", "update_priorities"),
    "act": ("fleet", "act"),
    "update": ("fleet", "update"),
    "send": ("environment", "send"),
    "recv": ("environment", "recv"),
}


class SyntheticGames(protocol.VectorEnvironment):
    """R environments that return prepared noise, with rewards and ends as often as games have."""

    def __init__(self, num_envs: int) -> None:
        """Prepares the frames."""
        self.num_envs = num_envs
        self.spec = protocol.discrete_spec((84, 84), 18)
        self.num_valid_actions = np.full(num_envs, 18, np.int32)
        self.description = {"backend": "synthetic"}
        self._rng = np.random.default_rng(0)
        shape = (_FRAMES, num_envs, 84, 84)
        self._frames = self._rng.integers(0, 256, shape, dtype=np.uint8)
        self._step = 0

    def reset(self, mask: np.ndarray | None = None) -> protocol.TimeStep:
        """See `VectorEnvironment.reset`; rewards are 0 and no episode ends."""
        del mask
        none = np.zeros(self.num_envs, bool)
        frame, zeros = self._frames[self._step % _FRAMES], np.zeros(self.num_envs, np.float32)
        return protocol.TimeStep(frame, zeros, np.zeros(self.num_envs, np.int32), none, none)

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        protocol.validate_actions(actions, self.spec, self.num_valid_actions)
        self._step += 1

    def recv(self) -> protocol.TimeStep:
        """See `VectorEnvironment.recv`."""
        reward, terminated, truncated = synthetic_outcome(self._rng, self.num_envs)
        return self.reset()._replace(reward=reward, terminated=terminated, truncated=truncated)


def synthetic_outcome(
    rng: np.random.Generator, *shape: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rewards in {-1, 0, 1} float32, `terminated` and `truncated`, as often as in games."""
    signs = rng.choice(np.array([-1, 1], np.float32), shape)
    reward = signs * (rng.random(shape) < _SHARE_OF_REWARDS)
    terminated = rng.random(shape) < _SHARE_OF_ENDS
    return reward, terminated, (rng.random(shape) < _SHARE_OF_CUTS) & ~terminated


def copy_arrays(tree: Any) -> Any:
    """Copies whole arrays in C order, as a transfer to a device reads them."""
    return jax.tree.map(lambda x: np.array(x, order="C"), tree)


def make_stub(agent, num_runs: int, place: Callable[[Any], Any] = copy_arrays):
    """A fleet whose device places its inputs and returns prepared arrays at once."""
    rng = np.random.default_rng(0)
    loss = rng.exponential(size=(num_runs, agent.replay.batch_size)).astype(np.float32)
    actions = rng.integers(0, 3, (_FRAMES, num_runs, 1)).astype(np.int32)
    learner = python_types.SimpleNamespace(params=python_types.SimpleNamespace(agent=None))

    def act(params, frames: np.ndarray, memory: types.Memory, step: int):
        del params
        place(frames)
        return actions[step % _FRAMES], memory

    def update(learner, batch: types.Batch, kind: int):
        del kind
        place(detach_frames(batch)[0])
        return learner, types.UpdateResult(loss, {})

    return python_types.SimpleNamespace(
        agent=agent, num_runs=num_runs, learner=learner, place=place, act=act, update=update
    )


def make_frame_store(fleet):
    """A `DeviceFrameStore` without its array: frames are packed and placed, and then dropped."""

    class Stub(DeviceFrameStore):
        is_filling = False

        def write(self, rows, slots, frames):
            if not self.is_filling:
                super().write(rows, slots, frames)

        def _scatter(self, slots, frames):
            self._place((slots, frames))

    layout = fleet.agent.observations.stored
    shape = (fleet.num_runs, fleet.agent.replay.capacity + 2, device_frame_size(layout))
    zeros = np.broadcast_to(np.uint8(0), shape)
    return Stub(fleet.num_runs, zeros, fleet.place, layout)


def fill(replay, num_runs: int, steps: int) -> None:
    """Adds `steps` synthetic transitions of every run."""
    rng = np.random.default_rng(1)
    frame = np.zeros((num_runs, 84, 84), np.uint8)
    for start in range(0, steps, _BLOCK):
        shape = (min(_BLOCK, steps - start), num_runs)
        action = rng.integers(0, 18, shape, dtype=np.int32)
        for columns in zip(action, *synthetic_outcome(rng, *shape), strict=True):
            replay.add(frame, *columns, frame)


class Clock:
    """Seconds of parts of a step."""

    def __init__(self, now: Callable[[], float]) -> None:
        """Starts with no part."""
        self.now = now
        self.seconds: dict[str, float] = {}

    def timing(self, part: str, function: Callable) -> Callable:
        """Wraps `function`, so that its time counts for the part."""

        def timed(*arguments, **named):
            start = self.now()
            result = function(*arguments, **named)
            self.seconds[part] = self.seconds.get(part, 0.0) + self.now() - start
            return result

        return timed


def measure_loop(fleet, replay, environment, steps: int) -> dict[str, float]:
    """Medians over steps of the training loop, in milliseconds.

    Returns:
      CPU time of this thread for each part and for the whole step (`thread`), CPU time of all
      threads (`process`), and wall-clock time (`wall`).
    """
    agent = fleet.agent
    first, total = agent.schedule.learn_start, agent.schedule.learn_start + _WARM_STEPS + steps
    history = History(fleet.num_runs, total, agent.action.shape)
    owners = {"replay": replay, "history": history, "fleet": fleet, "environment": environment}
    clock, timed = Clock(time.thread_time), {}
    for name, owner in owners.items():
        own = [(part, method) for part, (whose, method) in _PARTS.items() if whose == name]
        methods = {method: clock.timing(part, getattr(owner, method)) for part, method in own}
        timed[name] = python_types.SimpleNamespace(**methods)
    timed["fleet"].agent, timed["fleet"].num_runs = agent, fleet.num_runs
    counters = {"thread": time.thread_time, "process": time.process_time, "wall": time.perf_counter}
    seen: list[dict[str, float]] = []
    memory = types.Memory((), np.ones((fleet.num_runs, 1), bool))
    state = LoopState(first, fleet.learner, environment.reset(), None, memory)
    plan = python_types.SimpleNamespace(total_steps=total)
    session = python_types.SimpleNamespace(**timed, plan=plan, state=state, step_log=None)
    loop_steps = loop.train(session)
    for _ in range(_WARM_STEPS + steps):
        clock.seconds.clear()
        before = {name: now() for name, now in counters.items()}
        next(loop_steps)
        whole = {name: now() - before[name] for name, now in counters.items()}
        rest = whole["thread"] - sum(clock.seconds.values())
        seen.append(whole | clock.seconds | {"rest": rest})
    return {
        name: 1e3 * float(np.median([step[name] for step in seen[_WARM_STEPS:]]))
        for name in (*counters, *_PARTS, "rest")
    }


def measure_fleet(settings, runs: int, cores: Sequence[int], steps: int) -> dict[str, Any]:
    """Times a fleet without emulators, and with them on each number of cores."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:1])
    synthetic = SyntheticGames(runs)
    agent = make_agent(settings, synthetic.spec)
    fleet = make_stub(agent, runs)
    frames = make_frame_store(fleet)
    replay = SegmentReplay(frames, np.arange(runs), agent.replay, agent.observations, agent.action)
    frames.is_filling = True
    fill(replay, runs, settings.replay.capacity)
    frames.is_filling = False
    measured = {
        "runs": runs,
        "without": measure_loop(
            fleet, replay, AgentEnvironment(synthetic, agent.protocol), 5 * steps
        ),
        "with": {},
    }
    games = atari.ATARI_GAMES if runs >= len(atari.ATARI_GAMES) else ("Pong",)
    each = runs // len(games)
    for number in cores:
        # Threads of the emulators inherit the cores of the thread that starts them.
        os.sched_setaffinity(0, allowed[:number])
        seeds = evaluation.training_seeds(tuple(range(len(games) * each)))
        environment = AgentEnvironment(atari.make_games(games, each, "auto", seeds), agent.protocol)
        measured["with"][number] = measure_loop(fleet, replay, environment, steps)
        environment.close()
    os.sched_setaffinity(0, allowed)
    return measured


def report(fleets: Sequence[dict[str, Any]]) -> str:
    """The measurements as a Markdown table; one column per fleet and number of cores."""
    columns = [(f["runs"], 1, f["without"], "none") for f in fleets]
    columns += [(f["runs"], n, t, "Atari") for f in fleets for n, t in f["with"].items()]
    rows = {"emulators": [c[3] for c in columns], "cores": [str(c[1]) for c in columns]}
    host = ("sample", "add", "priorities")
    for part in (*host, "history", "act", "update", "send", "recv", "rest"):
        rows[f"{part} [ms]"] = [f"{c[2][part]:.2f}" for c in columns]
    rows["sample + add + priorities [ms]"] = [
        f"{sum(c[2][part] for part in host):.2f}" for c in columns
    ]
    rows["step, CPU of the loop's thread [ms]"] = [f"{c[2]['thread']:.2f}" for c in columns]
    rows["step, CPU of all threads [ms]"] = [f"{c[2]['process']:.2f}" for c in columns]
    rows["step, wall clock [ms]"] = [f"{c[2]['wall']:.2f}" for c in columns]
    rows["agent steps a second of CPU"] = [f"{1e3 * c[0] / c[2]['process']:.0f}" for c in columns]
    rows["agent steps/s by wall clock"] = [f"{1e3 * c[0] / c[2]['wall']:.0f}" for c in columns]
    head = ["runs", *(str(c[0]) for c in columns)]
    return markdown.table(head, [[name, *cells] for name, cells in rows.items()])


def _define_flags() -> None:
    """Not called at import: tests import several modules that define flags of the same names."""
    flags.DEFINE_list("runs", ["1", "26", "130"], "numbers of runs; from 26 on multiples of 26")
    flags.DEFINE_list(
        "cores", ["1", "2"], "numbers of cores that the emulators share with the loop"
    )
    flags.DEFINE_integer("steps", 40, "timed steps with emulators", lower_bound=3)
    flags.DEFINE_string("output", "results/host", "directory of the table and the JSON file")
    command_line.define_config(presets.ATARI_PRESETS, "rcrl", sys.argv)


def main(argv: list[str]) -> None:
    """Measures, prints and writes."""
    del argv
    try:
        settings = command_line.read_config(presets.ATARI_PRESETS)
        if settings.update_period > 1:
            raise ValueError("--config.update_period: only steps with an update each are timed")
        runs = command_line.read_numbers("runs", 10_000)
        if wrong := [r for r in runs if r > 26 and r % 26]:
            raise ValueError(f"--runs: from 26 on multiples of 26, got {wrong[0]}")
        cores = command_line.read_numbers("cores", len(os.sched_getaffinity(0)))
        host_memory.keep_freed_memory(large_blocks=False)
        command_line.count_devices()
        path = device_file.prepare(flags.FLAGS.output)
    except (ValueError, OSError) as error:
        command_line.refuse(str(error))

    processor = compilation.processor()["model name"]
    load = os.getloadavg()[0]
    fleets = [measure_fleet(settings, r, cores, flags.FLAGS.steps) for r in runs]
    around = manifest.circumstances()
    about = (
        f"{processor}. Preset {flags.FLAGS.preset}, ring of {settings.replay.capacity} slots, "
        f"sum tree {native.describe()['sum_tree']}, load average {load:.1f} before, commit "
        f"{around['versions']['git_commit']}, `{around['launch']['command']}`."
    )
    text = f"{report(fleets)}\n\n{about}"
    print(text)
    files.write_json_atomically(
        path,
        {
            "preset": flags.FLAGS.preset,
            "capacity": settings.replay.capacity,
            "sum_tree": native.describe()["sum_tree"],
            "load_average": load,
            "unit": "median milliseconds a step; parts are CPU time of the loop's thread",
            "fleets": fleets,
            "processor": processor,
            **around,
        },
    )
    with files.replacing(path.with_suffix(".md")) as page:
        page.write_text(text + "\n")
    print(f"written to {path}")


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
