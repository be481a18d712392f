"""Returns of stored transitions; `test_sampling.py` compares those of whole replays."""

import numpy as np

from rcrl_jax.return_contrast.returns import ReturnTable


def test_a_full_table_of_episodes_of_one_step_has_all_their_returns():
    capacity, rewards = 3, [5.0, 7.0, 11.0, 13.0]
    table = ReturnTable(2, capacity)
    for step, reward in enumerate(rewards):
        slots = np.full(2, step % capacity)
        table.add(slots, np.array([reward, 10 * reward]), np.ones(2, bool))
    held = table.returns(np.array([[1, 2, 0]] * 2))
    np.testing.assert_array_equal(held, [rewards[1:], [10 * reward for reward in rewards[1:]]])
