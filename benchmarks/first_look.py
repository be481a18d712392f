r"""The first command on a rented machine: checks in minutes whether longer work is worth starting.

    python -m benchmarks.first_look

* Prints device, versions and memory.
* Compares one update of `rcrl` and of `rcrl_sac`, and the gradient of equal embeddings, with the
  CPU's numbers. World models are not checked.
* Times ten steps of a fleet, with frames on the host and on the device.
* Trains two runs from start to scores, on two devices if there are two.

The last line says "worth starting" (exit code 0) or "stop" (1) with what is wrong. The game is
Catch, which needs no emulator. Without an accelerator all checks run on the CPU.
"""

import dataclasses
import pathlib
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import psutil
from absl import app, flags

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import catch, protocol
from rcrl_jax.ops.precision import at_precision
from rcrl_jax.programs import command_line
from rcrl_jax.replay.settings import make_rule
from rcrl_jax.return_contrast.task import make_return_contrast
from rcrl_jax.runs import manifest, parameters
from rcrl_jax.tasks import task
from rcrl_jax.training import experiment, host_memory, loop, prediction
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan, RunId
from rcrl_jax.training.session import Session


class Tolerance(NamedTuple):
    """The largest relative differences, in the Euclidean norm, of an update from the CPU's."""

    loss: float  # of each transition
    gradient: float  # Adam's first moment
    step: float  # change of the parameters


# The reference is the CPU in float32. Adam's first step is nearly the gradient's sign, so rounding
# reverses the step of each parameter whose gradient is smaller than the rounding error.
TOLERANCES = {
    # Sums in another order change a number by about 1e-6, a gradient by more if terms cancel.
    "float32": Tolerance(loss=1e-4, gradient=1e-2, step=0.1),
    # Inputs rounded to 10 bits on a CPU change the loss by 1e-6 (rcrl) and 5e-4 (rcrl_sac), the
    # gradient by 2 % and 1 %, the step by 4 % and 14 %.
    "tf32": Tolerance(loss=3e-3, gradient=0.1, step=0.5),
}
_SHARED = {"replay.capacity": 1000, "batch_size": 32, "return_contrast.batch_size": 32}
RAINBOW = fields.replace(presets.ATARI_PRESETS["rcrl"], {**_SHARED, "learn_start": 60})
SAC = fields.replace(presets.DMC_PRESETS["rcrl_sac"], {**_SHARED, "hidden_size": 256})
CHECKS = (("rcrl", RAINBOW, "float32"), ("rcrl", RAINBOW, "tf32"), ("rcrl_sac", SAC, "tf32"))
"""Updates that are checked: preset, configuration, precision on the device."""
_RUNS = 2  # of a checked update
_WARM_STEPS, _STEPS = 3, 10  # learning steps of the fleet, before and while the clock runs


class Wrong(Exception):
    """A check has found a wrong number."""


def describe() -> dict[str, float]:
    """Prints device, versions, and memory in GiB; measures nothing.

    Raises:
      Wrong: there is a GPU that JAX does not see.
    """
    device, host = jax.devices()[0], psutil.virtual_memory()
    memory = {"host": host.total, "host_free": host.available}
    if limit := (device.memory_stats() or {}).get("bytes_limit"):
        memory["device"] = limit
    versions = manifest.circumstances()["versions"]
    versions = ", ".join(f"{name} {text}" for name, text in versions.items() if text)
    print(f"device: {len(jax.devices())} x {device.device_kind} ({device.platform})")
    print(f"versions: {versions}")
    print("memory: " + ", ".join(f"{name} {n / 2**30:.1f} GiB" for name, n in memory.items()))
    if device.platform == "cpu":
        if idle := command_line.idle_gpu(device.platform):
            raise Wrong(idle)
        print("no accelerator: all checks run on the CPU")
    return {}


def check_update(settings: presets.Config, precision: str) -> dict[str, float]:
    """Relative differences between one update on the device and on the CPU.

    Args:
      settings: the agent's configuration.
      precision: on the device; the CPU computes in float32.

    Raises:
      Wrong: a number is not finite, or a difference exceeds `TOLERANCES`.
    """

    def update(fleet, state):
        new, result = fleet.update(jax.tree.map(np.copy, state), batch)
        return fleet.to_host(new), fleet.to_host(result)

    cpu = jax.devices("cpu")[0]
    with jax.default_device(cpu):
        reference = _make_fleet(settings, "float32", "map", cpu)
        batch = _fill(prediction.batch_shapes(reference.agent, _RUNS, "host"))
        before = reference.to_host(reference.init())
        expected = update(reference, before)
    found = update(_make_fleet(settings, precision, "auto", jax.devices()[0]), before)
    if wrong := _not_finite(found):
        raise Wrong(f"{wrong} is not finite")
    measured = {
        name: float(np.linalg.norm(got - right) / np.linalg.norm(right))
        for (name, right), (_, got) in zip(
            _compared(before, *expected), _compared(before, *found), strict=True
        )
    }
    for name, most in TOLERANCES[precision]._asdict().items():
        if not measured[name] <= most:
            raise Wrong(f"the {name} differs from the CPU's by {measured[name]:.2g} (> {most:g})")
    return measured


def check_ties() -> dict[str, float]:
    """Relative difference of a gradient of the contrastive loss on the device and on the CPU.

    Every positive equals its anchor. The gradient is with respect to psi of their common image.

    Raises:
      Wrong: the difference exceeds that of a gradient in `TOLERANCES`.
    """
    right, got = (_gradient_of_ties(device) for device in (jax.devices("cpu")[0], jax.devices()[0]))
    distance = float(np.linalg.norm(got - right) / np.linalg.norm(right))
    if not distance <= TOLERANCES["float32"].gradient:
        raise Wrong(f"the gradient of equal embeddings differs from the CPU's by {distance:.2g}")
    return {"gradient": distance}


def _gradient_of_ties(device: jax.Device) -> np.ndarray:
    rng, size, width, actions = np.random.default_rng(0), 64, 576, 6

    def join(vectors, psi, action):
        return psi * jnp.take(vectors, action, axis=0)

    rule = make_rule(RAINBOW.return_contrast, tolerance=0.0)
    parts = task.AgentParts(None, None, join, None, width, width, rule, size)
    contrast = make_return_contrast(parts, RAINBOW)
    vectors = rng.uniform(0.9, 1.1, (actions, width)).astype(np.float32)
    image, other = np.maximum(rng.normal(0, 0.5, (2, size, width)), 0).astype(np.float32)
    action, of_other = rng.integers(0, actions, (2, size)).astype(np.int32)
    pairs = (types.Pairs(None, x) for x in (action, action, of_other))
    batch = types.Batch(None, types.ContrastBatch(*pairs))
    with jax.default_device(jax.devices("cpu")[0]):
        params = jax.tree.map(np.asarray, contrast.init(jax.random.key(0)))

    def loss(anchor, positive):
        view = task.UpdateView(vectors, None, None, batch, None, (anchor, positive, other))
        return contrast.loss(params, view, None, None)[0]

    gradient = jax.jit(at_precision(jax.grad(loss, argnums=(0, 1)), "float32"))
    with jax.default_device(device):
        return np.sum(jax.device_get(gradient(image, image)), axis=0)


def time_fleet(settings: presets.Config, runs: int) -> dict[str, float]:
    """Milliseconds of a step of Catch, with its update; frames on the host and on the device.

    Raises:
      Wrong: a loss is not finite, or the first losses depend on where the frames are.
    """
    milliseconds, first = {}, {}
    for store in ("host", "device"):
        first[store], milliseconds[store] = _train(settings, runs, store)
    distance = np.linalg.norm(first["device"] - first["host"]) / np.linalg.norm(first["host"])
    if not distance <= TOLERANCES[settings.precision].loss:
        raise Wrong(f"frames on the device change the first losses by {distance:.2g}")
    return milliseconds


def check_start(settings: presets.Config) -> dict[str, float]:
    """Makes SAC's parameters on the device and acts with them, in training and in evaluation.

    Raises:
      Wrong: a parameter or an action is not finite.
    """
    fleet = _make_fleet(settings, settings.precision, "auto", jax.devices()[0])
    state, formats = fleet.init(), fleet.agent.observations
    frame = (settings.render_size, settings.render_size, 3)
    stacks = np.zeros((_RUNS, 1, formats.frame_stack, *frame), np.uint8)
    policies = (TRAINING, EVALUATION)
    actions = [
        fleet.act(state.params.agent, stacks, fleet.init_memory(1), 0, policy_name=name)[0]
        for name in policies
    ]
    if wrong := _not_finite(fleet.to_host((state.params, actions))):
        raise Wrong(f"{wrong} is not finite")
    return {}


def check_run(settings: presets.Config) -> dict[str, float]:
    """Trains two runs on Catch to their scores: evaluation, instruments, checkpoint, records."""
    with tempfile.TemporaryDirectory() as workdir:
        plan = _make_plan(settings, _RUNS, "device")
        plan = dataclasses.replace(
            plan, workdir=pathlib.Path(workdir), num_devices=min(_RUNS, jax.device_count())
        )
        experiment.run(plan, say=lambda line: None)
    return {"devices": plan.num_devices}


def _make_fleet(settings, precision, batching, device):
    if isinstance(settings, RainbowConfig):
        game, actions, spec = "Pong", 6, protocol.discrete_spec((84, 84), 6)
    else:
        shape = (settings.render_size, settings.render_size, 3)
        game, actions, spec = "cheetah_run", 6, protocol.control_spec(shape, 6, action_repeat=4)
    agent = make_agent(fields.replace(settings, {"precision": precision}), spec)
    constants = jax.tree.map(lambda x: np.stack([x] * _RUNS), agent.run_constants(game))
    runs = types.RunSpec(np.full(_RUNS, actions, np.int32), constants)
    return Fleet(agent, range(_RUNS), runs, batching=batching, devices=[device])


def _fill(shapes):
    """A batch of random pixels, actions and numbers below 1, of these shapes."""
    rng = np.random.default_rng(0)

    def draw(x):
        if x.dtype == np.float32:
            return rng.random(x.shape, np.float32)
        return rng.integers(0, 256 if x.dtype == np.uint8 else 6, x.shape, x.dtype)

    return jax.tree.map(draw, shapes)


def _not_finite(tree) -> str:
    """The path of the first array of a tree with a number that is not finite, or ''."""
    arrays = parameters.by_name(tree).items()
    return next((name for name, array in arrays if not np.isfinite(array).all()), "")


def _compared(before, after, result) -> Iterator[tuple[str, Any]]:
    """Name, as in `Tolerance`, and vector of each quantity that is compared."""

    def vector(leaves):
        return np.concatenate([np.ravel(leaf).astype(np.float64) for leaf in leaves])

    states = parameters.by_name(after.opt_state).items()
    yield "loss", vector([result.transition_loss])
    yield "gradient", vector([state for name, state in states if "mu" in name.split("/")])
    yield "step", vector(jax.tree.leaves(after.params)) - vector(jax.tree.leaves(before.params))


def _make_plan(settings, runs, frame_store):
    """A few steps of Catch."""
    return Plan(
        preset="rcrl",
        config=settings,
        runs=tuple(RunId("Catch", seed) for seed in range(runs)),
        total_steps=settings.learn_start + _WARM_STEPS + _STEPS,
        workdir=pathlib.Path(),
        eval_episodes=10,
        make_environment=lambda seeds: catch.make_catch(seeds.reshape(-1)),
        frame_store=frame_store,
    )


def _train(settings, runs, frame_store):
    """The losses `[R, B]` of the first update, and milliseconds a step."""
    plan = _make_plan(settings, runs, frame_store)
    start = plan.total_steps - _STEPS
    losses = []
    with Session(plan) as session:
        loop.start(session)
        for step in loop.train(session):
            if step.completed_update:
                losses.append(step.completed_update.result.transition_loss)
            if session.state.step == start:
                jax.block_until_ready(session.state.learner)
                began = time.perf_counter()
        jax.block_until_ready(session.state.learner)
        milliseconds = 1e3 * (time.perf_counter() - began) / _STEPS
    losses = np.asarray(losses)
    if not np.isfinite(losses).all():
        raise Wrong(f"a loss is not finite, frames on the {frame_store}")
    return losses[0], milliseconds


def look(runs: int) -> list[str]:
    """Carries out all checks, even after failures; returns one line for each failure."""
    wrong = []

    def carry_out(name: str, check: Callable[[], dict[str, float]]) -> None:
        start = time.perf_counter()
        try:
            found = check()
            numbers = ", ".join(f"{what} {number:.2g}" for what, number in found.items())
            said = f"ok, {numbers}" if numbers else "ok"
        except Exception as error:  # of a compiler or driver: the other checks go on
            said = str(error) if isinstance(error, Wrong) else f"{type(error).__name__}: {error}"
            said = " ".join(said.split())[:300]
            wrong.append(f"{name}: {said}")
        print(f"{name}: {said} ({time.perf_counter() - start:.0f} s)", flush=True)

    carry_out("machine", describe)
    for preset, settings, precision in CHECKS:
        carry_out(
            f"update of {preset} in {precision}",
            lambda settings=settings, precision=precision: check_update(settings, precision),
        )
    carry_out("gradient of equal embeddings", check_ties)
    carry_out(f"fleet of {runs} runs, ms a step", lambda: time_fleet(RAINBOW, runs))
    carry_out("start of rcrl_sac", lambda: check_start(SAC))
    carry_out("two runs to their scores", lambda: check_run(RAINBOW))
    return wrong


def _define_flags() -> None:
    """Not called at import: tests import several modules that define flags of the same names."""
    flags.DEFINE_integer("runs", 4, "runs of the timed fleet", 1, 1000)


def main(argv: list[str]) -> int:
    """Looks, prints, and returns the exit code."""
    del argv
    host_memory.keep_freed_memory(large_blocks=False)
    try:
        command_line.count_devices()
    except ValueError as error:
        command_line.refuse(str(error))
    start = time.perf_counter()
    wrong = look(flags.FLAGS.runs)
    if wrong:
        print(f"stop: {'; '.join(wrong)}")
        return 1
    print(f"worth starting: all checks passed in {time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    _define_flags()
    app.run(main, flags_parser=command_line.parse)
