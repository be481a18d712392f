"""Steps our training on command, as `process.py` steps that of other code bases.

python -m benchmarks.peers.ours NAME
"""

import functools
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.compiled import programs
from benchmarks.peers import process
from rcrl_jax import types
from rcrl_jax.config import fields, presets
from rcrl_jax.envs import atari, dmc
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import build, host_memory, loop, prediction
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan, RunId
from rcrl_jax.training.session import Session

GAME, ACTIONS = "Pong", 6
# `rainbow` with the settings of data-efficient Rainbow as Dopamine has them.
_DER = {"n_step": 10, "update_period": 1, "learn_start": 1600, "learning_rate": 1e-4}
_CURL = {"batch_size": 128}
_SAC_OF_JAXRL = {
    "hidden_size": 256, "actor_period": 1, "target_period": 1, "learning_rate": 3e-4,
    "temperature_learning_rate": 3e-4, "temperature_beta1": 0.9, "critic_tau": 0.005,
    "encoder_tau": 0.005,
}  # fmt: skip
_WARM_STEPS, _WARM_UPDATES = 20, 3
_FILLED = 1000  # transitions in a replay of SAC
_REPLAY_CAPACITY = 10_000  # of the replay alone, as of the peer's

Changes = Mapping[str, Any]
Training = tuple[process.Advance, process.Program]


def _plan(preset: str, changes: Changes, task: str, runs: int = 1) -> Plan:
    return Plan(
        preset=preset,
        config=fields.replace(presets.all_presets()[preset], dict(changes)),
        runs=tuple(RunId(task, seed) for seed in range(runs)),
        total_steps=100_000,
        workdir=pathlib.Path(),
        eval_episodes=1,
        make_environment=lambda seeds: atari.make_atari(GAME, np.reshape(seeds, -1)),
    )


def _program(fleet: Fleet, task: str, learner: types.LearnerState) -> tuple[str, dict[int, int]]:
    agent = fleet.agent
    run = types.RunSpec(fleet.num_valid_actions[0], agent.run_constants(task))
    batch = prediction.empty_batch(agent, 1, "host")
    return programs.update_text(agent, run, *jax.tree.map(lambda x: x[0], (learner, batch)))


def atari_steps(preset: str, changes: Changes, *, update_alone: bool = False) -> Training:
    """Agent steps on Pong with an update each, or updates on one batch."""
    plan = _plan(preset, changes, GAME)
    session = Session(plan)
    loop.start(session)
    steps = loop.train(session)

    def advance(count):
        for _ in range(count):
            next(steps)
        jax.block_until_ready(session.state.learner)

    advance(plan.config.learn_start + _WARM_STEPS)
    learner = session.state.learner
    if not update_alone:
        return advance, lambda: _program(session.fleet, GAME, session.state.learner)
    batch = session.replay.sample(0.5).batch

    def update(count):
        nonlocal learner
        for _ in range(count):
            learner, _ = session.fleet.update(learner, batch)
        jax.block_until_ready(learner)

    update(_WARM_UPDATES)
    return update, lambda: _program(session.fleet, GAME, learner)


def sac_updates(preset: str, changes: Changes, task: str) -> Training:
    """Updates of SAC, each with its sampling from a replay of noise."""
    plan = _plan(preset, {"replay.capacity": 2 * _FILLED, **changes}, task)
    config = plan.config
    spec = dmc.make_spec(task, config.observation, config.render_size)
    fleet = build.assemble_fleet(plan, spec, [dmc.DMC_TASKS[task].action_size])
    replay = build.make_replay(fleet, "host")
    random = np.random.default_rng(0)
    for step in range(_FILLED):
        noise = random.integers(0, 256, (2, 1, *spec.frame.shape), np.uint8)
        frames = noise.astype(spec.frame.dtype)
        actions = random.uniform(-1, 1, (1, *spec.action.shape)).astype(np.float32)
        never, ended = np.zeros(1, bool), np.array([step % 125 == 124])
        reward = np.array([random.uniform()], np.float32)
        replay.add(frames[0], actions, reward, never, ended, frames[1])
    learner = fleet.init()

    def advance(count):
        nonlocal learner
        for _ in range(count):
            learner, _ = fleet.update(learner, replay.sample(1.0).batch)
        jax.block_until_ready(learner)

    advance(_WARM_UPDATES)
    return advance, lambda: _program(fleet, task, learner)


def replay_turns(preset: str, runs: int) -> Training:
    """Turns of the replay alone, full of noise: add, sample, set priorities."""
    plan = _plan(preset, {"replay.capacity": _REPLAY_CAPACITY}, GAME, runs)
    fleet = build.assemble_fleet(plan, discrete_spec((84, 84), ACTIONS), [ACTIONS] * runs)
    replay = build.make_replay(fleet, "host")
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (2, runs, 84, 84), np.uint8)
    actions, never = np.zeros(runs, np.int32), np.zeros(runs, bool)
    rewards = np.zeros(runs, np.float32)
    for _ in range(_REPLAY_CAPACITY + 100):
        ended = random.random(runs) < 1 / 300
        replay.add(frames[0], actions, rewards, ended, never, frames[1])
    loss = random.exponential(size=(runs, plan.config.batch_size)).astype(np.float32)

    def advance(count):
        for _ in range(count):
            replay.add(frames[0], actions, rewards, never, never, frames[1])
            replay.update_priorities(replay.sample(0.5).index, loss)

    advance(_WARM_UPDATES)
    return advance, lambda: None


_POLE = "cartpole_swingup"
START = {
    **{name: functools.partial(atari_steps, name, {})
       for name in ("erainbow", "curl", "rcrl", "der_plus")},
    "rainbow_der": functools.partial(atari_steps, "rainbow", _DER),
    "rainbow_der_update": functools.partial(atari_steps, "rainbow", _DER, update_alone=True),
    "curl_sac": functools.partial(sac_updates, "curl_sac", _CURL, _POLE),
    "rcrl_sac": functools.partial(sac_updates, "rcrl_sac", _CURL, _POLE),
    "sac_aug": functools.partial(
        sac_updates, "sac_aug", {**_SAC_OF_JAXRL, "batch_size": 128}, "cheetah_run"),
    "state_sac": functools.partial(
        sac_updates, "state_sac", {**_SAC_OF_JAXRL, "batch_size": 256}, "cheetah_run"),
    "replay_1": functools.partial(replay_turns, "erainbow", 1),
    "replay_26": functools.partial(replay_turns, "erainbow", 26),
}  # fmt: skip


def main() -> None:
    """Starts what the command line names, and serves."""
    name = sys.argv[1]
    start = START[name]
    config = presets.all_presets()[start.args[0]]
    host_memory.keep_freed_memory(large_blocks=config.needs_large_blocks)  # as in training
    process.serve(jax.__version__, *start())


if __name__ == "__main__":
    main()
