"""SimPLe's agent: its schedule, what each kind of update learns and reads, its policy's actions."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rcrl_jax import types
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.simple import bits as simple_bits
from rcrl_jax.agents.simple import model as simple_model
from rcrl_jax.agents.simple import network as networks
from rcrl_jax.agents.simple import settings as simple_training
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import prediction
from tests.training import toy_simple

RUN = types.RunSpec(np.int32(2), {})  # of three actions
# One minibatch of all steps but the last: its loss is that of the parameters before.
ONE_STEP = {"passes": 1, "minibatch_steps": 1, "precision": "float32"}


@functools.cache
def agent_of(model="deterministic", **overrides):
    config = toy_simple.make_config(model, {"precision": "float32", **overrides})
    return make_agent(config, discrete_spec(config.frame_shape, 3))


@functools.cache
def state_of(model="deterministic", **overrides):
    return jax.jit(agent_of(model, **overrides).init)(RUN, jax.random.key(1))


def batch_of(agent, kind, seed=0, is_first=False):
    """Random windows."""
    rng = np.random.default_rng(seed)
    windows = prediction.batch_shapes(agent, 1, "host", kind).transitions
    shape = windows.reward.shape[1:]
    return types.Batch(
        types.SequenceBatch(
            observation=rng.integers(0, 256, windows.observation.shape[1:], np.uint8),
            action=rng.integers(0, 2, shape, np.int32),
            reward=rng.integers(-1, 2, shape).astype(np.float32),
            discount=(rng.random(shape) > 0.3).astype(np.float32),
            is_first=rng.random(shape) > 0.6 if is_first else np.zeros(shape, bool),
        ),
        None,
    )


def test_a_full_run_has_the_published_numbers_of_updates():
    config = SimpleConfig()
    rounds = simple_training.Rounds(config)
    assert config.total_steps == 102_400
    assert rounds.counts(0, 102_400) == (255_000, 32, 19_000)
    assert 19_000 * config.model_agents * config.model_rollout == 15_200_000
    assert [config.updates_of_round(k) for k in (0, 1, 7, 11, 14)] == [
        (45_000, 1000), (15_000, 1000), (15_000, 2000), (15_000, 2000), (15_000, 3000)
    ]  # fmt: skip
    assert rounds.due(3199) == 0 and rounds.due(3200) == rounds.due(102_400) == 1


def test_a_round_learns_from_the_real_game_then_the_model_then_in_it():
    rounds = simple_training.Rounds(toy_simple.make_config())
    kinds = [[rounds.kind(step, i) for i in range(rounds.due(step))] for step in range(73)]
    real, model, within = simple_training.REAL, simple_training.MODEL, simple_training.IN_MODEL
    assert {step: own for step, own in enumerate(kinds) if own} == {
        12: [real],
        24: [real, *[model] * 6, within],
        36: [real],
        48: [real, *[model] * 3, *[within] * 3],
        60: [real],
        72: [real],
    }
    assert rounds.counts(25, 48) == (3, 2, 3)


def test_the_model_s_step_size_warms_up_and_decays():
    for model, expected in [
        ("deterministic", {0: 0.0, 4000: 0.5, 8000: 1.0, 32_000: 0.5}),
        ("stochastic", {0: 0.0, 1000: 0.5, 2000: 1.0, 255_000: 1.0}),
    ]:
        config = SimpleConfig(model=model)
        top = 1.5 / np.sqrt(8000) if model == "deterministic" else 0.002
        rate = simple_model.model_rate(config)
        for updates, share in expected.items():
            assert rate(jnp.int32(updates)) == pytest.approx(share * top, rel=1e-5)


@pytest.mark.parametrize("kind", range(3))
def test_each_kind_of_update_learns_its_own_parameters(kind):
    """With the stochastic model; `test_simple_training.py` trains the other one."""
    always = {
        "stochastic.ramp": 4, "stochastic.most_used": 1.0, "stochastic.most_predicted": 0.0,
        "stochastic.compress_steps": 1,
    }  # fmt: skip
    agent, state = agent_of("stochastic", **always), state_of("stochastic", **always)
    update = jax.jit(agent.update, static_argnums=3)
    # The model's first step has size 0; from the third one on, bits are always told.
    for seed in range(3 if kind == simple_training.MODEL else 1):
        state, result = update(RUN, state, batch_of(agent, kind, seed), kind)
    before = state_of("stochastic", **always).params.agent
    for name in ("model", "policy"):
        old, new = (jax.tree.leaves(getattr(p, name)) for p in (before, state.params.agent))
        learns = (kind == simple_training.MODEL) == (name == "model")
        changed = [np.any(a != b) for a, b in zip(old, new, strict=True)]
        assert all(changed) if learns else not any(changed), name
    assert np.isfinite(list(result.metrics.values())).all()
    assert result.transition_loss.shape == (agent.replay.size(kind),)


def update_of(agent, kind):
    return jax.jit(functools.partial(agent.update, kind=kind))


def test_the_schedule_says_the_kind_not_the_length_of_windows():
    """Windows of a model that predicts 11 frames are as long as those of rollouts of 12 steps."""
    agent = agent_of(precision="float32", **{"deterministic.target_frames": 11})
    rules = agent.replay.sequences
    assert rules[simple_training.MODEL].length == rules[simple_training.REAL].length
    for kind in (simple_training.MODEL, simple_training.REAL):
        update = functools.partial(agent.update, kind=kind)
        traced = jax.make_jaxpr(update)(RUN, state_of(), batch_of(agent, kind))
        paths = jax.tree_util.tree_leaves_with_path(state_of())
        kept = {id(x) for x in traced.jaxpr.invars}
        learned = {
            name
            for (path, _), out in zip(paths, traced.jaxpr.outvars, strict=False)
            for name in ("model", "policy")
            if f".params.agent.{name}[" in jax.tree_util.keystr(path) and id(out) not in kept
        }
        assert learned == {"model" if kind == simple_training.MODEL else "policy"}


def evaluate(params, stacks, num_actions=2):
    """Log-probabilities and values."""
    logits, value, _ = networks.Policy(3).apply(params, stacks.astype(np.float32))
    return jax.nn.log_softmax(logits[:, :num_actions]), value


def test_a_real_rollout_equals_a_slow_loop_over_its_agents():
    overrides = {**ONE_STEP, "minibatch_steps": 5, "model_rollout": 6, "frame_stack": 3}
    agent, state = agent_of(**overrides), state_of(**overrides)
    batch = batch_of(agent, simple_training.REAL, is_first=True)
    learned, result = update_of(agent, simple_training.REAL)(RUN, state, batch)
    windows = jax.tree.map(lambda x: x[0], batch.transitions)
    firsts = [max(np.flatnonzero(windows.is_first[: t + 1]), default=0) for t in range(14)]
    assert any(firsts[t] == t - 1 for t in range(2, 14))
    stacks = np.stack([
        windows.observation[np.maximum([t - 2, t - 1, t], firsts[t])] for t in range(2, 14)
    ])  # fmt: skip
    policy = state.params.agent.policy
    log, value = jax.jit(evaluate)(policy, stacks)
    value, advantages, entropy = np.asarray(value), np.zeros(12), []
    for start in (0, 6):
        advantage = 0.0
        for t in reversed(range(start, start + 5)):
            goes_on = windows.discount[t + 3]  # of the step after, whose frame is t + 3
            error = windows.reward[t + 2] + 0.99 * goes_on * value[t + 1] - value[t]
            advantage = error + 0.99 * 0.95 * goes_on * advantage
            advantages[t] = advantage
            entropy.append(-np.sum(np.exp(log[t]) * log[t]))
    at = np.r_[0:5, 6:11]  # each agent's steps but its last
    squared = np.mean(advantages[at] ** 2)
    assert result.metrics["loss_value_real"] == pytest.approx(squared, rel=1e-3)
    assert result.metrics["entropy_real"] == pytest.approx(np.mean(entropy), rel=1e-5)
    assert result.metrics["loss_policy_real"] == pytest.approx(0.0, abs=1e-6)
    assert result.metrics["reward_real"] == pytest.approx(windows.reward[2:].mean(), abs=1e-6)

    action, target = windows.action[at + 2], advantages[at] + value[at]
    normal = (advantages[at] - advantages[at].mean()) / advantages[at].std()

    def loss(policy):
        log, value = evaluate(policy, stacks[at])
        gain = jnp.mean(log[jnp.arange(10), action] * normal)  # the ratio's gradient at 1
        spread = -jnp.mean(jnp.sum(jnp.exp(log) * log, axis=1))
        return -gain + jnp.mean((value - target) ** 2) - 0.01 * spread

    gradient = jax.jit(jax.grad(loss))(policy)
    clip = min(1.0, 0.5 / optax.tree.norm(gradient))
    moments = jax.tree.leaves(optax.tree.get(learned.opt_state.policy, "mu"))
    for moment, g in zip(moments, jax.tree.leaves(gradient), strict=True):
        expected = 0.15 * clip * g
        np.testing.assert_allclose(moment, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())


def test_old_probabilities_stay_those_of_the_start():
    """Each of two minibatches holds all steps: at the second, the policy has changed."""
    overrides = {"passes": 2, "minibatch_steps": 5, "model_rollout": 6}
    agent, state = agent_of(**overrides), state_of(**overrides)
    batch = batch_of(agent, simple_training.REAL)
    _, result = update_of(agent, simple_training.REAL)(RUN, state, batch)
    assert result.metrics["loss_policy_real"] < -1e-4


def with_progress(state, **changes):
    opt_state = state.opt_state
    changed = opt_state.progress._replace(**changes)
    return state._replace(opt_state=opt_state._replace(progress=changed))


def test_each_phase_counts_adam_s_steps_from_0_and_keeps_its_moments():
    """Updates of one kind in a row are a phase; those of the model leave the policy's alone."""
    agent, state = agent_of(), state_of()
    update, counts = jax.jit(agent.update, static_argnums=3), []
    real, model, within = simple_training.REAL, simple_training.MODEL, simple_training.IN_MODEL
    for kind in (real, real, model, within, within, real, real):
        before = state
        state, _ = update(RUN, before, batch_of(agent, kind), kind)
        counts.append(int(optax.tree.get(state.opt_state.policy, "count")))
        if len(counts) == 6:  # the second round's first
            again, rest = before, state
    assert counts == [5, 10, 10, 3, 6, 5, 10]
    # As an update in the middle of a phase whose optimiser has these moments and no steps.
    policy = optax.tree.set(again.opt_state.policy, count=jnp.int32(0))
    again = again._replace(opt_state=again.opt_state._replace(policy=policy))
    again = with_progress(again, kind=jnp.int32(real), in_phase=jnp.int32(7))
    expected, _ = update(RUN, again, batch_of(agent, real), real)
    chex.assert_trees_all_equal(rest.params, expected.params)
    for found, right in zip(rest.opt_state[:2], expected.opt_state[:2], strict=True):
        chex.assert_trees_all_equal(found, right)  # of model and policy


def test_metrics_are_means_over_the_updates_of_a_phase():
    agent, state = agent_of(), state_of()
    update, own, seen = jax.jit(agent.update, static_argnums=3), [], []
    model, within = simple_training.MODEL, simple_training.IN_MODEL
    for seed, kind in enumerate((model, model, model, within, model)):
        batch = batch_of(agent, kind, seed)
        alone = with_progress(state, in_phase=jnp.int32(0))
        own.append(update(RUN, alone, batch, kind)[1].metrics)
        state, result = update(RUN, state, batch, kind)
        seen.append(result.metrics)
    for name in ("loss_pixels", "loss_reward", "model_gradient_norm", "windows_with_reward"):
        values = np.array([metrics[name] for metrics in own])
        assert len(set(values[:3].tolist())) > 1
        expected = [values[0], values[:2].mean(), values[:3].mean(), values[:3].mean(), values[4]]
        np.testing.assert_allclose([metrics[name] for metrics in seen], expected, rtol=1e-5)
    assert seen[2]["entropy_in_model"] == 0.0 < seen[3]["entropy_in_model"]
    assert seen[4]["entropy_in_model"] == seen[3]["entropy_in_model"]


def test_windows_with_a_reward_are_those_whose_predicted_frames_have_one():
    agent, state = agent_of(), state_of()
    batch = batch_of(agent, simple_training.MODEL)
    rewards = np.zeros_like(batch.transitions.reward)  # [2, C + targets], C = 2
    # The one before the last given frame is not predicted, nor the one after the last frame.
    rewards[:, 0] = rewards[:, -1] = 1.0
    for window, share in enumerate((0.0, 0.5, 1.0)):
        if window:
            rewards[window - 1, -2] = -1.0
        windows = batch.transitions._replace(reward=rewards)
        _, result = update_of(agent, simple_training.MODEL)(
            RUN, state, batch._replace(transitions=windows)
        )
        assert result.metrics["windows_with_reward"] == share


def test_a_rollout_of_two_steps_in_the_model_equals_two_predictions():
    overrides = {**ONE_STEP, "model_rollout": 2}
    agent, state = agent_of(**overrides), state_of(**overrides)
    # Rewards of all signs, so that they count.
    model = jax.tree.map(np.array, state.params.agent.model)
    model["params"]["unet"]["reward"]["kernel"] *= 100
    params = state.params.agent._replace(model=model)
    state = state._replace(params=types.TrainableParams(params, {}))
    batch = batch_of(agent, simple_training.IN_MODEL)
    _, result = update_of(agent, simple_training.IN_MODEL)(RUN, state, batch)

    config = toy_simple.make_config()
    network = networks.DeterministicModel(3, 8, networks.UNet(8, 2, 1, 2, 0.1, 0.5))
    _, own_key = jax.random.split(jax.random.wrap_key_data(state.key))
    rollout_key, _ = jax.random.split(own_key)
    stacks, rewards, values = batch.transitions.observation.astype(np.float32), [], []
    for key in jax.random.split(rollout_key, 2):
        action_key, _ = jax.random.split(key)
        log, value = jax.jit(evaluate)(params.policy, stacks)
        padded = jnp.pad(log, ((0, 0), (0, 1)), constant_values=-jnp.inf)
        action = jax.random.categorical(action_key, padded)
        predicted = jax.jit(network.apply)(model, stacks, action)
        rewards.append(predicted.sign)
        values.append(value)
        stacks = np.concatenate([stacks[:, 1:], predicted.frame[:, None]], axis=1)
    advantage = rewards[0] + config.discount * values[1] - values[0]
    assert result.metrics["reward_in_model"] == pytest.approx(np.mean(rewards), abs=1e-6)
    assert np.any(np.stack(rewards) != 0)
    expected = float(np.mean(np.square(advantage)))
    assert result.metrics["loss_value_in_model"] == pytest.approx(expected, rel=1e-3)


def test_the_first_loss_of_the_policy_in_the_model_is_zero():
    """Before its first minibatch, ratios are 1 and advantages have mean 0."""
    overrides = {**ONE_STEP, "model_rollout": 4, "minibatch_steps": 3}
    agent, kind = agent_of(**overrides), simple_training.IN_MODEL
    _, result = update_of(agent, kind)(RUN, state_of(**overrides), batch_of(agent, kind))
    assert result.metrics["loss_policy_in_model"] == pytest.approx(0.0, abs=1e-6)


def cross_entropy(logits, label, cutoff):
    """Slow and without shortcuts: the mean over all labels."""
    logits = np.asarray(logits, np.float64)
    log = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.mean([max(-log[*at, label[at]] - cutoff, 0.0) for at in np.ndindex(label.shape)])


PLAIN = {"frame_height": 8, "frame_width": 8}


def plain_model(model, **overrides):
    """A world model that drops nothing, its parameters, and two windows to learn from."""
    config = toy_simple.make_config(
        model,
        PLAIN | {f"{model}.dropout": 0.0, f"{model}.middle_dropout": 0.0} | overrides,
    )
    world = getattr(simple_model, f"make_{model}")(config, 3)
    agent = make_agent(config, discrete_spec(config.frame_shape, 3))
    windows = batch_of(agent, simple_training.MODEL).transitions
    return config, world, jax.jit(world.init)(jax.random.key(0)), windows


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_loss_of_the_deterministic_model_by_hand(noise):
    config, world, params, windows = plain_model(
        "deterministic",
        **{"deterministic.target_frames": 2, "deterministic.pixel_noise": noise},
    )
    loss, metrics = jax.jit(world.loss)(params, windows, jnp.int32(0), jax.random.key(1))
    network = networks.DeterministicModel(3, 8, networks.UNet(8, 2, 1, 2, 0.0, 0.0))
    frames, reward = windows.observation, windows.reward.astype(int) + 1
    seen = frames[:, :2].astype(np.float32)
    if noise:  # all given pixels take the median colour; labels stay what they are
        seen[:] = np.percentile(seen, 50.0, axis=(0, 1, 2, 3), method="nearest")
    of_pixels, of_reward = [], []
    for target in (2, 3):  # the action on the frame before it leads there, with its reward
        predicted = jax.jit(network.apply)(params, seen, windows.action[:, target - 1])
        of_pixels.append(cross_entropy(predicted.pixels, frames[:, target], 0.01))
        of_reward.append(cross_entropy(predicted.reward, reward[:, target - 1], 0.01))
        seen = np.stack([seen[:, 1], predicted.frame], axis=1)
    assert metrics["loss_pixels"] == pytest.approx(np.mean(of_pixels), rel=1e-4)
    assert metrics["loss_reward"] == pytest.approx(np.mean(of_reward), rel=1e-4)
    assert loss == pytest.approx(np.mean(of_pixels) + np.mean(of_reward), rel=1e-4)


@pytest.mark.parametrize("reads_itself", [False, True])
def test_the_loss_of_the_stochastic_model_by_hand(reads_itself):
    config, world, params, windows = plain_model("stochastic", **{"stochastic.most_used": 0.0})
    assert (config.frame_stack, config.stochastic.target_frames) == (2, 2)
    # After the ramp a model always reads its own frames where it learns to predict them.
    updates, key = jnp.float32(8 if reads_itself else 0), jax.random.key(1)
    loss, metrics = jax.jit(world.loss)(params, windows, updates, key)
    bits = simple_bits.BitInjection(8, 16, 0.1, 8, 0.5, 0.0, 4)
    network = networks.StochasticModel(3, 8, 3, networks.UNet(8, 2, 1, 2, 0.0, 0.0, bits))
    frames, reward = windows.observation, windows.reward.astype(int) + 1
    frame = frames[:, 0].astype(np.float32)
    state, of_pixels, of_reward, of_bits = network.start(frame), [], [], []
    for target in (1, 2, 3):
        following = frames[:, target].astype(np.float32)
        predicted, bits_loss, state = jax.jit(network.apply, static_argnums=4)(
            params, state, frame, windows.action[:, target - 1], True, following, updates,
            rngs={"dropout": key, "noise": key},
        )  # fmt: skip
        of_pixels.append(cross_entropy(predicted.pixels, frames[:, target], 0.03))
        of_reward.append(cross_entropy(predicted.reward, reward[:, target - 1], 0.03))
        of_bits.append(bits_loss)
        frame = predicted.frame if reads_itself and target > 1 else following
    # The first target is a given frame: its pixels count, by themselves, and its reward does not.
    assert metrics["loss_pixels"] == pytest.approx(np.mean(of_pixels[1:]), rel=1e-4)
    assert metrics["loss_reward"] == pytest.approx(np.mean(of_reward[1:]), rel=1e-4)
    assert metrics["loss_bits"] == pytest.approx(np.mean(of_bits), rel=1e-4)
    parts = of_pixels[0], np.mean(of_pixels[1:]), np.mean(of_reward[1:]), np.mean(of_bits)
    assert loss == pytest.approx(sum(parts), rel=1e-4)


def test_a_carried_state_equals_one_from_the_first_frame_of_the_stack_on():
    """A step in the stochastic model reads each frame once; the source reads a whole stack."""
    config = toy_simple.make_config("stochastic")
    world = simple_model.make_stochastic(config, 3)
    params = jax.jit(world.init)(jax.random.key(0))
    frames = 255 * jax.random.uniform(jax.random.key(1), (1, 4, *config.frame_shape))
    key, action = jax.random.key(2), jnp.array([1])

    @jax.jit
    def carried(frames):
        state = world.start(params, frames[:, :2])
        for i in range(3):
            prediction, state = world.step(params, state, frames[:, i : i + 2], action, key)
        return prediction.pixels

    @jax.jit
    def anew(frames):
        bound = simple_model.make_stochastic(
            toy_simple.make_config("stochastic", {"frame_stack": 4}), 3
        )
        state = bound.start(params, frames)
        return bound.step(params, state, frames, action, key)[0].pixels

    np.testing.assert_allclose(carried(frames), anew(frames), rtol=1e-4, atol=1e-4)


def test_actions_are_drawn_at_their_temperature_and_never_invalid():
    agent, params = agent_of(), state_of().params.agent
    rng = np.random.default_rng(0)
    one = rng.integers(0, 256, (1, 2, *toy_simple.make_config().frame_shape), np.uint8)
    observation = one.repeat(4000, axis=0)
    log, _ = jax.jit(evaluate)(params.policy, one)
    log = np.asarray(log[0])

    def act(policy_name):
        function = jax.jit(agent.act, static_argnums=5)
        return function(RUN, params, observation, (), jax.random.key(3), policy_name, 0)[0]

    for name, temperature in [(TRAINING, 1.0), (EVALUATION, 0.5), ("temperature_1.0", 1.0)]:
        expected = np.exp(log[1] / temperature) / np.exp(log / temperature).sum()
        found = np.asarray(act(name))
        assert found.max() == 1
        assert found.mean() == pytest.approx(expected, abs=0.04)
    assert (np.asarray(act("temperature_0.0")) == log.argmax()).all()


def test_the_first_frame_of_an_episode_fills_its_stack():
    assert agent_of().protocol.stack_start == "first_frame"  # when acting
    agent, params = agent_of(), state_of().params.agent
    shape = toy_simple.make_config().frame_shape
    frames = np.random.default_rng(0).integers(0, 256, (2, *shape), np.uint8)
    context = types.Context(
        np.stack([np.stack([np.zeros(shape, np.uint8), frames[1]]), frames]),
        np.zeros((2, 2), np.int32),
        np.array([[False, True], [True, True]]),
    )
    pairs = types.Pairs(context, np.array([0, 2], np.int32))
    phi = jax.jit(agent.embed)(params, pairs)
    policy = jax.jit(networks.Policy(3).apply)
    filled = np.stack([frames[[1, 1]], frames]).astype(np.float32)
    np.testing.assert_allclose(phi[:, :128], policy(params.policy, filled)[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(phi[:, 128:], [[1, 0, 0], [0, 0, 1]])
