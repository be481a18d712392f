"""The C51 Rainbow network: encoder, state-action embedding, dueling noisy streams."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.networks import encoders, initializers, noisy

EMBEDDING_SIZE = 576  # width of psi(s) and of phi(s, a)


class RainbowNetwork(nn.Module):
    """Return-distribution logits of every action.

    With `head='state'` both dueling streams read psi(s). With `head='state_action'` the advantage
    stream reads phi(s, a) = psi(s) * e_a for one action at a time and returns that action's
    logits (RCRL, appendix C.1 and figure 1, left).

    `num_actions` is the largest action set of the fleet. A run with fewer actions leaves the last
    ones out: they take no part in the dueling mean, so nothing they own gets a gradient, and
    everything random about an action depends on its number alone.
    """

    num_actions: int
    num_atoms: int
    hidden_size: int
    noisy_sigma: float
    head: str

    def setup(self) -> None:
        """Creates the parts that `__call__`, `encode` and `embed` share."""
        self.encoder = encoders.DataEfficientEncoder()
        self.value_hidden = self._dense(self.hidden_size)
        self.value_out = self._dense(self.num_atoms)
        self.advantage_hidden = self._dense(self.hidden_size)
        per_state = self.num_actions if self.head == "state" else 1
        self.advantage_out = self._dense(self.num_atoms, groups=per_state)
        if self.head == "state_action":
            # N(0, 1), as PyTorch's embeddings start; equal vectors would make every action tie.
            self.action_embedding = self.param(
                "action_embedding",
                initializers.by_row(nn.initializers.normal(1.0)),
                (self.num_actions, EMBEDDING_SIZE),
            )

    def _dense(self, features: int, groups: int = 1) -> noisy.NoisyDense:
        return noisy.NoisyDense(features, self.noisy_sigma, groups)

    def __call__(self, observation: jax.Array, own_actions: jax.Array, *, noisy: bool) -> jax.Array:
        """Maps `[N, 225, C, 25] uint8` to logits `[N, A, atoms]`.

        Args:
          observation: stacks of frames as patches.
          own_actions: `[] int32`, the size of the run's own action set, at most A.
          noisy: whether to add noise to the weights.
        """
        psi = self.encoder(observation)
        shape = (psi.shape[0], self.num_actions, self.num_atoms)
        value = self.value_out(nn.relu(self.value_hidden(psi, noisy=noisy)), noisy=noisy)
        if self.head == "state":
            advantage_input = psi  # [N, 576]
        else:
            advantage_input = psi[:, None] * self.action_embedding  # [N, A, 576]
            advantage_input = advantage_input.reshape(-1, EMBEDDING_SIZE)
        hidden = nn.relu(self.advantage_hidden(advantage_input, noisy=noisy))
        advantage = self.advantage_out(hidden, noisy=noisy).reshape(shape)
        own = jnp.arange(self.num_actions)[:, None] < own_actions
        mean = jnp.where(own, advantage, 0.0).sum(axis=1, keepdims=True) / own_actions
        return value[:, None] + advantage - mean

    def embed(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """The state-action embedding phi(s, a): `[N, 225, C, 25], [N] -> [N, 576]`."""
        chex.assert_rank(action, 1)
        return self.encoder(observation) * jnp.take(self.action_embedding, action, axis=0)
