"""SAC: which loss reaches which parameters, schedules, targets, actions, and one update by hand."""

import functools
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax import augmentation, types
from rcrl_jax.agents import control
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.sac import network as networks
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.envs.protocol import EnvironmentProtocol, control_spec
from rcrl_jax.return_contrast import discriminator
from rcrl_jax.tasks.task import AuxiliaryTask
from tests.agents.trees import flattened
from tests.training import toy_control

ROOM, OWN, BATCH, ANCHORS = 3, 2, 6, 4
FRAME_SHAPES = {"pixels": (toy_control.SIZE, toy_control.SIZE, 3), "state": (24,)}
CONSTANTS = {"return_contrast": (), "curl": (), "reconstruction": ()}
RUN = types.RunSpec(jnp.int32(OWN), CONSTANTS)
DISCRIMINATOR = discriminator.Discriminator(16, "concatenation", 1)


def spec_of(observation: str):
    return control_spec(FRAME_SHAPES[observation], ROOM)


@functools.cache
def agent_of(preset: str, **changes):
    """(agent, jitted update), made once for the whole module."""
    changes = {"precision": "float32", "batch_size": BATCH} | changes
    settings = toy_control.make_config(preset, **changes)
    agent = make_agent(settings, spec_of(settings.observation))
    return agent, jax.jit(agent.update)


@functools.cache
def fresh(preset: str, **changes) -> types.LearnerState:
    # Compiled as a whole, as it is for training, it would take ten times as long.
    return agent_of(preset, **changes)[0].init(RUN, jax.random.key(0))


def observations_of(rng, preset: str, n: int) -> np.ndarray:
    settings = toy_control.make_config(preset)
    shape = (n, settings.frame_stack, *FRAME_SHAPES[settings.observation])
    if settings.observation == "pixels":
        return rng.integers(0, 256, shape, np.uint8)
    return rng.normal(size=shape).astype(np.float32)


def actions_of(rng, n: int) -> np.ndarray:
    action = rng.uniform(-1, 1, (n, ROOM)).astype(np.float32)
    action[:, OWN:] = 0
    return action


def batch_of(preset: str, seed: int = 0) -> types.Batch:
    rng = np.random.default_rng(seed)
    transitions = types.TransitionBatch(
        observation=observations_of(rng, preset, BATCH),
        action=actions_of(rng, BATCH),
        reward=rng.uniform(0, 1, BATCH).astype(np.float32),
        discount=np.full(BATCH, 0.99, np.float32),
        next_observation=observations_of(rng, preset, BATCH),
        weight=np.ones(BATCH, np.float32),
    )
    pairs = [
        types.Pairs(observations_of(rng, preset, ANCHORS), actions_of(rng, ANCHORS))
        for _ in range(3)
    ]
    return types.Batch(transitions, types.ContrastBatch(*pairs))


def moved(before, after) -> bool:
    """Whether any number differs."""
    return any(
        bool(np.any(np.asarray(a) != np.asarray(b)))
        for a, b in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    )


# --- gradients ---------------------------------------------------------------------------------


def test_an_update_changes_only_parameters_that_its_losses_reach():
    """The first update moves critic and auxiliary tasks; the second one everything."""
    preset = "rcrl_curl_sac"
    _, update = agent_of(preset)
    start = fresh(preset)
    first, result = update(RUN, start, batch_of(preset))
    second, _ = update(RUN, first, batch_of(preset, seed=1))
    assert moved(start.params.agent.critic.critics, first.params.agent.critic.critics)
    for part in ("convolutions", "embedding"):
        before, after = (getattr(s.params.agent.critic, part) for s in (start, first))
        assert moved(before, after), part
    for name, params in start.params.auxiliary.items():
        assert moved(params, first.params.auxiliary[name]), name
    assert not moved(start.params.agent.actor, first.params.agent.actor)
    assert not moved(start.opt_state.actor, first.opt_state.actor)
    assert first.params.agent.log_temperature == start.params.agent.log_temperature
    assert not moved(start.target_params, first.target_params)
    for part in ("actor", "log_temperature"):
        assert moved(getattr(first.params.agent, part), getattr(second.params.agent, part))
    assert all(np.isfinite(value) for value in result.metrics.values())
    assert set(start.params.auxiliary) == set(DMC_PRESETS[preset].auxiliary)


def gradients_of(state, optimiser):
    """The gradient of an optimiser's first step, from its first moment."""
    share = 0.5 if optimiser == "temperature" else 0.1
    moments = getattr(state.opt_state, optimiser)[0].mu
    return jax.tree.map(lambda m: np.asarray(m) / np.float32(share), moments)


# --- the update by hand -------------------------------------------------------------------------


WEIGHT, LATENT_PENALTY, DECAY = 0.5, 0.3, 0.02
EVERY_TASK = {
    "auxiliary": ("return_contrast", "curl", "reconstruction"),
    "auxiliary_weight": WEIGHT,
    "latent_penalty": LATENT_PENALTY,
    "decoder_weight_decay": DECAY,
}


def test_an_update_from_pixels_with_every_task_by_hand():
    """Networks and draws are the agent's; every loss is computed again from its formula.

    The target network differs, so that each loss shows which of the two networks it reads.
    """
    preset = "pixel_sac"
    _, update = agent_of(preset, **EVERY_TASK)
    state = fresh(preset, **EVERY_TASK)
    rng = np.random.default_rng(5)
    target = jax.tree.map(
        lambda x: np.float32(x + 0.1 * rng.normal(size=x.shape)), state.target_params
    )
    state = state._replace(target_params=target, updates=jnp.int32(1))  # the actor is due
    (critic, actor, log_alpha), auxiliary = state.params
    batch = batch_of(preset)
    t = batch.transitions._replace(
        weight=rng.uniform(0.2, 1, BATCH).astype(np.float32),
        discount=np.array([0.99, 0, 0.99, 0.5, 0.99, 0.99], np.float32),
    )
    nets = networks
    convolutions, embedding = nets.Convolutions(4), nets.Embedding(6)
    q_net, pi_net = nets.TwinCritics(16), nets.Actor(16, ROOM, -10.0, 2.0)
    decoder, w_net = nets.Decoder(4, toy_control.CROP, 9), DISCRIMINATOR

    key, _, loss_key = jax.random.split(jax.random.wrap_key_data(state.key), 3)
    next_key, actor_key, tasks_key = jax.random.split(loss_key, 3)
    view_key, dither_key = (jax.random.fold_in(tasks_key, task) for task in (1, 2))
    view = augmentation.random_crop(view_key, t.observation, toy_control.CROP)

    def middle(observation):
        """The middle 17 of 20 pixels: without the first and the last two."""
        return observation[:, :, 1:18, 1:18]

    def psi_of_crops(critic, crops):
        features = convolutions.apply(critic.convolutions, crops)
        return embedding.apply(critic.embedding, features)

    def psi(critic, observation):
        return psi_of_crops(critic, middle(observation))

    def q(critic, observation, a):
        return q_net.apply(critic.critics, jnp.concatenate([psi(critic, observation), a], axis=-1))

    def act(actor, critic, observation, key):
        """An action and its log-density; two of the three components are valid."""
        features = convolutions.apply(critic.convolutions, middle(observation))
        mean, log_std = pi_net.apply(actor.actor, embedding.apply(actor.embedding, features))
        noise = jax.random.normal(key, mean.shape)
        u = (mean + jnp.exp(log_std) * noise)[:, :OWN]
        normal = jax.scipy.stats.norm.logpdf(u, mean[:, :OWN], jnp.exp(log_std)[:, :OWN])
        log_density = jnp.sum(normal - jnp.log(1 - jnp.tanh(u) ** 2), axis=-1)
        return jnp.pad(jnp.tanh(u), ((0, 0), (0, ROOM - OWN))), log_density

    @jax.jit  # for speed alone
    def by_formula(critic, auxiliary, actor, log_alpha, target):
        """All losses, the loss of each transition, and the gradient for each optimiser."""
        alpha = jnp.exp(log_alpha)
        a_t, log_density_t = act(actor, critic, t.next_observation, next_key)
        q_t = q(target, t.next_observation, a_t)
        y = t.reward + t.discount * (jnp.minimum(q_t[:, 0], q_t[:, 1]) - alpha * log_density_t)
        keys = psi_of_crops(target, view)
        colours = np.concatenate([middle(t.observation)[:, c] for c in range(3)], axis=-1)
        dither = jax.random.uniform(dither_key, colours.shape)
        image = (np.floor(colours / 8.0) + dither) / 32 - 0.5  # 256 colours in 32 levels of 8

        def losses_of(critic, auxiliary):
            q_tm1 = q(critic, t.observation, t.action)
            squared_errors = (q_tm1[:, 0] - y) ** 2 + (q_tm1[:, 1] - y) ** 2

            anchor, positive, negative = (
                jnp.concatenate([psi(critic, pairs.observation), pairs.action], axis=-1)
                for pairs in batch.contrast
            )
            w_same, w_other = (
                jax.nn.sigmoid(w_net.apply(auxiliary["return_contrast"], anchor, other))
                for other in (positive, negative)
            )
            return_contrast = (jnp.sum(w_same**2) + jnp.sum((1 - w_other) ** 2)) / (2 * ANCHORS)

            queries = psi(critic, t.observation)
            bilinear = auxiliary["curl"]["bilinear"]
            similar = jnp.exp(jnp.einsum("id,de,je->ij", queries, bilinear, keys))
            curl = -sum(jnp.log(similar[i, i] / similar[i].sum()) for i in range(BATCH)) / BATCH

            weights = auxiliary["reconstruction"]
            error = decoder.apply(weights, queries) - image
            reconstruction = (
                jnp.sum(error**2) / error.size
                + LATENT_PENALTY * jnp.sum(queries**2) / 2 / BATCH
                + DECAY * sum(jnp.sum(x**2) for x in jax.tree.leaves(weights)) / 2
            )
            return {
                "critic": jnp.sum(t.weight * squared_errors) / BATCH,
                "return_contrast": return_contrast,
                "curl": curl,
                "reconstruction": reconstruction,
            }, squared_errors

        def critic_total(critic, auxiliary):
            each, _ = losses_of(critic, auxiliary)
            return each.pop("critic") + WEIGHT * sum(each.values())

        def actor_loss(actor):
            a, log_density = act(actor, critic, t.observation, actor_key)
            q_a = q(critic, t.observation, a)
            return jnp.mean(alpha * log_density - jnp.minimum(q_a[:, 0], q_a[:, 1]))

        def alpha_loss(log_alpha):
            _, log_density = act(actor, critic, t.observation, actor_key)
            return jnp.mean(jnp.exp(log_alpha) * (-log_density + OWN))

        each, squared_errors = losses_of(critic, auxiliary)
        each |= {"actor": actor_loss(actor), "temperature": alpha_loss(log_alpha)}
        gradients = {
            "critic": jax.grad(critic_total, argnums=(0, 1))(critic, auxiliary),
            "actor": jax.grad(actor_loss)(actor),
            "temperature": jax.grad(alpha_loss)(log_alpha),
        }
        return each, squared_errors, gradients

    expected, squared_errors, gradients = by_formula(critic, auxiliary, actor, log_alpha, target)
    after, result = update(RUN, state, types.Batch(t, batch.contrast))
    for name, value in expected.items():
        assert result.metrics[f"loss_{name}"] == pytest.approx(float(value), rel=1e-4), name
    np.testing.assert_allclose(result.transition_loss, squared_errors, rtol=1e-4)
    _, log_density = jax.jit(act)(actor, critic, t.observation, actor_key)
    assert result.metrics["entropy"] == pytest.approx(-float(log_density.mean()), rel=1e-4)
    assert result.metrics["temperature"] == pytest.approx(0.1, rel=1e-5)
    queries, keys = jax.jit(psi)(critic, t.observation), jax.jit(psi_of_crops)(target, view)
    similar = queries @ auxiliary["curl"]["bilinear"] @ keys.T
    right = np.mean(np.argmax(similar, axis=1) == np.arange(BATCH))
    assert result.metrics["instance_accuracy"] == pytest.approx(right)
    squares = sum(jnp.sum(x**2) for x in jax.tree.leaves(auxiliary["reconstruction"]))
    penalties = LATENT_PENALTY * jnp.sum(queries**2) / 2 / BATCH + DECAY * squares / 2
    error = float(expected["reconstruction"] - penalties)
    assert result.metrics["reconstruction_error"] == pytest.approx(error, rel=1e-3)

    # Each parameter takes one step of one Adam along the gradient of the sum.
    params = {
        "critic": (after.params.agent.critic, after.params.auxiliary),
        "actor": after.params.agent.actor,
        "temperature": after.params.agent.log_temperature,
    }
    before = {"critic": (critic, auxiliary), "actor": actor, "temperature": log_alpha}
    for name, gradient in gradients.items():
        seen = gradients_of(after, name)
        for (path, one), other in zip(
            jax.tree_util.tree_leaves_with_path(seen), jax.tree.leaves(gradient), strict=True
        ):
            np.testing.assert_allclose(
                one, other, rtol=1e-3, atol=1e-5, err_msg=name + jax.tree_util.keystr(path)
            )
        # The first step of Adam has the length of the learning rate, whatever the gradient's.
        rate = 1e-4 if name == "temperature" else 1e-3
        g = flattened(seen)
        by_hand = flattened(before[name]) - rate * g / (abs(g) + 1e-8)
        np.testing.assert_allclose(flattened(params[name]), by_hand, rtol=1e-5, atol=1e-6)
    assert after.key.tolist() == jax.random.key_data(key).tolist()


def test_targets_follow_every_second_update_the_encoder_faster_than_the_critics():
    preset = "rcrl_curl_sac"
    _, update = agent_of(preset)
    first, _ = update(RUN, fresh(preset), batch_of(preset))
    second, _ = update(RUN, first, batch_of(preset, seed=1))
    critic, before, after = second.params.agent.critic, first.target_params, second.target_params
    for part, tau in (("convolutions", 0.05), ("embedding", 0.05), ("critics", 0.01)):
        jax.tree.map(
            lambda new, old, now, tau=tau: np.testing.assert_allclose(
                now, np.asarray(old) + tau * (np.asarray(new) - old), rtol=1e-4, atol=1e-7
            ),
            getattr(critic, part), getattr(before, part), getattr(after, part),
        )  # fmt: skip


def test_actor_and_targets_have_their_own_periods():
    periods = {"actor_period": 1, "target_period": 3}
    _, update = agent_of("state_sac", **periods)
    states = [fresh("state_sac", **periods)]
    for seed in range(3):
        states.append(update(RUN, states[-1], batch_of("state_sac", seed))[0])
    steps = list(itertools.pairwise(states))
    assert [moved(a.params.agent.actor, b.params.agent.actor) for a, b in steps] == [True] * 3
    temperatures = [float(state.params.agent.log_temperature) for state in states]
    assert len(set(temperatures)) == 4
    assert [moved(a.target_params, b.target_params) for a, b in steps] == [False, False, True]


def test_gradients_of_the_actor_are_computed_when_they_are_used():
    """In other updates the policy's and the critics' products forwards, three and six, alone."""
    agent, _ = agent_of("state_sac")
    made = jax.make_jaxpr(agent.update)(RUN, fresh("state_sac"), batch_of("state_sac"))
    counts = [
        [str(way).count("dot_general[") for way in eqn.params["branches"]]
        for eqn in made.eqns
        if eqn.primitive.name == "cond"  # Adam's, too, which has no products
    ]
    ((forwards, with_gradients),) = (count for count in counts if any(count))
    assert forwards == 9 and with_gradients > 2 * forwards


# --- what training is told ---------------------------------------------------------------------


@pytest.mark.parametrize("preset", ["sac_aug", "state_sac"])
def test_rewards_are_raw_and_no_time_limit_but_the_suites_cuts_an_episode(preset):
    config = toy_control.make_config(preset)
    assert agent_of(preset)[0].protocol == EnvironmentProtocol(
        frame_stack=config.frame_stack, life_loss_ends_episode=False, clip_rewards=False,
        max_episode_steps=1000,
    )  # fmt: skip


def test_pairs_are_embedded_from_their_middle_and_compared():
    agent, _ = agent_of("rcrl_sac")
    params = fresh("rcrl_sac").params
    first, second = batch_of("rcrl_sac").contrast[:2]
    critic = params.agent.critic

    def phi(pairs):
        features = networks.Convolutions(4).apply(
            critic.convolutions, pairs.observation[:, :, 1:18, 1:18]
        )
        psi = networks.Embedding(6).apply(critic.embedding, features)
        return np.concatenate([psi, pairs.action], axis=-1)

    x, y = phi(first), phi(second)
    np.testing.assert_allclose(agent.embed(params.agent, first), x, rtol=1e-4, atol=1e-5)
    cosine, logit = agent.compare(params, first, second)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(cosine, np.sum(x * y, axis=1) / norms, rtol=1e-4)
    w = DISCRIMINATOR.apply(params.auxiliary["return_contrast"], x, y)
    np.testing.assert_allclose(logit, w, rtol=1e-4, atol=1e-5)


# --- acting -------------------------------------------------------------------------------------


def test_uniform_actions_are_uniform():
    mask = jnp.array([True, False, True])
    drawn = np.asarray(control.uniform_action(jax.random.key(0), 4000, mask))
    assert not drawn[:, 1].any()
    for component in (0, 2):
        assert stats.kstest(drawn[:, component], "uniform", args=(-1, 2)).pvalue > 1e-3


def test_actions_are_greedy_sampled_or_uniform_and_masked():
    agent, _ = agent_of("sac_aug")
    params, rng = fresh("sac_aug").params.agent, np.random.default_rng(0)
    observation = observations_of(rng, "sac_aug", 5)
    jitted = jax.jit(agent.act, static_argnums=5)

    def act(run, params, observation, *arguments):
        return jitted(run, params, observation, (), *arguments)[0]

    start = toy_control.SMALL["learn_start"]
    greedy = act(RUN, params, observation, jax.random.key(0), EVALUATION, 0)
    np.testing.assert_array_equal(
        greedy, act(RUN, params, observation, jax.random.key(1), EVALUATION, 9)
    )
    sampled = act(RUN, params, observation, jax.random.key(0), TRAINING, start)
    assert moved(sampled, act(RUN, params, observation, jax.random.key(1), TRAINING, start))
    for action in (greedy, sampled):
        assert action.shape == (5, ROOM) and action.dtype == np.float32
        assert not action[:, OWN:].any() and action[:, :OWN].all()
    # Actions depend only on the middle of a frame.
    margin = observation.copy()
    margin[:, :, 0], margin[:, :, -2:], margin[:, :, :, 0], margin[:, :, :, -2:] = 0, 0, 0, 0
    np.testing.assert_array_equal(
        greedy, act(RUN, params, margin, jax.random.key(0), EVALUATION, 0)
    )

    # Before the first update actions are uniform for any observation.
    many = np.repeat(observation[:1], 1000, axis=0)
    at_random = np.array(act(RUN, params, many, jax.random.key(0), TRAINING, start - 1))
    assert not at_random[:, OWN:].any()
    np.testing.assert_allclose(at_random[:, :OWN].mean(0), 0.0, atol=0.08)
    np.testing.assert_allclose(at_random[:, :OWN].std(0), 3**-0.5, atol=0.05)
    assert abs(np.corrcoef(at_random[:, :OWN].T)[0, 1]) < 0.15


def test_actions_of_training_are_drawn_from_the_policy():
    agent, _ = agent_of("state_sac")
    params, rng = fresh("state_sac").params.agent, np.random.default_rng(0)
    observation, key = observations_of(rng, "state_sac", 50), jax.random.key(3)
    start = toy_control.SMALL["learn_start"]
    found = jax.jit(agent.act, static_argnums=5)(
        RUN, params, observation, (), key, TRAINING, start
    )[0]
    actor = networks.Actor(16, ROOM, -10.0, 2.0)
    mean, log_std = actor.apply(params.actor.actor, observation[:, 0])
    noise = jax.random.normal(jax.random.split(key)[0], mean.shape)
    expected = np.tanh(mean + np.exp(log_std) * noise)
    np.testing.assert_allclose(found[:, :OWN], expected[:, :OWN], rtol=1e-4, atol=1e-5)


def test_center_crops_do_not_depend_on_the_key_and_random_ones_do():
    """Keys draw only crops and the policy's noise; with discount 0 the noise has no effect."""
    cases = ("pixel_sac", EVERY_TASK, False), ("rcrl_curl_sac", {}, True)
    for preset, changes, differs in cases:
        _, update = agent_of(preset, **changes)
        state, batch = fresh(preset, **changes), batch_of(preset)
        batch = batch._replace(
            transitions=batch.transitions._replace(discount=np.zeros(BATCH, np.float32))
        )
        one = update(RUN, state, batch)[1].metrics["loss_critic"]
        other_key = jax.random.key_data(jax.random.key(99))
        other = update(RUN, state._replace(key=other_key), batch)[1].metrics["loss_critic"]
        assert bool(one != other) == differs


@pytest.mark.parametrize("augmentation", ["random_crop", "center_crop"])
def test_the_view_of_a_task_is_cropped_at_random_whatever_the_agent_reads(augmentation):
    """Else CURL would compare an image with itself."""
    config = toy_control.make_config("curl_sac", augmentation=augmentation)
    found = []

    def make_task(parts, config):
        found.append(parts.augment)
        return AuxiliaryTask(lambda key: {}, lambda *arguments: (jnp.float32(0), {}))

    make_agent(config, spec_of("pixels"), {"mine": make_task})
    images = observations_of(np.random.default_rng(0), "curl_sac", 50)
    one, other = (found[0](jax.random.key(seed), images) for seed in range(2))
    assert one.shape == other.shape and moved(one, other)


def test_anchors_that_are_the_rl_batch_are_cropped_apart_from_it():
    def make_task(parts, config):
        def loss(params, view, state, key):
            t, anchor = view.batch.transitions, view.batch.contrast.anchor
            return jnp.float32(0), {"apart": jnp.mean(t.observation != anchor.observation)}

        return AuxiliaryTask(lambda key: {}, loss)

    changes = {
        "batch_size": BATCH, "return_contrast.batch_size": BATCH,
        "return_contrast.anchors": "rl_batch",
    }  # fmt: skip
    settings = toy_control.make_config("rcrl_sac", changes)
    agent = make_agent(settings, spec_of("pixels"), {"seen": make_task})
    run = RUN._replace(constants=agent.run_constants(""))
    t = batch_of("rcrl_sac").transitions
    pairs = types.Pairs(t.observation, t.action)
    batch = types.Batch(t, types.ContrastBatch(pairs, pairs, pairs))
    state = agent.init(run, jax.random.key(0))
    metrics = jax.jit(agent.update)(run, state, batch)[1].metrics
    assert metrics["apart"] > 0.5  # 0 with the RL batch's crops


def test_every_observation_of_an_update_is_cropped_with_its_own_key(monkeypatch):
    agent, _ = agent_of("rcrl_sac")
    state, batch, seen = fresh("rcrl_sac"), batch_of("rcrl_sac"), []
    t, pairs = batch.transitions, batch.contrast
    expected = [t.observation, t.next_observation, *(p.observation for p in pairs)]

    class AllCropped(Exception):
        """Ends the update, which need not be computed."""

    def crop(key, observation, size):
        seen.append((observation, tuple(jax.random.key_data(key).tolist())))
        if len(seen) == len(expected):
            raise AllCropped
        return observation[:, :, :size, :size]

    monkeypatch.setattr(augmentation, "random_crop", crop)
    with pytest.raises(AllCropped):
        agent.update(RUN, state, batch)
    observations, keys = zip(*seen, strict=True)
    assert len(set(keys)) == len(expected)
    for found, own in zip(observations, expected, strict=True):
        np.testing.assert_array_equal(found, own)


def test_the_return_task_from_states_leaves_the_agent_as_it_is():
    with_task = {"auxiliary": ("return_contrast",)}
    one, other = fresh("state_sac", **with_task), fresh("state_sac")
    start = one.params.auxiliary
    for seed in range(2):
        batch = batch_of("state_sac", seed)
        one, _ = agent_of("state_sac", **with_task)[1](RUN, one, batch)
        other, _ = agent_of("state_sac")[1](RUN, other, batch)
    assert moved(start, one.params.auxiliary)
    chex.assert_trees_all_close(one.params.agent, other.params.agent, rtol=1e-5, atol=1e-6)


def test_a_fresh_agent_has_its_temperature_copied_targets_and_two_embeddings():
    state = fresh("sac_aug", initial_temperature=0.3)
    own = state.params.agent
    assert np.exp(own.log_temperature) == pytest.approx(0.3, rel=1e-5)
    assert not moved(own.critic, state.target_params)
    assert moved(own.critic.embedding, own.actor.embedding)


def test_the_replay_is_that_of_the_configuration_whatever_the_action_repeat():
    changes = {"discount": 0.7, "batch_size": 9, "replay.capacity": 321}
    config = toy_control.make_config("state_sac", changes)
    spec = control_spec(FRAME_SHAPES["state"], ROOM, action_repeat=2)
    replay = make_agent(config, spec).replay
    found = replay.capacity, replay.discount, replay.batch_size, replay.n_step
    assert found == (321, 0.7, 9, 1) and replay.priority_exponent == 0.0
