"""The families of MDPs."""

import numpy as np
import pytest

from experiments.theory import mdp as mdps


@pytest.mark.parametrize(
    "make",
    [
        lambda rng: mdps.garnet(rng, 5, 3, 2),
        lambda rng: mdps.grid_world(3, 0.1, 2),
        lambda rng: mdps.sparse_episodes(rng, 3, 2, 2),
        lambda rng: mdps.dense_episodes(rng, 3, 2, 2),
    ],
)
def test_every_family_is_a_valid_mdp(make):
    mdp = make(np.random.default_rng(0))
    states, actions, _ = mdp.reward.shape
    assert mdp.transition.shape == (states, actions, states) and mdp.initial.shape == (states,)
    assert mdp.reward.shape[2] == mdp.reward_values.size and 0 < mdp.discount <= 1
    assert mdp.transition.min() >= 0 and mdp.transition.sum(-1).max() <= 1 + 1e-9
    for rows in (mdp.reward, mdp.initial):
        assert rows.min() >= 0
        np.testing.assert_allclose(rows.sum(-1), 1)


def test_garnet_pairs_have_branching_successors():
    mdp = mdps.garnet(np.random.default_rng(1), 6, 2, 3)
    assert np.all(np.sum(mdp.transition > 0, axis=-1) == 3)


def test_grid_moves_stop_at_walls_and_the_last_corner_ends():
    mdp = mdps.grid_world(2, 0.0, 0)  # cells 0 1 / 2 3; up, down, left, right
    assert np.argmax(mdp.transition[0], axis=-1).tolist() == [0, 2, 0, 1]
    assert not mdp.transition[3].any()


def test_distractors_multiply_states_and_keep_base_transitions():
    base = mdps.garnet(np.random.default_rng(2), 3, 2, 2)
    mdp = mdps.with_distractors(base, 2)
    assert mdp.transition.shape == (12, 2, 12)
    folded = mdp.transition.reshape(3, 4, 2, 3, 4).sum(-1)
    np.testing.assert_allclose(folded, np.repeat(base.transition[:, None], 4, axis=1))


def test_layers_lead_to_the_next_layer_and_the_last_ends():
    mdp = mdps.sparse_episodes(np.random.default_rng(3), 3, 2, 2)
    layer = np.arange(6) // 2
    source, _, target = np.nonzero(mdp.transition)
    assert np.array_equal(layer[target], layer[source] + 1)
    assert not mdp.transition[layer == 2].any()
