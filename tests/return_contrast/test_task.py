"""The return-contrastive loss by hand, its label, and which parameters its gradient reaches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.config.base import ReturnContrastConfig
from rcrl_jax.replay.settings import ContrastRule
from rcrl_jax.return_contrast.discriminator import Discriminator
from rcrl_jax.return_contrast.task import make_return_contrast
from rcrl_jax.tasks.task import AgentParts, AuxiliaryTask, UpdateView

RNG = np.random.default_rng(0)
KEY = jax.random.key(0)


def batch_of(anchor, positive, negative) -> types.Batch:
    return types.Batch(None, types.ContrastBatch(anchor, positive, negative))


def view_of(agent_params, batch, encode=lambda params, observation: observation) -> UpdateView:
    psi = tuple(encode(agent_params, pairs.observation) for pairs in batch.contrast)
    return UpdateView(agent_params, None, None, batch, batch, psi)


def linear_join(params, psi, action):
    """phi(s, a) = s * e_a with a state of two numbers."""
    return psi * params[action]


def make_task(hidden=4, reads="concatenation", **fields) -> AuxiliaryTask:
    own = ReturnContrastConfig(discriminator_hidden=hidden, discriminator_input=reads, **fields)
    parts = AgentParts(None, None, linear_join, None, 2, 2, ContrastRule(), batch_size=5)
    return make_return_contrast(parts, RainbowConfig(return_contrast=own))


def random_pairs(n: int) -> types.Pairs:
    return types.Pairs(
        RNG.normal(size=(n, 2)).astype(np.float32), RNG.integers(0, 3, n).astype(np.int32)
    )


@pytest.fixture(scope="module")
def small():
    """(task, its parameters, the agent's parameters, a batch of five)."""
    task = make_task()
    embedding = RNG.normal(size=(3, 2)).astype(np.float32)
    return task, task.init(KEY), embedding, batch_of(*(random_pairs(5) for _ in range(3)))


def slow(task_params, embedding, batch):
    """Loss and metrics, pair by pair."""
    p = jax.tree.map(np.asarray, task_params["params"])

    def w(x, y):
        hidden = np.concatenate([x, y]) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
        logit = np.maximum(hidden, 0) @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"]
        return 1 / (1 + np.exp(-logit[0]))

    def cosine(x, y):
        return x @ y / np.sqrt((x @ x) * (y @ y))

    anchor, positive, negative = (
        [s * embedding[a] for s, a in zip(pairs.observation, pairs.action, strict=True)]
        for pairs in batch.contrast
    )
    same = [w(*pair) for pair in zip(anchor, positive, strict=True)]
    other = [w(*pair) for pair in zip(anchor, negative, strict=True)]
    loss = sum([(x - 0) ** 2 for x in same] + [(x - 1) ** 2 for x in other]) / 10
    return loss, {
        "discriminator_accuracy_positive": np.mean([x < 0.5 for x in same]),
        "discriminator_accuracy_negative": np.mean([x >= 0.5 for x in other]),
        "cosine_positive": np.mean([cosine(*p) for p in zip(anchor, positive, strict=True)]),
        "cosine_negative": np.mean([cosine(*p) for p in zip(anchor, negative, strict=True)]),
    }


def test_loss_and_metrics_equal_slow_loops(small):
    task, task_params, embedding, batch = small
    loss, metrics = task.loss(task_params, view_of(jnp.asarray(embedding), batch), None, KEY)
    expected_loss, expected_metrics = slow(task_params, embedding, batch)
    assert loss.shape == ()
    assert float(loss) == pytest.approx(expected_loss, rel=1e-5)
    assert metrics.keys() == expected_metrics.keys()
    for name, value in metrics.items():
        assert float(value) == pytest.approx(expected_metrics[name], rel=1e-4), name


@pytest.mark.parametrize(
    "fields, network",
    [
        ({}, Discriminator(4, "concatenation", 1)),
        ({"reads": "difference_product"}, Discriminator(4, "difference_product", 1)),
        ({"discriminator_layers": 2}, Discriminator(4, "concatenation", 2)),
    ],
)
def test_cross_entropy_equals_a_slow_loop_over_the_discriminator(small, fields, network):
    _, _, embedding, batch = small
    task = make_task(loss="cross_entropy", **fields)
    params = task.init(KEY)
    anchor, positive, negative = (
        np.stack([s * embedding[a] for s, a in zip(pairs.observation, pairs.action, strict=True)])
        for pairs in batch.contrast
    )
    expected = 0.0
    for other, label in ((positive, 0), (negative, 1)):
        for x, y in zip(anchor, other, strict=True):
            w = 1 / (1 + np.exp(-float(network.apply(params, x[None], y[None])[0])))
            expected -= np.log(w if label else 1 - w) / 10
    loss, _ = task.loss(params, view_of(jnp.asarray(embedding), batch), None, KEY)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_the_cross_entropy_of_a_saturated_output_is_finite():
    """The output is 200 for every pair: right for negatives, 200 too high for positives."""
    task = make_task(hidden=1, loss="cross_entropy")
    params = jax.tree.map(jnp.zeros_like, task.init(KEY))["params"]
    params["Dense_1"]["bias"] = jnp.array([200.0])
    view = view_of(jnp.ones((3, 2)), batch_of(*(random_pairs(5) for _ in range(3))))
    loss = jax.value_and_grad(lambda params: task.loss({"params": params}, view, None, KEY)[0])
    value, gradient = loss(params)
    assert float(value) == 100.0
    assert gradient["Dense_1"]["bias"].tolist() == [0.5]


def test_the_cosine_of_a_zero_embedding_is_zero(small):
    task, params, embedding, batch = small

    def loss(embedding):
        return task.loss(params, view_of(embedding, batch), None, KEY)

    zeros = jnp.zeros_like(embedding)
    gradient, metrics = jax.grad(loss, has_aux=True)(zeros)
    assert metrics["cosine_positive"] == metrics["cosine_negative"] == 0.0
    assert np.isfinite(gradient).all()


def test_the_label_is_zero_for_positives_and_one_for_negatives():
    """A scripted discriminator: w is near 1 where the second state exceeds the first by 1."""
    task = make_task(hidden=1)
    params = jax.tree.map(jnp.zeros_like, task.init(KEY))["params"]
    params["Dense_0"]["kernel"] = jnp.array([[-1.0], [0.0], [1.0], [0.0]])
    params["Dense_1"] = {"kernel": jnp.array([[20.0]]), "bias": jnp.array([-10.0])}
    action = np.zeros(4, np.int32)
    here = types.Pairs(np.zeros((4, 2), np.float32), action)
    away = types.Pairs(np.ones((4, 2), np.float32), action)

    def loss(positive, negative):
        view = view_of(jnp.ones((3, 2)), batch_of(here, positive, negative))
        value, metrics = task.loss({"params": params}, view, None, KEY)
        return float(value), [
            float(metrics[f"discriminator_accuracy_{kind}"]) for kind in ("positive", "negative")
        ]

    small_w = 1 / (1 + np.exp(10))
    assert loss(here, away) == (pytest.approx(small_w**2), [1.0, 1.0])
    assert loss(away, here) == (pytest.approx((1 - small_w) ** 2), [0.0, 0.0])
    assert loss(here, here) == (pytest.approx(0.5, abs=1e-3), [1.0, 0.0])
    assert loss(away, away) == (pytest.approx(0.5, abs=1e-3), [0.0, 1.0])
