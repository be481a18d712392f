"""The Rainbow network: every head by hand, noise, initial values, padded actions."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.rainbow.encoders.data_efficient import DataEfficientEncoder
from rcrl_jax.agents.rainbow.network import RainbowNetwork
from rcrl_jax.config.choices import ENCODERS

ACTIONS, ATOMS, HIDDEN, SIGMA = 3, 5, 6, 0.1


@functools.cache
def make(head: str):
    """A network and its parameters."""
    network = RainbowNetwork(ACTIONS, ATOMS, HIDDEN, SIGMA, head, "data_efficient", "normal")
    return network, init(network)


def init(network: RainbowNetwork, num_valid_actions: int = ACTIONS):
    """Operation by operation, because most operations are the same in all networks."""
    return network.init(jax.random.key(1), observation(1), num_valid_actions)


def draw(network: RainbowNetwork, seed: int):
    return network.draw_noise(jax.random.key(seed))


def logits_of(network: RainbowNetwork, params, obs, noise=None) -> jax.Array:
    return network.apply(params, obs, ACTIONS, noise)


def observation(n: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (n, 225, 4, 25), np.uint8)


def test_an_encoder_of_another_width_than_its_entry_is_refused(monkeypatch):
    entry = ENCODERS["data_efficient"]
    monkeypatch.setitem(ENCODERS, "data_efficient", entry._replace(psi_size=100))
    network = RainbowNetwork(ACTIONS, ATOMS, HIDDEN, SIGMA, "state", "data_efficient", "normal")
    with pytest.raises(types.Incompatible, match=r"psi\(s\) \[1, 576\] .*psi_size=100"):
        init(network)


@pytest.fixture(scope="module", params=["state", "state_action"])
def made(request):
    return request.param, *make(request.param)


def dense(layer, x) -> np.ndarray:
    """A noisy layer with its mean weights, in NumPy."""
    kernel = np.concatenate(np.asarray(layer["kernel_mu"]), axis=1)  # group by group
    return np.asarray(x) @ kernel + np.ravel(layer["bias_mu"])


@pytest.mark.parametrize(
    "head", ["state", "state_action", "state_action_single", "state_action_both"]
)
def test_logits_equal_a_slow_forward_pass(head):
    network, params = make(head)
    p, obs = params["params"], observation(2)
    logits = np.asarray(logits_of(network, params, obs))
    assert logits.shape == (2, ACTIONS, ATOMS)
    psi = np.asarray(DataEfficientEncoder().apply({"params": p["encoder"]}, obs))

    def stream(name, x):
        return dense(p[f"{name}_out"], np.maximum(dense(p[f"{name}_hidden"], x), 0))

    for i in range(2):
        if head == "state":
            advantages = stream("advantage", psi[i]).reshape(ACTIONS, ATOMS)
        else:
            phi = psi[i] * np.asarray(p["action_embedding"])
            advantages = np.stack([stream("advantage", x) for x in phi])
        assert np.std(advantages, axis=0).max() > 1e-3  # actions differ
        if head == "state_action_single":
            assert "value_out" not in p
            expected = advantages
        else:
            of_both = head == "state_action_both"
            value = np.stack([stream("value", x) for x in (phi if of_both else psi[[i]])])
            assert (np.std(value, axis=0).max() > 1e-3) == of_both
            expected = value + advantages - np.mean(advantages, axis=0)
        np.testing.assert_allclose(logits[i], expected, rtol=1e-4, atol=1e-5)


def test_every_layer_draws_its_own_noise(made):
    _, network, params = made
    # The output of a layer is then the noise of its bias.
    bare = jax.tree_util.tree_map_with_path(
        lambda path, x: jnp.ones_like(x) if path[-1].key == "bias_sigma" else jnp.zeros_like(x),
        params,
    )
    _, captured = network.apply(
        bare, observation(1), ACTIONS, draw(network, 0), capture_intermediates=True
    )
    draws = {
        name: np.asarray(layer["__call__"][0])[0, :ATOMS]
        for name, layer in captured["intermediates"].items()
        if name.startswith(("value", "advantage"))
    }
    assert len(draws) == 4
    noise = draw(network, 0)
    for name, found in draws.items():
        np.testing.assert_allclose(found, noise[name].outputs[:ATOMS], rtol=1e-5, atol=1e-7)
    for one, other in itertools.combinations(draws.values(), 2):
        assert not np.isclose(one, other).any()


def test_phi_is_psi_times_the_vector_of_the_action():
    network, params = make("state_action")
    obs, action = observation(4), np.array([2, 0, 2, 1])
    psi = DataEfficientEncoder().apply({"params": params["params"]["encoder"]}, obs)
    phi = network.apply(params, psi, action, method="join")
    expected = np.asarray(psi) * np.asarray(params["params"]["action_embedding"])[action]
    np.testing.assert_array_equal(phi, expected)
    assert np.any(phi[0] != phi[2])


def test_with_a_state_head_the_embedding_is_psi():
    network, params = make("state")
    obs = observation(2)
    psi = DataEfficientEncoder().apply({"params": params["params"]["encoder"]}, obs)
    phi = network.apply(params, psi, np.array([2, 0]), method="join")
    np.testing.assert_array_equal(phi, psi)


@pytest.mark.parametrize(
    "embedding_init, lowest, mean, spread",
    [("normal", None, 0.0, 1.0), ("uniform", 0.0, 0.5, 12**-0.5), ("ones", 1.0, 1.0, 0.0)],
)
def test_initial_action_embeddings_have_their_distribution(embedding_init, lowest, mean, spread):
    network = RainbowNetwork(
        40, ATOMS, HIDDEN, SIGMA, "state_action", "data_efficient", embedding_init
    )
    params = init(network, 40)
    embedding = np.asarray(params["params"]["action_embedding"])
    assert lowest is None or embedding.min() >= lowest
    assert embedding.mean() == pytest.approx(mean, abs=0.02)
    assert embedding.std() == pytest.approx(spread, abs=0.02)


@pytest.mark.parametrize("head", ["state", "state_action", "state_action_both"])
def test_logits_of_valid_actions_do_not_depend_on_padding(head):
    """So initial values and noise do not depend on it either."""

    def run(max_num_actions):
        network = RainbowNetwork(
            max_num_actions, ATOMS, HIDDEN, 0.5, head, "data_efficient", "normal"
        )
        params, obs = network.init(jax.random.key(1), observation(1), ACTIONS), observation(2)
        noise = network.draw_noise(jax.random.key(2))
        samples = (None, noise)
        return jnp.stack([network.apply(params, obs, ACTIONS, sample) for sample in samples])

    # [mean weights or noisy ones, N, A, atoms]
    expected, logits = (run(n) for n in (ACTIONS, ACTIONS + 4))
    assert logits.shape == (2, 2, ACTIONS + 4, ATOMS)
    np.testing.assert_allclose(logits[:, :, :ACTIONS], expected, rtol=1e-4, atol=1e-5)
