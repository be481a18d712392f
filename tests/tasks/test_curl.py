"""Both versions of CURL by hand, its networks, and which parameters gradients reach."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from rcrl_jax import augmentation, types
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.config.base import CurlConfig
from rcrl_jax.replay.settings import ContrastRule
from rcrl_jax.tasks import curl
from rcrl_jax.tasks.task import AgentParts, AuxiliaryTask, UpdateView, total_loss

KEY = jax.random.key(0)
CONFIG = CurlConfig(hidden_size=6, projection_size=4)
ITEMS = 5
RNG = np.random.default_rng(0)


def batch_of(stacks) -> types.Batch:
    return types.Batch(types.TransitionBatch(stacks, *[None] * 5), None)


def shift(key, stacks):
    return augmentation.random_shift(key, stacks, "crop_pad_crop")


def view_of(task, encode, agent_params, batch, key=KEY) -> UpdateView:
    psi = tuple(encode(agent_params, stacks) for stacks in task.images(None, batch, key))
    return UpdateView(agent_params, None, None, None, batch, psi)


def make_task(encode, augment, psi_size: int, config=CONFIG) -> AuxiliaryTask:
    parts = AgentParts(encode, None, None, augment, psi_size, None, None, ITEMS)
    return curl.make_momentum_curl(parts, config)


def linear_encode(params, stacks):
    """psi: a matrix applied to a subsampled stack."""
    pixels = stacks[..., ::12, ::12].reshape(len(stacks), -1) / 255.0
    return pixels @ params["params"]["encoder"]


@pytest.fixture(scope="module")
def small():
    """(task, its parameters, agent parameters, momentum, a batch)."""
    task = make_task(linear_encode, shift, 8)
    stacks = RNG.integers(0, 256, (ITEMS, 2, 84, 84), np.uint8)

    def agent():
        return {"params": {"encoder": RNG.normal(size=(98, 8)).astype(np.float32)}}

    params, agent_params = task.init(KEY), agent()
    momentum = task.init_state(task.init(jax.random.key(1)), agent())
    return task, params, agent_params, momentum, batch_of(stacks)


def slow_projection(params, psi):
    def normalise(x):
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5)

    first, second = (params["params"][f"Dense_{i}"]["kernel"] for i in (0, 1))
    return normalise(np.maximum(normalise(psi @ first), 0) @ second)


def test_the_projection_equals_slow_loops_with_positive_initial_weights():
    psi = np.random.default_rng(0).normal(size=(4, 7)).astype(np.float32)
    network = curl.Projection(hidden=6, size=5)
    params = jax.jit(network.init)(jax.random.key(0), psi)
    layers = params["params"]
    assert set(layers) == {"Dense_0", "Dense_1"}  # the normalisations have no parameters
    for layer in layers.values():
        assert np.all((layer["kernel"] >= 0) & (layer["kernel"] < 1))
        assert not np.any(layer["bias"])
        assert stats.kstest(np.ravel(layer["kernel"]), "uniform").pvalue > 1e-3
    for i, row in enumerate(network.apply(params, psi)):
        np.testing.assert_allclose(row, slow_projection(params, psi[i]), rtol=1e-4, atol=1e-4)


def test_the_projection_s_gradient_is_accurate_for_large_inputs():
    """Inputs and initial weights are positive, so E[x^2] - E[x]^2 would lose digits."""
    rng = np.random.default_rng(1)
    psi = rng.uniform(0.5, 1.0, size=(8, 576)).astype(np.float32)
    direction = rng.normal(size=(8, 128))
    network = curl.Projection(hidden=256, size=128)
    params = jax.jit(network.init)(jax.random.key(0), psi)

    def gradient(dtype):
        cast = jax.tree.map(lambda x: jnp.asarray(x, dtype), (params, psi, direction))
        found = jax.jit(jax.grad(lambda p, x, d: jnp.sum(network.apply(p, x) * d)))(*cast)
        return np.concatenate([np.ravel(x) for x in jax.tree.leaves(found)]).astype(np.float64)

    with jax.enable_x64(True):
        exact = gradient(np.float64)
    error = np.linalg.norm(gradient(np.float32) - exact) / np.linalg.norm(exact)
    assert error < 1e-5  # it is 2e-5 with the fast variance


@pytest.mark.parametrize("on_atari", [True, False])
def test_the_bilinear_matrix_starts_uniform_between_0_and_1(on_atari):
    parts = AgentParts(None, None, None, None, 128, None, None, ITEMS)
    config = CurlConfig(hidden_size=6, projection_size=128)
    task = curl.make_momentum_curl(parts, config) if on_atari else curl.make_target_curl(parts)
    bilinear = np.asarray(task.init(KEY)["bilinear"])
    assert bilinear.shape == (128, 128)
    assert stats.kstest(bilinear.ravel(), "uniform").pvalue > 1e-3


def test_the_loss_equals_slow_loops(small):
    task, params, agent_params, momentum, batch = small
    loss, metrics = task.loss(
        params, view_of(task, linear_encode, agent_params, batch), momentum, KEY
    )

    first, second = (
        np.asarray(augmentation.random_shift(k, batch.transitions.observation, "crop_pad_crop"))
        for k in jax.random.split(KEY)
    )
    # In NumPy, where no shape needs a compilation.
    params, agent_params, momentum = jax.tree.map(np.asarray, (params, agent_params, momentum))
    assert np.any(first != second)
    queries, keys = (
        [slow_projection(projection, psi) for psi in linear_encode({"params": encoders}, stacks)]
        for projection, encoders, stacks in (
            (params["projection"], agent_params["params"], first),
            (momentum["projection"], momentum, second),
        )
    )
    expected, right = 0.0, 0
    for i in range(ITEMS):
        logits = np.array([0.1 * (queries[i] @ params["bilinear"] @ key) for key in keys])
        expected -= np.log(np.exp(logits[i]) / np.sum(np.exp(logits))) / ITEMS
        right += np.argmax(logits) == i
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert float(metrics["curl_accuracy"]) == pytest.approx(right / ITEMS)


def test_the_momentum_network_is_a_moving_average_without_gradient(small):
    task, params, agent_params, momentum, batch = small
    start = task.init_state(params, agent_params)
    jax.tree.map(
        np.testing.assert_array_equal,
        start,
        {
            "encoder": agent_params["params"]["encoder"],
            "projection": params["projection"],
        },
    )
    new = task.next_state(momentum, params, agent_params)
    jax.tree.map(
        lambda n, m, p: np.testing.assert_allclose(n, 0.999 * m + 0.001 * p, rtol=1e-5, atol=1e-7),
        *(jax.tree.map(np.asarray, tree) for tree in (new, momentum, start)),
    )
    view = view_of(task, linear_encode, agent_params, batch)
    gradient = jax.grad(lambda m: task.loss(params, view, m, KEY)[0])(momentum)
    assert not any(np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(gradient))
    trained = jax.grad(
        lambda p, a: task.loss(p, view_of(task, linear_encode, a, batch), momentum, KEY)[0],
        argnums=(0, 1),
    )(params, agent_params)
    # Those before a normalisation have none.
    assert all(
        np.any(np.asarray(leaf)) for leaf in jax.tree.leaves(trained) if leaf.ndim > 1
    )  # the encoder included


@pytest.mark.parametrize("in_priorities", [False, True])
@pytest.mark.parametrize("importance_weighted", [False, True])
def test_importance_weights_and_priorities_are_as_configured(importance_weighted, in_priorities):
    """Of a loss of 3 with the weights 2 (of the task), 0.4 and 0.6 (of the transitions)."""
    switches = {"importance_weighted": importance_weighted, "in_priorities": in_priorities}
    config = dataclasses.replace(CONFIG, **switches)
    task = make_task(linear_encode, shift, 8, config)
    assert (task.importance_weighted, task.in_priorities) == (importance_weighted, in_priorities)
    one = AuxiliaryTask(
        None, lambda *of_update: (jnp.float32(3.0), {}), weight=lambda factor: 2.0 * factor,
        **switches,
    )  # fmt: skip
    weights = types.TransitionBatch(*[None] * 5, weight=np.float32([0.4, 0.6]))
    view = UpdateView(None, None, None, types.Batch(weights, None), None)
    of_task = ({"one": one}, {"one": None}, view, [()], {"one": None}, {"one": 1.0}, [KEY])
    loss = total_loss(*of_task)
    assert float(loss.total) == pytest.approx(3.0 if importance_weighted else 6.0)
    assert float(loss.in_priorities) == (6.0 if in_priorities else 0.0)
    assert float(loss.metrics["loss_one"]) == 3.0


def test_keys_are_the_target_encoder_s_psi_of_another_crop():
    """Encoder and crop are simple replacements; queries are the psi of the update."""
    rng = np.random.default_rng(0)
    psi, sampled = rng.normal(size=(2, 4, 3)).astype(np.float32)
    scale = jnp.float32(3.0)  # the target's parameters

    def crop(key, observation):
        return observation + jax.random.normal(key, observation.shape)

    def encode_target(target_params, observation):
        return target_params * observation

    parts = AgentParts(None, encode_target, None, crop, 3, None, None, len(psi))
    task = curl.make_target_curl(parts)
    params = task.init(KEY)
    batch = types.Batch(types.TransitionBatch(sampled, *[None] * 5), None)

    def loss(psi, scale):
        view = UpdateView(None, scale, psi, None, batch)
        return task.loss(params, view, None, KEY)[0]

    keys = 3.0 * np.asarray(crop(KEY, sampled))
    logits = psi @ np.asarray(params["bilinear"]) @ keys.T
    expected = -np.mean(np.diag(logits) - np.log(np.sum(np.exp(logits), axis=1)))
    assert float(loss(psi, scale)) == pytest.approx(expected, rel=1e-4)
    to_queries, to_target = jax.grad(loss, argnums=(0, 1))(psi, scale)
    assert np.any(to_queries != 0) and to_target == 0.0


def test_info_nce_equals_a_slow_loop():
    logits = np.random.default_rng(0).normal(size=(5, 5)) * 3
    expected = 0.0
    for i in range(5):
        chances = [np.exp(logits[i, j]) for j in range(5)]
        expected -= np.log(chances[i] / sum(chances)) / 5
    assert float(curl.info_nce(logits)) == pytest.approx(expected, rel=1e-5)
    # A constant added to all logits of a row does not change the loss.
    shifted = logits - logits.max(axis=1, keepdims=True)
    assert float(curl.info_nce(shifted)) == pytest.approx(expected, rel=1e-5)
    assert float(curl.info_nce(jnp.eye(4) * 1e4)) == 0.0
    assert float(curl.info_nce(jnp.zeros((4, 4)))) == pytest.approx(np.log(4))


@dataclasses.dataclass(frozen=True)
class SacWithGroup(SacConfig):
    """A configuration of SAC with fields for CURL."""

    curl: CurlConfig = CurlConfig()


def test_the_family_says_which_of_the_two_curls_an_agent_has():
    parts = AgentParts(None, None, None, None, 2, 2, ContrastRule(), batch_size=3)
    for config, has_momentum in (
        (RainbowConfig(), True), (SacConfig(), False), (SacWithGroup(), False),
    ):  # fmt: skip
        task = curl.make_curl(parts, config)
        followed = {"params": {"encoder": np.zeros(2, np.float32)}}
        state = task.init_state({"projection": np.zeros(2, np.float32)}, followed)
        assert (state is not None) == has_momentum
