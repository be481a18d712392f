"""Agents with a world model: losses against slow references, masks, memories, gradients."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rcrl_jax import types
from rcrl_jax.agents import control, world_models
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.recurrent import loss as losses
from rcrl_jax.agents.recurrent import network as rssm
from rcrl_jax.agents.recurrent.model import Filtered
from rcrl_jax.agents.recurrent.network import Latent
from rcrl_jax.agents.slac import agent as slac
from rcrl_jax.agents.slac import network as slac_networks
from rcrl_jax.config import fields
from rcrl_jax.config.presets import WORLD_MODEL_PRESETS
from rcrl_jax.envs.protocol import control_spec
from rcrl_jax.networks.policy import sample_action
from rcrl_jax.observations import quantise
from rcrl_jax.tasks.task import AuxiliaryTask
from rcrl_jax.training import prediction
from tests.training import toy_world_models

WIDTH = 6  # components of an action, of which most runs here have two
SPEC = control_spec((64, 64, 3), WIDTH, action_repeat=2)
OWN = np.arange(WIDTH) < 2
BATCH = toy_world_models.SMALL["batch_size"]
# So small that slow loops are fast.
WINDOWS = {"batch_size": 2, "sequence_length": 2}
# The settings of danijar/dreamer, the authors' second code; the preset has those of the first.
SECOND = "dreamer, second code"
SECOND_FIELDS = {
    "adam_epsilon": 1e-7, "cell": "keras", "free_nats_of": "mean", "pixel_noise": False
}  # fmt: skip
DREAMERS = ("dreamer", SECOND)
ACTOR = world_models.Mlp(6, 4, 2 * WIDTH, jax.nn.elu)
CRITIC = world_models.Mlp(6, 3, 1, jax.nn.elu)
# Between the divergences.
FREE_NATS = {"dreamer": 0.04, SECOND: 0.2, "dreamer_rcrl": 0.04, "planet": 0.02}
LEARNING_RATES = {  # of the authors' code: of the model, then of the other parts
    "dreamer": (6e-4, 8e-5, 8e-5), SECOND: (6e-4, 8e-5, 8e-5), "planet": (1e-3,),
    "slac": (1e-4, 3e-4, 3e-4, 3e-4),
}  # fmt: skip
EPSILON = {"dreamer": 1e-4, SECOND: 1e-7, "planet": 1e-4, "slac": 1e-8}
MAX_NORM = {"dreamer": 100.0, SECOND: 100.0, "planet": 1000.0}


@functools.cache
def config_of(preset):
    own = {} if preset == "slac" else WINDOWS | {"free_nats": FREE_NATS[preset]}
    if preset == SECOND:
        preset, own = "dreamer", own | SECOND_FIELDS
    return toy_world_models.make_config(preset, {"precision": "float32"} | own)


@functools.cache
def agent_of(preset):
    return make_agent(config_of(preset), SPEC)


def run_of(agent, own=2):
    return types.RunSpec(np.int32(own), agent.run_constants("reach"))


def batch_shapes_of(agent):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype),
        prediction.batch_shapes(agent, 1, "host"),
    )


def batch_of(agent, own=2):
    """Random windows; components that the run lacks are zero, as in a replay."""
    rng = np.random.default_rng(0)

    def fill(x):
        if x.dtype == np.uint8:
            return rng.integers(0, 256, x.shape, np.uint8)
        if x.dtype == bool:
            return np.zeros(x.shape, bool)
        values = rng.uniform(-1, 1, x.shape).astype(np.float32)
        if x.shape[-1] == SPEC.max_num_actions:
            values[..., own:] = 0.0
        return values

    batch = jax.tree.map(fill, batch_shapes_of(agent))
    t = batch.transitions
    batch = batch._replace(transitions=t._replace(discount=np.ones_like(t.discount)))
    if batch.contrast is not None:
        pairs = [
            p._replace(
                observation=p.observation._replace(exists=np.ones_like(p.observation.exists))
            )
            for p in batch.contrast
        ]
        batch = batch._replace(contrast=types.ContrastBatch(*pairs))
    return batch


def parameters_of_preset(preset, **changes):
    """The shapes of a preset's parameters, in full size."""
    agent = make_agent(fields.replace(WORLD_MODEL_PRESETS[preset], changes), SPEC)
    return jax.eval_shape(agent.init, run_of(agent), jax.random.key(0)).params.agent


def count(tree):
    return sum(x.size for x in jax.tree.leaves(tree))


@functools.cache
def state_of(preset):
    agent = agent_of(preset)
    return jax.jit(agent.init)(run_of(agent), jax.random.key(1))


@functools.cache
def update_of(preset):
    return jax.jit(agent_of(preset).update, static_argnums=3)


@functools.cache
def updated(preset):
    """State and result after one update of a random batch."""
    agent = agent_of(preset)
    return update_of(preset)(run_of(agent), state_of(preset), batch_of(agent))


def test_dreamer_has_the_published_numbers_of_parameters():
    """With six action components, as danijar/dreamer has them; the first code has another cell."""
    params = parameters_of_preset("dreamer", **SECOND_FIELDS)
    assert tuple(map(count, params)) == (5_296_820, 578_412, 413_601)
    keras, block = 2 * 200 * 600 + 2 * 600, 400 * 400 + 400 + 400 * 200 + 200
    params = parameters_of_preset("dreamer")
    assert tuple(map(count, params)) == (5_296_820 - keras + block, 578_412, 413_601)


def test_planet_has_the_parameters_of_its_own_cell_and_reward_network():
    params = parameters_of_preset("planet")["params"]
    assert count(params["gru"]) == 400 * 400 + 400 + 400 * 200 + 200
    assert count(params["reward_head"]) == 230 * 300 + 300 + 2 * (300 * 300 + 300) + 301


def test_slac_has_the_layers_of_the_authors_code():
    """Counted by hand: features have 256 numbers, z1 32, z2 256, an action 6."""

    def dense(read, written):
        return read * 256 + 256 + 256 * 256 + 256 + 256 * written + written

    params = parameters_of_preset("slac")
    assert count(params.actor) == dense(8 * 256 + 7 * 6, 12)
    assert count(params.critics) == 2 * dense(288 + 6, 1)
    model = params.model["params"]
    heads = {
        "prior_z1": (256 + 6, 64), "posterior_z1_first": (256, 64),
        "posterior_z1": (256 + 256 + 6, 64), "prior_z2_first": (32, 512),
        "prior_z2": (32 + 256 + 6, 512), "reward_head": (288 + 6 + 288, 2),
    }  # fmt: skip
    for name, sizes in heads.items():
        assert count(model[name]) == dense(*sizes), name
    channels = [3, 32, 64, 128, 256, 256]
    sides = [5, 3, 3, 3, 4]
    encoder = zip(sides, channels[:-1], channels[1:], strict=True)
    assert count(model["encoder"]) == sum(side**2 * a * b + b for side, a, b in encoder)
    channels = [288, 256, 128, 64, 32, 3]
    decoder = zip(reversed(sides), channels[:-1], channels[1:], strict=True)
    assert count(model["decoder"]) == sum(side**2 * a * b + b for side, a, b in decoder)


def test_frames_of_planet_have_five_bits():
    frames = np.uint8([[0, 7, 8, 255]])
    found = quantise(frames, jax.random.key(0))
    lowest = np.floor((found + 0.5) * 32)
    np.testing.assert_array_equal(lowest, [[0, 0, 1, 31]])
    many = quantise(np.zeros(1000, np.uint8), jax.random.key(0))
    assert -0.5 <= many.min() < many.max() < -0.5 + 1 / 32 and many.std() > 0.008


def model_of(preset):
    """The networks of the world model, apart from an agent."""
    if preset in DREAMERS:
        cell = (rssm.BlockGru, False) if preset == "dreamer" else (rssm.KerasGru, True)
        return rssm.WorldModel(2, 6, 3, 5, 2, 6, jax.nn.elu, *cell)
    return rssm.WorldModel(2, 6, 3, 5, 3, 6, jax.nn.relu, rssm.BlockGru, False)


def prepared(preset, frames, key):
    """What the networks read of frames."""
    if preset == SECOND:
        return frames / np.float32(255) - 0.5
    return quantise(frames, key, 32 if preset == "planet" else 256)


def slow_model_loss(network, params, windows, noise, images):
    """Window by window and frame by frame: log-densities of images and rewards, divergences."""
    apply = functools.partial(network.apply, params)
    of_image, of_reward, divergence = [], [], []
    for b in range(len(windows.reward)):
        last = network.init_latent(1)
        for t in range(windows.reward.shape[1]):
            image = images[b, t][None]
            last, q = apply(
                last, windows.action[b, t][None], apply(image, method="project"),
                noise[t, b][None], method="observe",
            )  # fmt: skip
            p = apply(last.deter, method="prior")
            error = image - apply(last.feature, method="decode")
            half = 0.5 * math.log(2 * math.pi)
            of_image.append(-0.5 * jnp.sum(jnp.square(error)) - 64 * 64 * 3 * half)
            error = windows.reward[b, t] - apply(last.feature, method="reward")[0]
            of_reward.append(-0.5 * error**2 - half)
            ratio, distance = q.std / p.std, (q.mean - p.mean) / p.std
            divergence.append(0.5 * jnp.sum(ratio**2 + distance**2 - 1 - 2 * jnp.log(ratio)))
    return jnp.array(of_image), jnp.array(of_reward), jnp.array(divergence)


def slow_model_loss_of(preset, state):
    """`slow_model_loss` as a function of the parameters, for the update that follows a state."""
    windows = batch_of(agent_of(preset)).transitions
    _, key = jax.random.split(jax.random.wrap_key_data(state.key))
    if preset in DREAMERS:
        key, _ = jax.random.split(key)
    image_key, noise_key, _ = jax.random.split(key, 3)
    # Drawn for all frames of the windows as one batch.
    shape = windows.observation.shape
    images = prepared(preset, windows.observation.reshape(-1, *shape[2:]), image_key).reshape(shape)
    noise = jax.random.normal(noise_key, (2, 2, 3))
    return jax.jit(lambda params: slow_model_loss(model_of(preset), params, windows, noise, images))


def far_from_the_prior(preset):
    """A state whose posteriors are far from the priors."""
    state = state_of(preset)
    params = state.params.agent
    model = jax.tree.map(lambda x: 2.0 * x, params if preset == "planet" else params.model)
    other = model if preset == "planet" else params._replace(model=model)
    return state._replace(params=state.params._replace(agent=other))


def imagination(preset, state):
    """Imagines from every posterior state, one step after the other."""
    network, params, horizon = model_of(preset), state.params.agent, config_of(preset).horizon
    transitions = batch_of(agent_of(preset)).transitions
    _, loss_key = jax.random.split(jax.random.wrap_key_data(state.key))
    model_key, behaviour_key = jax.random.split(loss_key)
    image_key, noise_key, _ = jax.random.split(model_key, 3)
    images = prepared(preset, transitions.observation.reshape(4, 64, 64, 3), image_key)
    projected = network.apply(params.model, images, method="project").reshape(2, 2, -1)
    noise = jax.random.normal(noise_key, (2, 2, 3))
    latents, _ = world_models.filter_window(
        network, params.model, transitions.action.swapaxes(0, 1), projected.swapaxes(0, 1), noise
    )

    def imagine(actor_params):
        """Features and log densities `[horizon]`, returns `[horizon - 1]`, each of 4 states."""
        latent, features, log_densities = jax.tree.map(lambda x: x.reshape(4, -1), latents), [], []
        for key in jax.random.split(behaviour_key, horizon):
            action_key, latent_key = jax.random.split(key)
            raw = ACTOR.apply(actor_params, jax.lax.stop_gradient(latent.feature))
            mean, raw_std = jnp.split(raw, 2, axis=1)
            std = jax.nn.softplus(raw_std + np.log(np.expm1(5))) + 1e-4
            noise = jax.random.normal(action_key, (4, WIDTH))
            raw = 5 * jnp.tanh(mean / 5) + std * noise
            scale = std * math.sqrt(2 * math.pi) / jnp.cosh(raw) ** 2  # 1 - tanh ** 2 would cancel
            log_densities.append((-0.5 * noise**2 - jnp.log(scale))[:, :2].sum(1))
            noise = jax.random.normal(latent_key, (4, 3))
            action = jnp.tanh(raw) * OWN[None]
            latent = network.apply(params.model, latent, action, noise, method="imagine")
            features.append(latent.feature)
        value = [CRITIC.apply(params.value, f)[:, 0] for f in features]
        following, returns = value[-1], []
        for t in reversed(range(horizon - 1)):
            reward = network.apply(params.model, features[t], method="reward")
            following = reward + 0.99 * (0.05 * value[t + 1] + 0.95 * following)
            returns.insert(0, following)
        return features, log_densities, returns

    return imagine


@pytest.mark.parametrize("preset", DREAMERS)
def test_dreamers_losses_equal_slow_loops(preset):
    state, free_nats = state_of(preset), FREE_NATS[preset]
    _, result = updated(preset)
    metrics = result.metrics
    params = state.params.agent
    slow = slow_model_loss_of(preset, state)(params.model)
    of_image, of_reward, divergence = map(np.asarray, slow)
    assert metrics["loss_image"] == pytest.approx(-of_image.mean(), rel=1e-5)
    assert metrics["loss_reward"] == pytest.approx(-of_reward.mean(), rel=1e-4)
    assert metrics["divergence"] == pytest.approx(divergence.mean(), rel=1e-3)
    # So that the two ways to clip differ.
    assert divergence.min() < free_nats < divergence.max()
    if preset == SECOND:
        assert divergence.mean() < free_nats
        cost = free_nats
    else:
        cost = np.maximum(divergence - free_nats, 0.0).mean()
    assert metrics["loss_divergence"] == pytest.approx(cost, rel=1e-3)
    total = -of_image.mean() - of_reward.mean() + cost
    assert metrics["loss_model"] == pytest.approx(total, rel=1e-5)
    np.testing.assert_allclose(
        result.transition_loss, -(of_image + of_reward).reshape(2, 2).mean(1), rtol=1e-5
    )

    features, log_densities, returns = imagination(preset, state)(params.actor)
    weights = 0.99 ** np.arange(len(returns))
    expected = -np.mean([w * r.mean() for w, r in zip(weights, returns, strict=True)])
    assert metrics["loss_actor"] == pytest.approx(expected, rel=1e-4)
    value = [CRITIC.apply(params.value, f)[:, 0] for f in features[:-1]]
    errors = [np.mean(np.square(r - v)) for r, v in zip(returns, value, strict=True)]
    expected = np.mean(weights * 0.5 * (np.array(errors) + math.log(2 * math.pi)))
    assert metrics["loss_value"] == pytest.approx(expected, rel=1e-4)
    assert metrics["entropy"] == pytest.approx(-np.mean(log_densities), rel=1e-3)


def test_gradients_of_dreamers_policy_and_value_equal_those_of_slow_loops():
    """Neither reaches the other's parameters, nor the policy's gradient its own input."""
    state, horizon = state_of("dreamer"), 3
    assert config_of("dreamer").horizon == horizon
    _, actor_params, value_params = state.params.agent
    imagine = imagination("dreamer", state)
    weights = [0.99**t for t in range(horizon - 1)]
    features, _, returns = imagine(actor_params)

    def of_actor(actor_params):
        each = imagine(actor_params)[2]
        return -sum(w * jnp.mean(r) for w, r in zip(weights, each, strict=True)) / len(weights)

    def of_value(value_params):
        errors = [
            jnp.mean((r - CRITIC.apply(value_params, f)[:, 0]) ** 2)
            for r, f in zip(returns, features, strict=False)
        ]
        return 0.5 * sum(w * e for w, e in zip(weights, errors, strict=True)) / len(weights)

    after = updated("dreamer")[0].opt_state
    for own, loss, params in (
        (after.actor, of_actor, actor_params), (after.value, of_value, value_params)
    ):  # fmt: skip
        expected, moment = jax.jit(jax.grad(loss))(params), optax.tree.get(own, "mu")
        for g, m in zip(jax.tree.leaves(expected), jax.tree.leaves(moment), strict=True):
            np.testing.assert_allclose(10 * np.asarray(m), g, rtol=2e-3, atol=1e-6)


def test_planets_loss_has_free_nats_in_each_step_and_ten_times_the_reward():
    state, metrics = state_of("planet"), updated("planet")[1].metrics
    slow = slow_model_loss_of("planet", state)(state.params.agent)
    of_image, of_reward, divergence = map(np.asarray, slow)
    clipped = np.maximum(divergence - 0.02, 0.0)
    assert 0 < clipped.mean() != pytest.approx(max(divergence.mean(), 0.02), rel=1e-2)
    assert metrics["loss_divergence"] == pytest.approx(clipped.mean(), rel=1e-3)
    total = -of_image.mean() - 10 * of_reward.mean() + clipped.mean()
    assert metrics["loss_model"] == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("preset", [*DREAMERS, "planet"])
def test_the_gradient_of_a_world_model_equals_that_of_slow_loops(preset):
    """Through images, rewards and both sides of the divergence, clipped to a norm."""
    state = far_from_the_prior(preset)
    after, result = update_of(preset)(run_of(agent_of(preset)), state, batch_of(agent_of(preset)))
    losses_of = slow_model_loss_of(preset, state)
    own = state.params.agent
    params = own.model if preset in DREAMERS else own

    def loss(params):
        of_image, of_reward, divergence = losses_of(params)
        if preset == SECOND:
            return -of_image.mean() - of_reward.mean() + divergence.mean()
        of_divergence = jnp.maximum(divergence - FREE_NATS[preset], 0.0)
        scale = 10 if preset == "planet" else 1
        return -of_image.mean() - scale * of_reward.mean() + of_divergence.mean()

    divergence = losses_of(params)[2]
    assert divergence.mean() > FREE_NATS[preset]
    expected = jax.grad(loss)(params)
    norm = math.sqrt(sum(np.sum(np.square(g, dtype=float)) for g in jax.tree.leaves(expected)))
    assert result.metrics["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    scale = min(1.0, MAX_NORM[preset] / norm)
    assert scale < 1.0
    state_of_model = after.opt_state.model if preset in DREAMERS else after.opt_state
    moments = jax.tree.leaves(optax.tree.get(state_of_model, "mu"))
    for g, m in zip(jax.tree.leaves(expected), moments, strict=True):
        np.testing.assert_allclose(10 * m, scale * g, rtol=2e-3, atol=1e-5 * scale * norm)


@pytest.mark.parametrize("preset", [*DREAMERS, "planet", "slac"])
def test_parts_take_the_steps_of_tensorflows_adam_at_their_own_rates(preset):
    before, (after, _) = state_of(preset), updated(preset)
    old, new, states = before.params.agent, after.params.agent, after.opt_state
    if preset == "planet":
        old, new, states = (old,), (new,), (states,)
    for rate, a, b, state in zip(LEARNING_RATES[preset], old, new, states, strict=True):
        # After one step the moments are 0.1 g and 0.001 g^2.
        moments = jax.tree.leaves(optax.tree.get(state, "mu"))
        for x, y, moment in zip(jax.tree.leaves(a), jax.tree.leaves(b), moments, strict=True):
            g = 10.0 * np.asarray(moment, np.float64)
            root = math.sqrt(0.001)
            expected = -rate * root * g / (root * np.abs(g) + EPSILON[preset])
            found = np.asarray(y, np.float64) - np.asarray(x, np.float64)
            np.testing.assert_allclose(found, expected, rtol=0.01, atol=1.5e-7)


def test_behaviour_does_not_change_the_model():
    """Another policy gets another step, the model the same one."""
    agent, state = agent_of("dreamer"), state_of("dreamer")
    params = state.params.agent
    other = params._replace(actor=jax.tree.map(lambda x: x + 0.1, params.actor))
    shifted = state._replace(params=state.params._replace(agent=other))
    after, result = update_of("dreamer")(run_of(agent), shifted, batch_of(agent))
    expected, reference = updated("dreamer")
    assert result.metrics["loss_actor"] != reference.metrics["loss_actor"]
    jax.tree.map(
        np.testing.assert_array_equal, after.params.agent.model, expected.params.agent.model
    )


def test_every_part_of_dreamer_learns_and_the_auxiliary_task_reaches_the_model():
    def update(preset):
        agent = agent_of(preset)
        state = far_from_the_prior(preset)  # with free nats the prior would not learn
        return state, update_of(preset)(run_of(agent), state, batch_of(agent))[0]

    before, after = update("dreamer_rcrl")
    for old, new in zip(jax.tree.leaves(before.params), jax.tree.leaves(after.params), strict=True):
        assert np.any(old != new)
    alone = update("dreamer")[1].params.agent
    changed = [
        np.any(a != b)
        for a, b in zip(
            jax.tree.leaves(alone.model), jax.tree.leaves(after.params.agent.model), strict=True
        )
    ]
    assert any(changed)
    jax.tree.map(np.testing.assert_array_equal, alone.actor, after.params.agent.actor)


def observations(number, length):
    return np.random.default_rng(0).integers(0, 256, (length, number, 64, 64, 3), np.uint8)


@pytest.mark.parametrize("preset", ["dreamer", "planet"])
def test_acting_filters_as_the_update_does(preset):
    """At the same noise and actions the memory follows the filter over the stored window."""
    agent = agent_of(preset)
    params, run = state_of(preset).params.agent, run_of(agent)
    model = params.model if preset == "dreamer" else params
    network = model_of(preset)
    frames, stack = observations(2, 4), agent.observations.frame_stack
    act = jax.jit(agent.act, static_argnums=5)
    memory, actions, noises, images, latents = agent.init_memory(2), [], [], [], []
    for t in range(4):
        key = jax.random.key(t)
        image_key, noise_key = jax.random.split(jax.random.split(key, 3)[0])
        noises.append(jax.random.normal(noise_key, (2, 3)))
        images.append(prepared(preset, frames[t], image_key))
        actions.append(memory.action)
        observation = np.repeat(frames[t][:, None], stack, axis=1)
        action, memory = act(run, params, observation, memory, key, TRAINING, np.int32(1000))
        assert np.abs(action).max() <= 1 and not action[:, 2:].any()
        np.testing.assert_array_equal(memory.action, action)
        latents.append(memory.latent)
    projected = network.apply(model, jnp.concatenate(images), method="project").reshape(4, 2, -1)
    filtered, _ = world_models.filter_window(
        network, model, jnp.stack(actions), projected, jnp.stack(noises)
    )
    for t, latent in enumerate(latents):
        for mine, theirs in zip(latent, filtered, strict=True):
            np.testing.assert_allclose(mine, theirs[t], rtol=1e-4, atol=1e-5)


def test_a_plan_of_planet_equals_slow_loops():
    """Candidate after candidate, step after step, from a latent that is not zero."""
    config, agent, params = config_of("planet"), agent_of("planet"), state_of("planet").params.agent
    network = model_of("planet")
    rng, key = np.random.default_rng(0), jax.random.key(3)
    before = Filtered(
        Latent(*(rng.normal(size=(1, size)).astype(np.float32) for size in (3, 6))),
        np.float32([[0.3, -0.8, 0.0, 0.0, 0.0, 0.0]]),
    )
    frames = np.repeat(observations(1, 1), agent.observations.frame_stack, axis=1)
    act = jax.jit(agent.act, static_argnums=5)
    found, after = act(run_of(agent), params, frames, before, key, EVALUATION, np.int32(0))

    (plan_key,) = jax.random.split(jax.random.split(key, 3)[1], 1)
    mean, std = np.zeros((3, WIDTH)), np.ones((3, WIDTH))
    for iteration_key in jax.random.split(plan_key, config.iterations):
        draw_key, model_key = jax.random.split(iteration_key)
        drawn = np.asarray(jax.random.normal(draw_key, (config.candidates, 3, WIDTH)))
        noise = np.asarray(jax.random.normal(model_key, (3, config.candidates, 3)))
        actions = np.float32(np.clip(mean + std * drawn, -1, 1) * OWN)
        returns = np.zeros(config.candidates)
        for candidate in range(config.candidates):
            latent = after.latent
            for t in range(3):
                inputs = actions[candidate, t][None], noise[t, candidate][None]
                latent = network.apply(params, latent, *inputs, method="imagine")
                reward = network.apply(params, latent.feature, method="reward")
                returns[candidate] += float(reward[0])
        best = actions[np.argsort(-returns)[: config.best_candidates]]
        mean, std = best.mean(0), np.sqrt(best.var(0) + 1e-6)
    np.testing.assert_allclose(found[0], mean[0], rtol=1e-4, atol=1e-6)


def test_slac_acts_by_its_policy_on_the_newest_frames_of_the_episode():
    """Uniformly at first; then by a sample, in evaluation too, as in the published curves."""
    agent = agent_of("slac")
    params, run, start = state_of("slac").params.agent, run_of(agent), agent.schedule.learn_start
    size, length = toy_world_models.SMALL_SLAC, agent.observations.frame_stack
    assert length == 3
    network = slac_networks.LatentModel(1, size["z1_size"], size["z2_size"], size["hidden_size"])
    policy_network = slac_networks.Actor(size["hidden_size"], WIDTH, -20.0, 2.0)
    frames, memory, taken = observations(1, 5), agent.init_memory(1), []
    features = [
        network.apply(params.model, frame / np.float32(255), method="encode")[0] for frame in frames
    ]
    act = jax.jit(agent.act, static_argnums=5)
    for t in range(5):
        places = range(t - length + 1, t + 1)
        stack = np.stack([frames[max(place, 0)] for place in places], axis=1)
        stack[:, : max(length - 1 - t, 0)] = 255  # frames before the first one are not read
        key = jax.random.key(t)

        def action_of(policy_name, step, arguments=(run, params, stack, memory, key)):
            return act(*arguments, policy_name, np.int32(step))

        noise_key, random_key = jax.random.split(key)
        known = [features[max(place, 0)] for place in places]
        between = [taken[place] if place >= 0 else np.zeros(WIDTH) for place in places[:-1]]
        policy = policy_network.apply(params.actor, np.stack(known)[None], np.stack(between)[None])
        noise = jax.random.normal(noise_key, (1, WIDTH))
        expected = np.tanh(policy.mean + np.exp(policy.log_std) * noise) * OWN
        for name, step in ((EVALUATION, 0), (EVALUATION, start), (TRAINING, start)):
            np.testing.assert_allclose(action_of(name, step)[0], expected, rtol=1e-4, atol=1e-6)
        action, memory = action_of(TRAINING, start - 1)
        uniform = control.uniform_action(random_key, 1, OWN)
        np.testing.assert_array_equal(action, uniform)
        assert np.abs(action - expected).max() > 0.01
        taken.append(np.asarray(action[0]))
    np.testing.assert_array_equal(memory.action[0], taken[-2:])
    assert memory.age.tolist() == [5]


def test_dreamer_is_evaluated_by_its_most_likely_action():
    agent, params = agent_of("dreamer"), state_of("dreamer").params.agent
    observation = np.repeat(observations(5, 1)[0][:, None], agent.observations.frame_stack, axis=1)
    act = jax.jit(agent.act, static_argnums=5)
    key = jax.random.key(4)
    action, memory = act(
        run_of(agent), params, observation, agent.init_memory(5), key, EVALUATION, np.int32(0)
    )
    policy = losses.dreamer_policy(
        world_models.Mlp(6, 4, 2 * WIDTH, jax.nn.elu).apply(params.actor, memory.latent.feature),
        5.0,
        5.0,
    )
    samples = config_of("dreamer").mode_samples
    noise = jax.random.normal(jax.random.split(key, 3)[1], (samples, 5, WIDTH))
    expected = losses.most_likely_action(policy, noise, OWN)
    np.testing.assert_allclose(action, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("preset", ["dreamer", "planet"])
def test_actions_are_uniform_until_learning_starts_and_then_noisy(preset):
    """Learning starts after environment steps; acting counts agent steps, half as many."""
    agent, config = agent_of(preset), config_of(preset)
    start = agent.schedule.learn_start
    assert start == config.learn_start // SPEC.action_repeat
    params, key = state_of(preset).params.agent, jax.random.key(5)
    _, action_key, exploration_key = jax.random.split(key, 3)
    noise_key, random_key = jax.random.split(exploration_key)
    frames = np.repeat(observations(6, 1)[0][:, None], agent.observations.frame_stack, axis=1)
    act = jax.jit(agent.act, static_argnums=5)

    def taken(policy_name, step):
        memory = agent.init_memory(6)
        return act(run_of(agent), params, frames, memory, key, policy_name, np.int32(step))

    uniform = control.uniform_action(random_key, 6, OWN)
    np.testing.assert_array_equal(taken(TRAINING, start - 1)[0], uniform)
    explored, memory = taken(TRAINING, start)
    if preset == "planet":
        chosen, _ = taken(EVALUATION, start)  # its key draws the same candidates
    else:
        raw = world_models.Mlp(6, 4, 2 * WIDTH, jax.nn.elu).apply(
            params.actor, memory.latent.feature
        )
        policy = losses.dreamer_policy(raw, config.mean_scale, config.initial_std)
        chosen, _ = sample_action(policy, jax.random.normal(action_key, (6, WIDTH)), OWN)
    noise = config.exploration_std * np.asarray(jax.random.normal(noise_key, (6, WIDTH)))
    expected = np.clip(chosen + noise, -1, 1) * OWN
    assert np.any(np.abs(expected[:, :2]) < 1)
    np.testing.assert_allclose(explored, expected, rtol=1e-4, atol=1e-5)


def layers_that_differ(one, other) -> set[str]:
    """Names of the layers whose kernels differ."""
    leaves = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    names = [
        jax.tree_util.keystr(path, simple=True, separator="/").split("/")
        for (path, a), b in leaves
        if np.any(a != b)
    ]
    return {name[-2] for name in names if name[-1] == "kernel"}


@pytest.mark.parametrize("preset", ["dreamer", "planet", "slac"])
@pytest.mark.parametrize("own", [1, WIDTH])
def test_components_that_a_run_lacks_change_nothing(preset, own):
    """Neither the policy's outputs nor noise for them enter an update or an action."""
    agent, state = agent_of(preset), state_of(preset)
    run, batch = run_of(agent, own), batch_of(agent, own)

    last_layer = {"dreamer": "Dense_4", "slac": "Dense_2"}.get(preset)

    def disturb(path, x):
        """Adds to all weights that only the last component of an action reaches or leaves."""
        name = jax.tree_util.keystr(path)
        if "actor" in name and last_layer in name:
            return x.at[..., [WIDTH - 1, 2 * WIDTH - 1]].add(3.0)
        if "transition" in name and x.ndim == 2:
            return x.at[-1].add(3.0)
        return x

    params = state.params._replace(
        agent=jax.tree_util.tree_map_with_path(disturb, state.params.agent)
    )
    assert layers_that_differ(params.agent, state.params.agent) == {
        "dreamer": {"transition", "Dense_4"}, "planet": {"transition"}, "slac": {"Dense_2"}
    }[preset]  # fmt: skip
    other = state._replace(params=params)
    update = update_of(preset)
    (_, found), (_, expected) = (update(run, s, batch) for s in (other, state))
    equal = [np.array_equal(found.metrics[name], expected.metrics[name]) for name in found.metrics]

    frames = np.repeat(observations(4, 1)[0][:, None], agent.observations.frame_stack, axis=1)
    act, key = jax.jit(agent.act, static_argnums=5), jax.random.key(3)
    arguments = frames, agent.init_memory(4), key, TRAINING, np.int32(1000)
    changed, usual = (act(run, s.params.agent, *arguments)[0] for s in (other, state))
    assert not np.any(changed[:, own:])
    if own == 1:
        assert all(equal) and np.array_equal(changed, usual)
    else:  # the last component counts
        assert not all(equal)
        if preset != "planet":  # whose first plan need not change
            assert np.any(changed != usual)


def test_slac_learns_the_model_alone_at_first():
    start, run, batch = state_of("slac"), run_of(agent_of("slac")), batch_of(agent_of("slac"))
    own, size = start.params.agent, toy_world_models.SMALL_SLAC["model_batch_size"]
    after, result = update_of("slac")(
        run, start, jax.tree.map(lambda x: x[:size], batch), slac.MODEL
    )
    jax.tree.map(np.testing.assert_array_equal, start.target_params, own.critics)
    for part in ("actor", "critics", "log_temperature"):
        jax.tree.map(
            np.testing.assert_array_equal, getattr(own, part), getattr(after.params.agent, part)
        )
    jax.tree.map(np.testing.assert_array_equal, start.target_params, after.target_params)
    assert "loss_critic" not in result.metrics
    assert result.transition_loss.shape == (size,) and not result.transition_loss.any()
    joint, result = updated("slac")
    # The model's step is the same, whether or not the others learn.
    jax.tree.map(np.testing.assert_allclose, after.params.agent.model, joint.params.agent.model)
    assert joint.params.agent.log_temperature != 0.0
    assert result.transition_loss.shape == (BATCH,) and np.all(result.transition_loss > 0)
    targets = zip(
        jax.tree.leaves(joint.target_params), jax.tree.leaves(start.target_params),
        jax.tree.leaves(joint.params.agent.critics), strict=True,
    )  # fmt: skip
    for new, old, online in targets:
        np.testing.assert_allclose(new, old + 0.005 * (online - old), rtol=1e-5, atol=1e-8)


def test_slac_may_learn_from_one_batch():
    """As many windows for the model as for all: the kind says what learns, not their number."""
    agent = make_agent(fields.replace(config_of("slac"), {"model_batch_size": BATCH}), SPEC)
    state, run, batch = state_of("slac"), run_of(agent), batch_of(agent_of("slac"))
    for kind, learns in ((slac.JOINT, True), (slac.MODEL, False)):
        update = functools.partial(agent.update, kind=kind)
        metrics = jax.eval_shape(update, run, state, batch)[1].metrics
        assert ("loss_critic" in metrics) == learns


@pytest.mark.parametrize("preset", ["dreamer", "planet", "slac"])
def test_a_context_represents_the_newest_frame_and_what_exists_before_it(preset):
    agent = agent_of(preset)
    params, length = state_of(preset).params.agent, agent.observations.frame_stack
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 256, (2, length, 64, 64, 3), np.uint8)
    led_by = rng.uniform(-1, 1, (2, length, WIDTH)).astype(np.float32)
    exists = np.ones((2, length), bool)
    exists[1, :-1] = False  # the first frame of an episode
    action = np.ones((2, WIDTH), np.float32)
    embed = jax.jit(agent.embed)

    def phi():
        return np.asarray(embed(params, types.Pairs(types.Context(frames, led_by, exists), action)))

    first = phi()
    np.testing.assert_array_equal(first[:, -WIDTH:], action)
    frames[1, :-1] = 0
    led_by[1, :-1] = 0.0
    np.testing.assert_array_equal(phi()[1], first[1])
    frames[0, 0] = 255 - frames[0, 0]
    assert np.any(phi()[0] != first[0])


def test_a_task_that_is_weighted_by_importance_is_refused():
    def make_task(parts, config):
        return AuxiliaryTask(lambda key: {}, lambda *arguments: (0.0, {}), importance_weighted=True)

    with pytest.raises(types.Incompatible, match="no importance weights: mine"):
        make_agent(config_of("planet"), SPEC, {"mine": make_task})


@pytest.mark.parametrize("preset", ["dreamer", "planet"])
def test_anchors_that_are_the_rl_batch_are_refused(preset):
    values = {"auxiliary": ("return_contrast",), "return_contrast.anchors": "rl_batch"}
    with pytest.raises(ValueError, match="^return_contrast.anchors: .* learns from windows"):
        fields.replace(config_of(preset), values)

    def make_task(parts, config):
        rule = parts.contrast_rule._replace(anchors="rl_batch")
        return AuxiliaryTask(lambda key: {}, lambda *arguments: (0.0, {}), contrast_rule=rule)

    with pytest.raises(types.Incompatible, match="learns from windows"):
        make_agent(config_of(preset), SPEC, {"mine": make_task})


@pytest.mark.parametrize("preset", ["dreamer", "planet"])
def test_the_row_of_a_pair_does_not_change_its_representation(preset):
    """A task could read the label of a pair off noise that belongs to a row."""
    agent = agent_of(preset)
    length = agent.observations.frame_stack
    frame = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    context = types.Context(
        np.broadcast_to(frame, (3, length, 64, 64, 3)),
        np.zeros((3, length, WIDTH), np.float32),
        np.ones((3, length), bool),
    )
    pairs = types.Pairs(context, np.zeros((3, WIDTH), np.float32))
    first, *others = np.asarray(jax.jit(agent.embed)(state_of(preset).params.agent, pairs))
    for other in others:
        np.testing.assert_allclose(other, first, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("preset", WORLD_MODEL_PRESETS)
def test_schedules_count_environment_steps_at_every_repeat(preset):
    config = WORLD_MODEL_PRESETS[preset]
    first = {"dreamer": 100, "dreamer_rcrl": 100, "planet": 101, "slac": 100_001}[preset]
    for repeat in (1, 2, 4, 8):
        spec = control_spec((64, 64, 3), 6, action_repeat=repeat)
        schedule = make_agent(dataclasses.replace(config, action_repeat=repeat), spec).schedule
        env_steps = 100_000
        counts = schedule.counts(0, env_steps // repeat)
        if preset == "slac":
            assert counts == ((env_steps - 10_000) // repeat, first - 1)
            start = config.learn_start // repeat
            assert schedule.counts(0, start) == (0, 0)
            assert schedule.counts(start + 1, start + 3) == (2, 0)
            kinds = [schedule.kind(start, made) for made in (0, first - 2, first - 1)]
            assert kinds == [slac.MODEL, slac.MODEL, slac.JOINT]
            assert schedule.kind(start + 1, 0) == slac.JOINT
        else:
            assert counts == (95 * 100 + first - 100,)
        assert schedule.due(config.learn_start // repeat - 1) == 0
        assert schedule.due(config.learn_start // repeat) == first


@pytest.mark.parametrize("pretraining", [0, 3])
def test_every_series_of_slac_has_its_updates_of_the_whole_agent(pretraining):
    changes = {"updates": 4, "pretraining_updates": pretraining}
    schedule = make_agent(fields.replace(WORLD_MODEL_PRESETS["slac"], changes), SPEC).schedule
    steps = range(schedule.first_step, schedule.first_step + 3)
    made = [[schedule.kind(step, i) for i in range(schedule.due(step))] for step in steps]
    whole = [slac.JOINT] * 4
    assert made == [[slac.MODEL] * pretraining + whole, whole, whole]
    assert schedule.counts(0, steps[-1] + 1) == (12, pretraining)


@pytest.mark.parametrize(
    "preset, batch",
    [
        ("dreamer", {"batch_size": 4}),
        ("planet", {"batch_size": 4}),
        ("slac", {"model_batch_size": 8, "batch_size": 64}),
    ],
)
def test_predicted_memory_is_that_of_the_compiled_update(preset, batch):
    """Of networks in their full size; a few windows stand for a batch."""
    config = fields.replace(WORLD_MODEL_PRESETS[preset], batch)
    agent = make_agent(config, SPEC)
    run = run_of(agent)
    state = jax.eval_shape(agent.init, run, jax.random.key(0))
    update = jax.jit(agent.update, donate_argnums=1)
    compiled = update.lower(run, state, batch_shapes_of(agent)).compile()
    needed = compiled.memory_analysis().temp_size_in_bytes
    gradients = sum(4 * x.size for x in jax.tree.leaves(state.params))
    assert agent.resources.activation_bytes + gradients == pytest.approx(needed, rel=0.25)


def test_log_normal_by_hand():
    x, mean = np.float32([1.0, 2.0]), np.float32([0.0, 2.0])
    log_root = 0.5 * math.log(2 * math.pi)
    np.testing.assert_allclose(
        world_models.log_normal(x, mean), [-0.5 - log_root, -log_root], rtol=1e-6
    )
    wide = world_models.log_normal(x, mean, jnp.float32(2.0))
    expected = [-0.125 - log_root - math.log(2), -log_root - math.log(2)]
    np.testing.assert_allclose(wide, expected, rtol=1e-6)


def test_divergence_by_hand():
    """Of N(1, 1) from N(0, 2): log 2 + (1 + 1) / 8 - 1/2; a second, equal pair adds nothing."""
    one, mean, std = np.ones(1, np.float32), np.float32([1.0, 3.0]), np.float32([1.0, 0.5])
    other = np.float32([0.0, 3.0]), np.float32([2.0, 0.5])
    found = world_models.kl_divergence(mean, std, *other)
    np.testing.assert_allclose(found, math.log(2) + 0.25 - 0.5, rtol=1e-6)
    assert world_models.kl_divergence(one, one, one, one) == 0
