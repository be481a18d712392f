"""The agent: one update by hand, its target network, determinism, and its two policies."""

import dataclasses
import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax import augmentation, observations, types
from rcrl_jax.agents.agent import EVALUATION, TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.rainbow import agent as rainbow
from rcrl_jax.agents.rainbow import loss as c51
from rcrl_jax.agents.rainbow import network as rainbow_network
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.agents.rainbow.encoders import nature
from rcrl_jax.agents.rainbow.encoders.data_efficient import DataEfficientEncoder
from rcrl_jax.agents.rainbow.network import RainbowNetwork
from rcrl_jax.config import choices, fields
from rcrl_jax.config.choices import ENCODERS
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.protocol import EnvironmentProtocol, discrete_spec
from rcrl_jax.return_contrast.discriminator import Discriminator
from rcrl_jax.return_contrast.task import make_return_contrast
from rcrl_jax.tasks import curl
from rcrl_jax.tasks.task import AgentParts, UpdateView
from tests.agents.trees import flattened

ACTIONS, BATCH, ANCHORS = 4, 6, 5
SPEC = discrete_spec((84, 84), ACTIONS)
CONSTANTS = {"return_contrast": (), "curl": np.float32(0.3)}
RUN = types.RunSpec(np.int32(ACTIONS), CONSTANTS)
PSI_SIZE = ENCODERS["data_efficient"].psi_size
SMALL = {
    "hidden_size": 8, "num_atoms": 5, "v_max": 2.0, "target_period": 3, "learning_rate": 1e-2,
    "return_contrast.discriminator_hidden": 8, "curl.hidden_size": 8, "curl.projection_size": 6,
}  # fmt: skip
QUIET = {"noisy_sigma": 1e-12}  # noise too small to see: the loss does not depend on keys


def config_of(preset: str, **changes) -> RainbowConfig:
    return fields.replace(ATARI_PRESETS[preset], SMALL | changes)


@functools.cache
def agent_of(preset: str, **changes):
    """(agent, jitted update), made once for the whole module."""
    agent = make_agent(config_of(preset, **changes), SPEC)
    return agent, jax.jit(functools.partial(agent.update, RUN))


@functools.cache
def fresh(preset: str, seed: int = 0, **changes) -> types.LearnerState:
    return agent_of(preset, **changes)[0].init(RUN, jax.random.key(seed))


def observations_of(rng, n: int, layout=observations.PATCHES) -> np.ndarray:
    return rng.integers(0, 256, (n, *layout.stack_shape(4)), np.uint8)


def batch_of(seed: int, preset: str = "rcrl") -> types.Batch:
    rng = np.random.default_rng(seed)
    layouts = agent_of(preset)[0].observations
    pairs = [
        types.Pairs(
            observations_of(rng, ANCHORS, layouts.network),
            rng.integers(0, ACTIONS, ANCHORS, np.int32),
        )
        for _ in range(3)
    ]
    transitions = types.TransitionBatch(
        observation=observations_of(rng, BATCH, layouts.observation),
        action=rng.integers(0, ACTIONS, BATCH, np.int32),
        reward=rng.uniform(-1, 1, BATCH).astype(np.float32),
        discount=(0.8 * (rng.random(BATCH) < 0.7)).astype(np.float32),
        next_observation=observations_of(rng, BATCH, layouts.next_observation),
        weight=rng.uniform(0.2, 1, BATCH).astype(np.float32),
    )
    return types.Batch(transitions, types.ContrastBatch(*pairs))


BATCHES = [batch_of(seed) for seed in range(2)]


def batches_of(preset: str) -> list[types.Batch]:
    return [batch_of(seed, preset) for seed in range(2)]


def shaken(tree, seed: int = 9, size: float = 0.05):
    """Adds noise to the parameters, so that target and online network differ.

    The scale of the noisy layers stays, because some tests need it to be zero.
    """
    rng = np.random.default_rng(seed)

    def shake(path, x):
        is_sigma = path[-1].key.endswith("_sigma")
        return x if is_sigma else x + size * rng.normal(size=x.shape).astype(np.float32)

    return jax.tree_util.tree_map_with_path(shake, tree)


def unflattened(vector: np.ndarray, like):
    """The inverse of `flattened`, in float32."""
    leaves, structure = jax.tree.flatten(like)
    parts = np.split(vector.astype(np.float32), np.cumsum([x.size for x in leaves])[:-1])
    return structure.unflatten(
        part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)
    )


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def assert_differ(one, other):
    """Some leaf differs."""
    assert any(
        np.any(np.asarray(a) != np.asarray(b))
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


# --- the loss and the step, by hand ------------------------------------------------------------


def patches_of(observation) -> np.ndarray:
    """Patches of whole frames `[N, C, 7056]`; patches stay unchanged."""
    return observation if observation.ndim == 4 else observations.leading_patches(observation)


def total_loss(config, params, target_params, momentum, batch, key):
    """The joint loss of one run, computed from parts that have their own tests."""
    network = RainbowNetwork(
        ACTIONS, config.num_atoms, config.hidden_size, config.noisy_sigma, config.head,
        config.encoder, config.embedding_init,
    )  # fmt: skip
    online_key, target_key, *task_keys = jax.random.split(key, 2 + len(config.auxiliary))

    def forward(params, observation, key):
        return network.apply(params, observation, ACTIONS, network.draw_noise(key))

    t = batch.transitions
    cross_entropy = c51.double_q_cross_entropy(
        forward(params.agent, patches_of(t.observation), online_key),
        t.action,
        t.reward,
        t.discount,
        forward(target_params, t.next_observation, target_key),  # evaluates
        forward(params.agent, t.next_observation, online_key),  # selects
        c51.support(config.v_max, config.num_atoms),
        ACTIONS,
    )
    total, values = jnp.sum(t.weight * cross_entropy) / BATCH, {}

    def encode(observation):
        return network.apply(params.agent, observation, method="encode")

    def view_of(images):
        psi = tuple(encode(observation) for observation in images)
        return UpdateView(params.agent, target_params, None, batch, batch, psi)

    values["c51"] = total
    join = functools.partial(network.apply, method="join")
    parts = AgentParts(None, None, join, None, None, PSI_SIZE, None, BATCH)
    task = make_return_contrast(parts, config)
    own = params.auxiliary["return_contrast"]
    view = view_of(pairs.observation for pairs in batch.contrast)
    values["return_contrast"], _ = task.loss(own, view, None, None)
    total += config.auxiliary_weight * values["return_contrast"]

    parts = AgentParts(encode_patches, None, None, shift, PSI_SIZE, None, None, BATCH)
    task = curl.make_momentum_curl(parts, config.curl)
    own = params.auxiliary["curl"]
    view = view_of(task.images(batch, batch, task_keys[-1]))
    values["curl"], _ = task.loss(own, view, momentum, task_keys[-1])
    factor = 0.3 * config.curl.weight  # 0.3: of the run's game
    weighted = factor * config.auxiliary_weight * values["curl"]
    # As in CURL's code: weighted like the transitions, and part of their priorities.
    total += jnp.mean(t.weight * weighted)
    return total, (cross_entropy + weighted, values)


def encode_patches(agent_params, observation):
    encoder_params = {"params": agent_params["params"]["encoder"]}
    return DataEfficientEncoder().apply(encoder_params, observation)


def shift(key, observation):
    stacks = observations.unpack_whole(observation)
    return observations.PATCHES.stack(augmentation.random_shift(key, stacks, "crop_pad_crop"))


def test_two_updates_by_hand():
    """With gradients so small beside Adam's epsilon that their clipping has an effect."""
    # Another rounding may choose another action where two are nearly equal, and at the start of
    # training some are equal in all digits.
    changes = {
        "precision": "float32", "auxiliary_weight": 3.0, "max_gradient_norm": 0.05,
        "curl.weight": 0.7,
        "noisy_sigma": 3.0,  # so strong that another sample selects another action
    }  # fmt: skip
    preset = "rcrl_curl"
    config = config_of(preset, **changes)
    state = fresh(preset, **changes)
    state = state._replace(
        params=shaken(state.params, seed=8), target_params=shaken(state.target_params)
    )
    momentum = state.task_state["curl"]
    _, update = agent_of(preset, **changes)
    gradient = jax.jit(jax.grad(functools.partial(total_loss, config), has_aux=True))

    # The optimiser on one long vector: clipping, then Adam with betas 0.9 and 0.999.
    start = theta = flattened(state.params)
    mean, square = np.zeros_like(theta), np.zeros_like(theta)
    for t, batch in enumerate(batches_of(preset), start=1):
        next_key, loss_key = jax.random.split(jax.random.wrap_key_data(state.key))
        g, (cross_entropy, losses) = gradient(
            unflattened(theta, state.params), state.target_params, momentum, batch, loss_key
        )
        g = flattened(g)
        norm = np.sqrt(np.sum(g**2))
        assert norm > 10 * config.max_gradient_norm
        g_clipped = g * config.max_gradient_norm / norm
        mean = 0.9 * mean + 0.1 * g_clipped
        square = 0.999 * square + 0.001 * g_clipped**2
        step = mean / (1 - 0.9**t) / (np.sqrt(square / (1 - 0.999**t)) + config.adam_eps)
        theta = theta - config.learning_rate * step

        state, result = update(state, batch)
        assert state.key.tolist() == jax.random.key_data(next_key).tolist()
        np.testing.assert_allclose(result.transition_loss, cross_entropy, rtol=1e-4)
        metrics = {name: float(value) for name, value in result.metrics.items()}
        assert {name for name in metrics if name.startswith("loss_")} == {
            f"loss_{name}" for name in losses
        }
        for name, loss in losses.items():
            assert metrics[f"loss_{name}"] == pytest.approx(float(loss), rel=1e-4)
        assert metrics["gradient_norm"] == pytest.approx(norm, rel=1e-3)  # before clipping
        np.testing.assert_allclose(
            flattened(state.params), theta, rtol=1e-3, atol=0.01 * config.learning_rate
        )
        # The momentum network only follows the new parameters.
        online = {
            "encoder": state.params.agent["params"]["encoder"],
            "projection": state.params.auxiliary["curl"]["projection"],
        }
        momentum = jax.tree.map(
            lambda m, p: np.float32(0.999 * np.asarray(m) + 0.001 * np.asarray(p)),
            momentum, online,
        )  # fmt: skip
        for a, b in zip(*map(jax.tree.leaves, (state.task_state["curl"], momentum)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    assert np.abs(theta - start).max() > 0.1 * config.learning_rate


def test_a_weight_of_zero_gives_the_base_agent_bit_for_bit():
    with_task, without = fresh("rcrl", auxiliary_weight=0.0), fresh("erainbow_sa")
    for batch in BATCHES:
        with_task, one = agent_of("rcrl", auxiliary_weight=0.0)[1](with_task, batch)
        without, other = agent_of("erainbow_sa")[1](without, batch)
    assert_equal((with_task, one), (without, other))
    assert_differ(without.params.agent, fresh("erainbow_sa").params.agent)
    assert agent_of("rcrl", auxiliary_weight=0.0)[0].replay == agent_of("erainbow_sa")[0].replay
    # A task's own weight leaves it out of what is stored and of the parameters.
    zero = {"curl.weight": 0.0}
    assert agent_of("rcrl_curl", **zero)[0].observations == agent_of("rcrl")[0].observations
    assert_equal(fresh("rcrl_curl", **zero), fresh("rcrl"))


def test_each_network_encodes_each_image_once():
    """The tasks add three images per anchor, one query and one key; none is encoded twice."""
    images = []

    def count(call, arguments, keywords, context):
        encodes = isinstance(context.module, DataEfficientEncoder)
        if encodes and context.method_name == "encode_each":
            images.extend(map(len, arguments[0]))
        return call(*arguments, **keywords)

    state, batch = fresh("rcrl_curl"), batch_of(0, "rcrl_curl")
    agent, _ = agent_of("rcrl_curl", precision="float32")  # in tf32 it is traced for CUDA, too
    with nn.intercept_methods(count):
        jax.eval_shape(agent.update, RUN, state, batch)
    # The states at both ends of a window, the last one by two networks; anchors, positives and
    # negatives; a query and a key for each first state.
    assert sum(images) == 3 * BATCH + 3 * ANCHORS + 2 * BATCH


def test_the_replay_is_that_of_the_configuration():
    own = {"capacity": 321, "priority_exponent": 0.3, "importance_exponent": 0.2}
    changes = {"n_step": 7, "discount": 0.7, "batch_size": 9}
    of_replay = {f"replay.{name}": value for name, value in own.items()}
    replay = make_agent(config_of("erainbow", **changes, **of_replay), SPEC).replay
    expected = own | changes
    assert {name: getattr(replay, name) for name in expected} == expected


# --- ties --------------------------------------------------------------------------------------


def test_ties_between_actions_are_broken_uniformly():
    q = jnp.tile(jnp.array([1.0, 3.0, 3.0, -jnp.inf, 3.0]), (6000, 1))
    action = rainbow.best_action(q, jax.random.key(0))
    assert action.dtype == jnp.int32
    counts = np.bincount(action, minlength=5)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert stats.chisquare(counts[[1, 2, 4]]).pvalue > 1e-3
    # Invalid actions change nothing.
    padded = jnp.pad(q, ((0, 0), (0, 3)), constant_values=-jnp.inf)
    np.testing.assert_array_equal(action, rainbow.best_action(padded, jax.random.key(0)))


def test_the_best_action_reads_each_value_once():
    """A fusion may compute values again and round them differently; none would be the largest."""
    program = jax.make_jaxpr(rainbow.best_action)(jnp.zeros((2, 3)), jax.random.key(0)).jaxpr
    derived, reads = [program.invars[0]], []
    for equation in program.eqns:
        if any(x is y for x in equation.invars for y in derived):
            reads.append(equation.primitive.name)
            if equation.primitive.name == "neg":
                derived += equation.outvars
    assert reads == ["neg", "sort"]


def test_equal_action_embeddings_give_uniform_actions_before_the_first_update():
    agent, _ = agent_of("rcrl")
    assert config_of("rcrl").embedding_init == "ones"
    params = fresh("rcrl").params.agent
    observation = observations_of(np.random.default_rng(0), 400)
    act = jax.jit(agent.act, static_argnums=5)
    for name in (TRAINING, EVALUATION):
        action, _ = act(RUN, params, observation, (), jax.random.key(1), name, jnp.int32(0))
        counts = np.bincount(action, minlength=ACTIONS)
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("num_actions", [6, 9, 18])
def test_all_actions_tie_in_full_size_too(num_actions):
    """A product of other sizes may round its rows differently; then rounding chose the action."""
    agent = make_agent(ATARI_PRESETS["rcrl"], discrete_spec((84, 84), num_actions))
    run = types.RunSpec(np.int32(num_actions), agent.run_constants("Pong"))
    params = jax.jit(agent.init)(run, jax.random.key(0)).params.agent
    act = jax.jit(agent.act, static_argnums=5)
    for number in (1, 10):  # as in training, and in an evaluation
        observation = observations_of(np.random.default_rng(0), number)
        actions = [
            act(run, params, observation, (), jax.random.key(draw), TRAINING, jnp.int32(0))[0]
            for draw in range(300 // number)
        ]
        counts = np.bincount(np.concatenate(actions), minlength=num_actions)
        assert stats.chisquare(counts).pvalue > 1e-3


def test_pairs_are_compared_by_cosine_and_discriminator():
    agent, _ = agent_of("rcrl")
    own = fresh("rcrl").params.agent["params"]
    vectors = np.random.default_rng(3).normal(size=(ACTIONS, PSI_SIZE)).astype(np.float32)
    own = own | {"action_embedding": vectors}  # at first all are ones
    params = fresh("rcrl").params._replace(agent={"params": own})
    first, second = BATCHES[0].contrast.anchor, BATCHES[0].contrast.negative
    cosine, logit = agent.compare(params, first, second)

    def phi(pairs):
        psi = DataEfficientEncoder().apply({"params": own["encoder"]}, pairs.observation)
        return np.asarray(psi) * vectors[pairs.action]

    x, y = phi(first), phi(second)
    np.testing.assert_allclose(agent.embed(params.agent, first), x, rtol=1e-4, atol=1e-5)
    norms = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
    np.testing.assert_allclose(cosine, np.sum(x * y, axis=1) / norms, rtol=1e-4)
    settings = config_of("rcrl").return_contrast
    network = Discriminator(settings.discriminator_hidden, settings.discriminator_input, 1)
    expected = network.apply(params.auxiliary["return_contrast"], x, y)
    np.testing.assert_allclose(logit, expected, rtol=1e-4, atol=1e-5)
    base = agent_of("erainbow_sa")[0].compare(fresh("erainbow_sa").params, first, second)
    assert base.logit is None


@pytest.mark.parametrize(
    "preset, kind", [("der_plus", "pad_crop"), ("erainbow_aug", "crop_pad_crop")]
)
def test_each_of_the_two_states_has_its_own_shift(preset, kind):
    (agent, _), key = agent_of(preset), jax.random.key(0)
    t = batch_of(0, preset).transitions
    t = t._replace(next_observation=t.observation)
    read = rainbow.read_transitions(rainbow.make_parts(config_of(preset), SPEC, {}), t, key)
    assert np.any(read.observation != read.next_observation)
    stacks = agent.observations.observation.unstack(t.observation)
    keys = jax.random.split(jax.random.fold_in(key, rainbow._SHIFT))
    for found, own in zip((read.observation, read.next_observation), keys, strict=True):
        shifted = augmentation.random_shift(own, stacks, kind)
        np.testing.assert_array_equal(found, agent.observations.network.stack(shifted))


@pytest.mark.parametrize("flag", ["life_loss_ends_episode", "clip_rewards"])
def test_the_protocol_is_that_of_the_configuration(flag):
    usual = EnvironmentProtocol(
        frame_stack=4, life_loss_ends_episode=True, clip_rewards=True, max_episode_steps=27_000
    )
    spec, config = discrete_spec((84, 84), ACTIONS), ATARI_PRESETS["rcrl"]
    assert make_agent(config, spec).protocol == usual
    changed = make_agent(fields.replace(config, {flag: False}), spec)
    assert changed.protocol == dataclasses.replace(usual, **{flag: False})


# --- state -------------------------------------------------------------------------------------


def test_the_target_network_is_copied_exactly_every_target_period_updates():
    _, update = agent_of("erainbow_sa")
    state = fresh("erainbow_sa")
    assert_equal(state.target_params, state.params.agent)
    expected = state.target_params
    for i in range(1, 8):
        state, _ = update(state, BATCHES[i % 2])
        if i % SMALL["target_period"] == 0:
            expected = state.params.agent
        else:
            assert_differ(expected, state.params.agent)
        assert_equal(state.target_params, expected)  # no gradient ever reaches it
        assert int(state.updates) == i


# --- acting ------------------------------------------------------------------------------------

ACT_OBSERVATIONS = observations_of(np.random.default_rng(5), 3)


def best_actions(config, params) -> np.ndarray:
    network = RainbowNetwork(
        ACTIONS, config.num_atoms, config.hidden_size, None, config.head,
        config.encoder, config.embedding_init,
    )  # fmt: skip
    logits = network.apply(params, ACT_OBSERVATIONS, ACTIONS)
    q = c51.expected_return(logits, c51.support(config.v_max, config.num_atoms))
    return np.asarray(q).argmax(axis=1)


@functools.cache
def act_of(policy_name: str, preset: str, **changes):
    """The actions of a policy for three observations, one row per key: compiled once."""
    agent, _ = agent_of(preset, **changes)

    @jax.jit
    def act(run, params, step, keys):
        return jax.lax.map(
            lambda key: agent.act(run, params, ACT_OBSERVATIONS, (), key, policy_name, step)[0],
            keys,
        )

    return act


def actions(policy_name: str, preset="erainbow_sa", step=0, sigma=5.0, valid=ACTIONS, **changes):
    """`[600, 3]` actions for three observations with well separated values, and the best ones."""
    params = shaken(fresh(preset, noisy_sigma=sigma).params.agent)
    keys = jax.random.split(jax.random.key(3), 600)
    act = act_of(policy_name, preset, **changes)
    result = np.asarray(act(RUN._replace(num_valid_actions=np.int32(valid)), params, step, keys))
    assert result.dtype == np.int32
    return result, best_actions(config_of(preset), params)


def test_the_evaluation_policy_takes_a_share_epsilon_of_random_actions():
    epsilon = 0.4
    result, best = actions(EVALUATION, evaluation_epsilon=epsilon)
    for column, greedy_action in zip(result.T, best, strict=True):
        expected = np.full(ACTIONS, epsilon / ACTIONS)
        expected[greedy_action] += 1 - epsilon
        observed = np.bincount(column, minlength=ACTIONS)
        assert stats.chisquare(observed, expected * len(column)).pvalue > 1e-3
    # Observations of a batch explore independently of each other.
    explores = result != best
    both = np.mean(explores[:, 0] & explores[:, 1])
    assert both == pytest.approx((epsilon * (ACTIONS - 1) / ACTIONS) ** 2, abs=0.05)


def test_the_training_policy_explores_only_by_noise():
    quiet, best = actions(TRAINING, sigma=QUIET["noisy_sigma"], evaluation_epsilon=0.4)
    np.testing.assert_array_equal(quiet, np.broadcast_to(best, quiet.shape))
    noisy, _ = actions(TRAINING, evaluation_epsilon=0.4)
    assert len({tuple(row) for row in noisy}) > 3


def test_epsilon_greedy_training_takes_random_actions_whose_share_decays():
    settings = {"preset": "der_plus", "epsilon": 0.2, "epsilon_decay": 100}
    learn_start = ATARI_PRESETS["der_plus"].learn_start
    for step, epsilon in ((0, 1.0), (learn_start, 1.0), (learn_start + 50, 0.6), (10**6, 0.2)):
        result, best = actions(TRAINING, step=step, **settings)
        share = np.mean(result != best)  # no noise: what is not random is greedy
        expected = epsilon * (ACTIONS - 1) / ACTIONS
        assert abs(share - expected) < 5 * np.sqrt(0.25 / result.size)


@pytest.mark.parametrize("preset", ["erainbow", "erainbow_sa", "erainbow_sa_normal", "der_plus"])
def test_a_uniform_warmup_plays_the_same_uniform_actions_with_every_agent(preset):
    learn_start = ATARI_PRESETS[preset].learn_start
    for valid in (ACTIONS, 2):
        settings = {"preset": preset, "valid": valid, "warmup": "uniform"}
        first, _ = actions(TRAINING, step=0, **settings)
        counts = np.bincount(first.ravel(), minlength=ACTIONS)
        assert stats.chisquare(counts[:valid]).pvalue > 1e-3 and not counts[valid:].any()
        last, _ = actions(TRAINING, step=learn_start - 1, **settings)
        of_another, _ = actions(TRAINING, preset="curl", valid=valid, warmup="uniform")
        np.testing.assert_array_equal(first, last)  # the keys alone decide, here equal ones
        np.testing.assert_array_equal(first, of_another)


def test_after_its_warmup_an_agent_plays_as_without_one():
    learn_start = ATARI_PRESETS["erainbow_sa"].learn_start
    found = [
        actions(policy_name, step=step, warmup=warmup)[0]
        for policy_name, step in ((TRAINING, learn_start), (EVALUATION, 0))
        for warmup in ("agent", "uniform")
    ]
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])


@pytest.mark.parametrize("policy_name", [TRAINING, EVALUATION])
def test_invalid_actions_are_never_taken(policy_name):
    taken, _ = actions(policy_name, valid=2, evaluation_epsilon=0.4)
    assert set(taken.ravel()) == {0, 1}


def test_both_states_are_shifted_and_each_update_draws_new_shifts():
    """Without noise, keys only draw shifts; the pairs of the return task are not shifted."""
    _, update = agent_of("der_plus_rcrl")
    state, batch = fresh("der_plus_rcrl"), batch_of(0, "der_plus_rcrl")
    other = state._replace(key=jax.random.key_data(jax.random.key(99)))
    # Shifting a blank image changes nothing. So with one of the two states blank, only the other
    # state's shift has an effect.
    for name in ("observation", "next_observation"):
        t = batch.transitions
        blank = batch._replace(transitions=t._replace(**{name: np.zeros_like(getattr(t, name))}))
        first, second = (update(s, blank)[1].metrics for s in (state, other))
        assert first["loss_c51"] != second["loss_c51"]
        assert first["loss_return_contrast"] == second["loss_return_contrast"]


# --- encoders ----------------------------------------------------------------------------------


class Means(nn.Module):
    """An encoder of whole frames: the mean of each, several times."""

    def encode_each(self, stacks):
        return tuple(self(stack) for stack in stacks)

    @nn.compact
    def __call__(self, stack):
        means = stack.astype(jnp.float32).mean((2, 3)) / 255.0
        return nn.relu(nn.Dense(7)(means))


def test_an_entry_in_the_table_is_all_that_an_encoder_needs(monkeypatch):
    known = choices.load
    monkeypatch.setattr(
        rainbow_network, "load", lambda path: Means if path == "Means" else known(path)
    )
    entry = choices.Encoder("Means", "means", 7, "frames", bytes_an_image=5, large_blocks=True)
    monkeypatch.setitem(ENCODERS, "means", entry)
    config = fields.replace(ATARI_PRESETS["rcrl"], SMALL | {"encoder": "means"})
    agent = make_agent(config, SPEC)
    assert config.needs_large_blocks
    assert agent.observations.network is observations.FRAMES
    images = 2 * config.batch_size + 3 * config.return_contrast.batch_size
    assert agent.resources.activation_bytes == 5 * images
    params = jax.eval_shape(agent.init, RUN, jax.random.key(0)).params.agent["params"]
    assert params["encoder"]["Dense_0"]["kernel"].shape == (config.frame_stack, 7)
    assert params["action_embedding"].shape == (ACTIONS, 7)


@pytest.mark.parametrize("name", ["nature", "impala"])
def test_width_and_memory_of_an_encoder_of_frames_are_those_of_its_program(name, monkeypatch):
    if name == "nature":  # the products of accelerators, which hold more than the CPU's kernels
        monkeypatch.setattr(nature, "_layer_on_cpu", nature._layer)
    encoder = choices.load(ENCODERS[name].network)()

    def memory(number):
        """Bytes that the gradient of a batch of images takes."""
        images = jax.ShapeDtypeStruct((number, 4, 84, 84), np.uint8)
        params = jax.eval_shape(encoder.init, jax.random.key(0), images)
        psi = jax.eval_shape(encoder.apply, params, images)
        assert psi.shape == (number, ENCODERS[name].psi_size)
        loss = jax.jit(jax.grad(lambda *x: jnp.sum(encoder.apply(*x) ** 2)))
        return loss.lower(params, images).compile().memory_analysis().temp_size_in_bytes

    assert ENCODERS[name].bytes_an_image == pytest.approx((memory(8) - memory(4)) / 4, rel=0.25)


@pytest.mark.parametrize("preset", ["rcrl_curl", "der_plus_rcrl"])
def test_agents_learn_with_the_residual_encoder(preset):
    """Every layer of the encoder moves, by finite gradients."""
    agent, update = agent_of(preset, encoder="impala")
    assert agent.observations.network is observations.FRAMES
    rng = np.random.default_rng(0)
    frames = [observations_of(rng, n, observations.FRAMES) for n in (BATCH, BATCH, *[ANCHORS] * 3)]
    transitions = BATCHES[0].transitions._replace(observation=frames[0], next_observation=frames[1])
    pairs = types.ContrastBatch(*(types.Pairs(x, np.zeros(ANCHORS, np.int32)) for x in frames[2:]))
    state = fresh(preset, encoder="impala")
    after, result = update(state, types.Batch(transitions, pairs))
    before, after = (x.params.agent["params"]["encoder"] for x in (state, after))
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        assert np.all(np.isfinite(other)) and np.any(one != other)
    assert all(np.all(np.isfinite(x)) for x in jax.tree.leaves(result.metrics))


def test_an_unknown_encoder_is_refused():
    with pytest.raises(ValueError, match=f"encoder: must be one of {', '.join(ENCODERS)}; got 'no"):
        RainbowConfig(encoder="nope")
