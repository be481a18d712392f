"""A run's result is independent of fleet composition."""

import dataclasses
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.ops import native
from rcrl_jax.replay.frames import FrameReferences, device_frame_size
from rcrl_jax.training import build, over_runs, prediction
from rcrl_jax.training import fleet as fleets
from rcrl_jax.training.session import Session
from tests.training import test_golden, toy, toy_control, toy_simple, toy_world_models

SEEDS = (3, 5, 8)
STEPS = 90
# Noise strong enough to change the best action, so that tests detect it.
NOISY = {"noisy_sigma": 1.0, "evaluation_epsilon": 0.1}
CONFIG = toy.make_config(**NOISY)


def train(seeds):
    """The fleet and all results of training; the run of the last seed lacks an action."""

    def make_environment(environment_seeds):
        environment = toy.make_catch(environment_seeds)
        environment.num_valid_actions[[seed == SEEDS[-1] for seed in seeds]] = 2
        return environment

    plan = toy.make_plan("", seeds=seeds, overrides=NOISY, make_environment=make_environment)
    _, fleet = build.make_fleet(plan)
    return fleet, toy.trained(plan, STEPS)


@pytest.fixture(scope="module")
def together():
    return train(SEEDS)


def test_memory_starts_over_where_an_episode_starts():
    def act(run, params, observation, memory, key, policy_name, step):
        return jnp.zeros(len(observation), jnp.int32), memory + 1

    _, plain = toy.make_fleet(CONFIG, SEEDS[:2])
    agent = dataclasses.replace(plain.agent, init_memory=lambda n: jnp.full(n, 10), act=act)
    runs = types.RunSpec(np.full(2, 3, np.int32), None)
    fleet = fleets.Fleet(agent, SEEDS[:2], runs)
    frames = np.zeros((2, 2, CONFIG.frame_stack, 84, 84), np.uint8)
    _, memory = fleet.act((), frames, fleet.init_memory(2), 0)
    assert memory.state.tolist() == [[11, 11], [11, 11]] and not memory.is_first.any()
    memory = memory._replace(is_first=np.array([[True, False], [False, False]]))
    _, memory = fleet.act((), frames, memory, 1)
    assert memory.state.tolist() == [[11, 12], [12, 12]]


@pytest.mark.parametrize(
    "plan",
    [
        toy.make_plan("", "rcrl"), toy_control.make_plan("", "state_sac"),
        toy_world_models.make_plan("", "slac"), toy_simple.make_plan(""),
    ],
    ids=lambda plan: plan.preset,
)  # fmt: skip
def test_every_agent_acts_with_a_memory_maybe_empty(plan):
    environment, fleet = build.make_fleet(plan)
    agent = fleet.agent
    run = types.RunSpec(np.int32(2), agent.run_constants(plan.runs[0].game))
    key, memory = jax.random.key(0), jax.eval_shape(lambda: agent.init_memory(3))
    params = jax.eval_shape(agent.init, run, key).params.agent
    formats = agent.observations
    stacks = np.zeros((3, *formats.network_shape), formats.network.dtype)
    for name in (TRAINING, EVALUATION):
        action, after = jax.eval_shape(
            lambda params, memory, name=name: agent.act(
                run, params, stacks, memory, key, name, np.int32(0)
            ),
            params,
            memory,
        )
        assert action.shape == (3, *agent.action.shape)
        assert jax.tree.structure(after) == jax.tree.structure(memory)
    assert bool(jax.tree.leaves(memory)) == (plan.preset == "slac")
    environment.close()


def test_run_is_independent_of_fleet_composition(together):
    _, results = together
    _, alone = train(SEEDS[2:])
    toy.assert_equal_trees(jax.tree.map(lambda x: x[2:], results), alone)
    (learner, _), _, history = results
    assert learner.updates.tolist() == [STEPS - CONFIG.learn_start] * 3
    assert [np.unique(actions).tolist() for actions in history.actions] == [
        [0, 1, 2], [0, 1, 2], [0, 1]
    ]  # fmt: skip


def test_a_larger_action_set_changes_rounding_alone():
    """A game's valid actions keep their values in a network with more actions."""
    config = toy.make_config("rcrl", **NOISY, embedding_init="normal")  # no action like another
    batch, found, rng = None, [], np.random.default_rng(0)
    for actions in (3, 5):
        agent = make_agent(config, discrete_spec((84, 84), actions))
        run = types.RunSpec(np.int32(3), agent.run_constants(toy.GAME))
        if batch is None:
            batch = prediction.empty_batch(agent, 1, "host")
            shape = batch.transitions.observation.shape
            frames = rng.integers(0, 256, (2, *shape), np.uint8)
            transitions = batch.transitions._replace(
                observation=frames[0], next_observation=frames[1]
            )
            batch = batch._replace(transitions=transitions)
        state = jax.jit(agent.init)(run, jax.random.key(0))
        one = jax.tree.map(lambda x: x[0], batch)
        state, result = jax.jit(agent.update)(run, state, one)
        pairs = types.Pairs(one.transitions.observation, one.transitions.action)
        found.append((result.transition_loss, jax.jit(agent.embed)(state.params.agent, pairs)))
    for few, many in zip(*found, strict=True):
        np.testing.assert_allclose(few, many, rtol=1e-4, atol=1e-5)


def test_the_seed_alone_fixes_weights_and_starts_of_games():
    seeds, weights = [], []

    def make(environment_seeds):
        seeds.append(environment_seeds.tolist())
        return toy.make_catch(environment_seeds)

    for preset, game in (("rcrl", "Catch"), ("erainbow_sa", "Pong")):
        config = toy.make_config(preset)
        _, fleet = toy.make_fleet(config, (3,), games=[game], make_environment=make)
        weights.append(fleet.to_host(fleet.init()).params.agent)
    toy.assert_equal_trees(*weights)
    assert seeds[0] == seeds[1]


def test_runs_of_different_seeds_differ(together):
    _, ((learner, _), replay, history) = together
    of_agents = jax.tree.leaves(learner.params.agent)
    for array in (*of_agents, replay.priorities, history.actions, learner.key):
        assert not np.array_equal(array[0], array[1])


def test_an_update_of_all_runs_at_once_equals_one_after_the_other():
    _, fleet = toy.make_fleet(CONFIG, SEEDS)
    environment, batched = toy.make_fleet(CONFIG, SEEDS, batching="vmap")
    batch = toy.played(environment, fleet).sample(1.0).batch
    one, other = (f.to_host(f.update(fleet.init(), batch)) for f in (fleet, batched))
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("preset, kernels", [("rcrl", True), ("rcrl_curl", True), ("rcrl", False)])
def test_steps_of_all_runs_at_once_equal_those_of_each_run(preset, kernels, monkeypatch):
    """Bit for bit; the last of three updates copies the target. XLA's sums may round otherwise."""
    if kernels and native.get("adam") is None:
        pytest.skip("the kernels are not compiled")
    if not kernels:
        monkeypatch.setattr(native, "get", lambda name: None)
    together, for_all_at_once = [], over_runs.for_all_at_once
    monkeypatch.setattr(
        over_runs, "for_all_at_once", lambda *a: together.append(a) or for_all_at_once(*a)
    )
    config = toy.make_config(preset, test_golden.ATARI, target_period=3)
    environment, fleet = toy.make_fleet(config, SEEDS)
    batch = toy.played(environment, fleet).sample(1.0).batch
    found = []
    for halves in (fleet.agent.halves, None):
        agent = dataclasses.replace(fleet.agent, halves=halves)  # new programs
        one = fleets.Fleet(agent, SEEDS, fleet._specs)
        state, results = one.init(), []
        for _ in range(3):
            state, result = one.update(state, batch)
            results.append(one.to_host(result))
        found.append((one.to_host(state), results))
    toy.assert_equal_trees(*found)
    assert bool(together) == (kernels and preset == "rcrl")


def test_an_accelerator_steps_all_runs_of_sac_at_once():
    """Its loop over runs carries no state of an optimiser; three updates equal those of the CPU.

    The actor steps in every second update, the targets in every third.
    """
    overrides = {"auxiliary": ("return_contrast",)}
    config = toy_control.make_config("state_sac", overrides, actor_period=2, target_period=3)
    reach = toy_control.make_reach((2, 3, 1), "state")
    environment, fleet = toy.make_fleet(config, SEEDS, make_environment=reach)
    batch = toy.played(environment, fleet).sample(1.0).batch
    gpu = SimpleNamespace(platform="gpu")
    form = over_runs.Form(in_place=1, reads_frames=True, halves=fleet.agent.halves)
    mesh = SimpleNamespace(size=1, devices=np.array([gpu]))
    on_gpu = jax.jit(over_runs.over_runs(fleet.agent.update, form, batching="map", mesh=mesh))

    state, expected = fleet.init(), fleet.init()
    traced = on_gpu.trace(*fleet.update_arguments(state, batch))
    (loop,) = [x for x in traced.jaxpr.eqns if x.primitive.name == "scan"]
    # A counter, gradients, and the result but for the norm, which the step adds.
    results = len(traced.out_info[1].metrics)
    assert len(loop.outvars) == 1 + len(jax.tree.leaves(state.params)) + results
    for _ in range(3):
        state, result = on_gpu(*fleet.update_arguments(state, batch))
        expected, of_cpu = fleet.update(expected, batch)
        for a, b in zip(
            jax.tree.leaves((state, result)), jax.tree.leaves((expected, of_cpu)), strict=True
        ):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-4, atol=1e-5)


def test_curl_has_the_weight_of_each_run_s_game():
    """`test_two_updates_by_hand` has such a weight."""
    config = toy.make_config("rcrl_curl", test_golden.ATARI)
    _, fleet = toy.make_fleet(config, (3, 5), games=("Catch", "Pong"))
    np.testing.assert_allclose(fleet._runs.constants["curl"], [1.0, 0.01])


def test_a_part_of_a_fleet_acts_as_the_whole(together):
    fleet, ((learner, _), _, _) = together
    frames = _frames(3, 16)
    actions = np.asarray(
        fleet.act(learner.params.agent, frames, fleet.init_memory(frames.shape[1]), 7)[0]
    )
    part, params = fleet.part(np.array([0, 2]), learner.params.agent)
    assert part.seeds == (SEEDS[0], SEEDS[2]) and part.num_valid_actions.tolist() == [3, 2]
    np.testing.assert_array_equal(
        part.act(params, frames[[0, 2]], part.init_memory(frames.shape[1]), 7)[0], actions[[0, 2]]
    )
    assert np.any(actions[0] != actions[2])


def _frames(runs, size):
    """The same random stacks of frames for every run, `[runs, size, C, 84, 84]`."""
    shape = (size, CONFIG.frame_stack, 84, 84)
    one = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return np.broadcast_to(one, (runs, *shape)).copy()


def test_noise_of_training_actions_is_fixed_by_seed_and_counter(together):
    fleet, ((learner, _), _, _) = together
    # All runs get the parameters of the first, so that only noise differs.
    params = jax.tree.map(lambda x: np.stack([x[0]] * 3), learner.params.agent)
    frames = _frames(3, 64)

    def act(*counters):
        return np.asarray(
            fleet.act(params, frames, fleet.init_memory(frames.shape[1]), *counters)[0]
        )

    first = act(7)
    assert first.shape == (3, 64) and first.dtype == np.int32
    np.testing.assert_array_equal(first, act(7))
    # Noise may keep the best action in one draw, but not in many.
    others = np.stack([act(7, 0), *(act(counter) for counter in range(8, 24))])
    for run in range(3):
        assert np.any(first[run] != others[:, run])
    assert np.any(others[:, 0] != others[:, 1]) and np.any(others[:, 1] != others[:, 2])


def test_references_to_device_frames_give_the_results_of_arrays(together):
    """`embed` and `compare` take arrays or references, as the replay returns them."""
    fleet, ((learner, _), _, _) = together
    params = learner.params
    rng = np.random.default_rng(0)
    format_ = fleet.agent.observations
    stored = rng.integers(0, 256, (3, 9, *format_.stored.stored_shape), np.uint8)
    slots = rng.integers(0, 9, (3, 6, CONFIG.frame_stack)).astype(np.int32)
    action = rng.integers(0, 3, (3, 6)).astype(np.int32)
    stacks = np.moveaxis(stored[np.arange(3)[:, None, None], slots], 2, format_.network.stack_axis)
    size = device_frame_size(format_.stored)
    flat = stored.reshape(3, 9, -1)
    frames = jax.device_put(np.pad(flat, ((0, 0), (0, 0), (0, size - flat.shape[-1]))))
    references = FrameReferences(slots, frames, format_.stored.stored_shape, -2)
    on_host, on_device = types.Pairs(stacks, action), types.Pairs(references, action)
    np.testing.assert_allclose(
        fleet.embed(params.agent, on_device), fleet.embed(params.agent, on_host), rtol=1e-5
    )
    for a, b in zip(
        fleet.compare(params, on_device, on_device),
        fleet.compare(params, on_host, on_host), strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_with_frames_on_the_device_a_program_is_compiled_once():
    config = toy.make_config("erainbow", learn_start=30)
    plan = toy.plan_of("", "erainbow", config, toy.GAME, SEEDS[:2], total_steps=36,
                       make_environment=toy.make_catch, frame_store="device")  # fmt: skip
    session = Session(plan)
    assert len([*toy.training(session)]) == 36
    fleet = session.fleet
    assert fleet.programs.update[0]._cache_size() == 1
    assert fleet.programs.act["training"]._cache_size() == 1


@pytest.mark.parametrize("num_runs", [1, 3])
def test_an_update_replaces_its_state_in_place(num_runs):
    """XLA copies the row of a run into a loop and back, of a single run not even that."""
    size = 1000

    def update(run, state, batch):
        return jnp.tanh(state) + batch, jnp.sum(batch)

    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("runs",))
    batched = over_runs.over_runs(update, over_runs.Form(in_place=1), batching="map", mesh=mesh)
    program = jax.jit(batched, donate_argnums=2, compiler_options=over_runs.LOOP_OPTIONS)
    states, batches = np.zeros((num_runs, size), np.float32), np.ones(num_runs, np.float32)
    compiled = program.lower(np.int32(num_runs), batches, states, batches).compile()
    assert re.search(rf"f32\[(1,)?{size}\]\S* tanh\(", compiled.as_text())
    assert not re.search(rf"f32\[(\d,)?{size}\]\S* copy\(", compiled.as_text())
    memory = compiled.memory_analysis()
    assert memory.alias_size_in_bytes >= states.nbytes
    assert memory.temp_size_in_bytes < (num_runs > 1) * 4 * size + 1000
