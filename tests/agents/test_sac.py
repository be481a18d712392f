"""SAC: which loss reaches which parameters, schedules, targets, actions, and one update by hand."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax import flatten_util

from rcrl_jax import types
from rcrl_jax.agents import sac
from rcrl_jax.config import DMC_PRESETS
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.losses import sac as losses
from tests.training import toy_control

ROOM, OWN, BATCH, ANCHORS = 3, 2, 6, 4
PIXELS = EnvironmentSpec((toy_control.SIZE, toy_control.SIZE, 3), ROOM)
STATES = EnvironmentSpec((24,), ROOM, np.float32)
RUN = types.RunSpec(jnp.int32(OWN))


@functools.cache
def agent_of(preset: str, **changes):
    """(agent, jitted update), made once for the whole module."""
    settings = toy_control.make_config(preset, batch_size=BATCH, **changes)
    agent = sac.make_agent(settings, PIXELS if settings.observation == "pixels" else STATES)
    return agent, jax.jit(agent.update)


@functools.cache
def fresh(preset: str, **changes) -> types.LearnerState:
    return jax.jit(agent_of(preset, **changes)[0].init)(jax.random.key(0))


def observations_of(rng, preset: str, n: int) -> np.ndarray:
    settings = toy_control.make_config(preset)
    shape = (n, settings.frame_stack, *settings.frame_shape)
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


@pytest.mark.parametrize("preset", DMC_PRESETS)
def test_each_preset_updates_what_its_losses_reach(preset):
    """The first update moves critic and auxiliary tasks; the second one everything."""
    _, update = agent_of(preset)
    start = fresh(preset)
    first, result = update(RUN, start, batch_of(preset))
    second, _ = update(RUN, first, batch_of(preset, seed=1))
    assert moved(start.params.agent.critic.critics, first.params.agent.critic.critics)
    if preset != "state_sac":
        assert moved(start.params.agent.critic.convolutions, first.params.agent.critic.convolutions)
        assert moved(start.params.agent.critic.embedding, first.params.agent.critic.embedding)
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



def test_the_actor_s_loss_moves_nothing_of_the_critic_and_the_critic_s_nothing_of_the_actor():
    """Zero rewards, discounts and weights leave the critics' loss without a gradient."""
    preset = "sac_aug"
    _, update = agent_of(preset)
    state = fresh(preset)._replace(updates=jnp.int32(1))  # the actor is due
    batch = batch_of(preset)
    silent = batch._replace(
        transitions=batch.transitions._replace(weight=np.zeros(BATCH, np.float32))
    )
    after, result = update(RUN, state, silent)
    assert result.metrics["gradient_norm"] == 0.0
    assert not moved(state.params.agent.critic, after.params.agent.critic)
    assert moved(state.params.agent.actor, after.params.agent.actor)
    # The actor's step is the same whatever the critics learn at the same time.
    other, _ = update(RUN, state, batch)
    assert moved(state.params.agent.critic, other.params.agent.critic)
    assert not moved(after.params.agent.actor, other.params.agent.actor)


def test_the_return_task_moves_embedding_and_convolutions_but_not_the_critics():
    preset = "rcrl_sac"
    _, update = agent_of(preset)
    state, batch = fresh(preset), batch_of("rcrl_sac")
    silent = batch._replace(
        transitions=batch.transitions._replace(weight=np.zeros(BATCH, np.float32))
    )
    after, _ = update(RUN, state, silent)
    assert not moved(state.params.agent.critic.critics, after.params.agent.critic.critics)
    assert moved(state.params.agent.critic.embedding, after.params.agent.critic.embedding)
    assert moved(state.params.agent.critic.convolutions, after.params.agent.critic.convolutions)
    assert moved(state.params.auxiliary, after.params.auxiliary)


# --- the update by hand -------------------------------------------------------------------------


def test_two_updates_from_states_by_hand():
    """Everything but the draws is written a second time, in the order of CURL's code."""
    preset = "state_sac"
    settings = toy_control.make_config(preset, batch_size=BATCH)
    agent, update = agent_of(preset)
    state = fresh(preset)
    critic, actor = state.params.agent.critic, state.params.agent.actor
    log_alpha, target = state.params.agent.log_temperature, state.target_params
    own = np.arange(ROOM) < OWN
    nets = sac.networks
    q_net, pi_net = nets.TwinCritics(16), nets.Actor(16, ROOM, -10.0, 2.0)
    adam, alpha_adam = optax.adam(1e-3), optax.adam(1e-4, b1=0.5)
    critic_opt, actor_opt = adam.init(critic), adam.init(actor)
    alpha_opt = alpha_adam.init(log_alpha)

    def q(critic, s, a):
        return q_net.apply(critic.critics, jnp.concatenate([s, a], -1))

    def act(actor, s, key):
        policy = pi_net.apply(actor.actor, s)
        return losses.sample_action(policy, jax.random.normal(key, policy.mean.shape), own)

    for i in (1, 2):
        batch = batch_of(preset, seed=i)
        key, _, loss_key = jax.random.split(jax.random.wrap_key_data(state.key), 3)
        next_key, actor_key, _ = jax.random.split(loss_key, 3)
        state, result = update(RUN, state, batch)
        t = batch.transitions
        s, s_t = t.observation[:, 0], t.next_observation[:, 0]
        alpha = jnp.exp(log_alpha)
        a_t, log_density_t = act(actor, s_t, next_key)
        y = t.reward + 0.99 * (q(target, s_t, a_t).min(-1) - alpha * log_density_t)

        def critic_loss(critic, s=s, y=y, a=t.action):
            return jnp.mean(jnp.square(q(critic, s, a) - y[:, None]).sum(-1))

        def actor_loss(actor, s=s, critic=critic, alpha=alpha, key=actor_key):
            a, log_density = act(actor, s, key)
            return jnp.mean(alpha * log_density - q(critic, s, a).min(-1))

        def alpha_loss(log_alpha, s=s, actor=actor, key=actor_key):
            return jnp.mean(jnp.exp(log_alpha) * (-act(actor, s, key)[1] + OWN))

        value, gradient = jax.value_and_grad(critic_loss)(critic)
        assert result.metrics["loss_critic"] == pytest.approx(float(value), rel=1e-4)
        assert result.metrics["loss_actor"] == pytest.approx(float(actor_loss(actor)), rel=1e-4)
        actor_gradient = jax.grad(actor_loss)(actor)
        alpha_gradient = jax.grad(alpha_loss)(log_alpha)
        step, critic_opt = adam.update(gradient, critic_opt)
        critic = optax.apply_updates(critic, step)
        if i == 2:
            step, actor_opt = adam.update(actor_gradient, actor_opt)
            actor = optax.apply_updates(actor, step)
            step, alpha_opt = alpha_adam.update(alpha_gradient, alpha_opt)
            log_alpha = optax.apply_updates(log_alpha, step)
            target = optax.incremental_update(critic, target, settings.critic_tau)
    expected = (sac.SacParams(critic, actor, log_alpha), target)
    flat = flatten_util.ravel_pytree((state.params.agent, state.target_params))[0]
    np.testing.assert_allclose(flat, flatten_util.ravel_pytree(expected)[0], rtol=1e-3, atol=2e-5)
    assert state.key.tolist() == jax.random.key_data(key).tolist()


def test_targets_follow_every_second_update_the_encoder_faster_than_the_critics():
    _, update = agent_of("sac_aug")
    first, _ = update(RUN, fresh("sac_aug"), batch_of("sac_aug"))
    second, _ = update(RUN, first, batch_of("sac_aug", seed=1))
    critic, before, after = second.params.agent.critic, first.target_params, second.target_params
    for part, tau in (("convolutions", 0.05), ("embedding", 0.05), ("critics", 0.01)):
        jax.tree.map(
            lambda new, old, now, tau=tau: np.testing.assert_allclose(
                now, old + tau * (new - old), rtol=1e-4, atol=1e-7
            ),
            getattr(critic, part), getattr(before, part), getattr(after, part),
        )  # fmt: skip


# --- acting -------------------------------------------------------------------------------------


def test_actions():
    agent, _ = agent_of("sac_aug")
    params, rng = fresh("sac_aug").params.agent, np.random.default_rng(0)
    observation = observations_of(rng, "sac_aug", 5)
    act = jax.jit(agent.act, static_argnums=4)
    start = toy_control.SMALL["learn_start"]
    greedy = act(RUN, params, observation, jax.random.key(0), True, 0)
    np.testing.assert_array_equal(greedy, act(RUN, params, observation, jax.random.key(1), True, 9))
    sampled = act(RUN, params, observation, jax.random.key(0), False, start)
    assert moved(sampled, act(RUN, params, observation, jax.random.key(1), False, start))
    for action in (greedy, sampled):
        assert action.shape == (5, ROOM) and action.dtype == np.float32
        assert not action[:, OWN:].any() and action[:, :OWN].all()
    # Only the middle of a frame is looked at.
    margin = observation.copy()
    margin[:, :, 0], margin[:, :, -2:], margin[:, :, :, 0], margin[:, :, :, -2:] = 0, 0, 0, 0
    np.testing.assert_array_equal(greedy, act(RUN, params, margin, jax.random.key(0), True, 0))

    # Before the first update actions are uniform, whatever is seen.
    many = np.repeat(observation[:1], 1000, axis=0)
    at_random = np.array(act(RUN, params, many, jax.random.key(0), False, start - 1))
    assert not at_random[:, OWN:].any()
    np.testing.assert_allclose(at_random[:, :OWN].mean(0), 0.0, atol=0.08)
    np.testing.assert_allclose(at_random[:, :OWN].std(0), 3**-0.5, atol=0.05)


def test_center_crops_do_not_depend_on_the_key_and_random_ones_do():
    """Only crops and the policy's noise are drawn; without discount the noise is not seen."""
    for preset, differs in (("pixel_sac", False), ("sac_aug", True)):
        _, update = agent_of(preset)
        state, batch = fresh(preset), batch_of(preset)
        batch = batch._replace(
            transitions=batch.transitions._replace(discount=np.zeros(BATCH, np.float32))
        )
        one = update(RUN, state, batch)[1].metrics["loss_critic"]
        other_key = jax.random.key_data(jax.random.key(99))
        other = update(RUN, state._replace(key=other_key), batch)[1].metrics["loss_critic"]
        assert bool(one != other) == differs
