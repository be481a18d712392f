"""The C51 Rainbow network: encoder, state-action embedding, dueling noisy streams."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax.networks import encoders, initializers, nature, noisy

EMBEDDING_SIZE = 576  # width of psi(s) and of phi(s, a), of the data-efficient encoder
NATURE_EMBEDDING_SIZE = 3136
ENCODERS = {"data_efficient": encoders.DataEfficientEncoder, "nature": nature.NatureEncoder}
_EMBEDDING_INITS = {
    "normal": nn.initializers.normal(1.0),
    "uniform": nn.initializers.uniform(1.0),
    "ones": nn.initializers.ones,
}


class RainbowNetwork(nn.Module):
    """Return-distribution logits of every action.

    With `head='state'` both dueling streams read psi(s). With `head='state_action'` the advantage
    stream reads phi(s, a) = psi(s) * e_a for one action at a time and returns that action's
    logits (RCRL, appendix C.1 and figure 1, left). With `head='state_action_both'` the value stream
    reads phi(s, a) as well, so that everything the head reads of a state passes through phi. With
    `head='state_action_single'` the advantage stream is the whole head, and the value of an action
    a function of its own phi(s, a) alone, as Proposition 4.1 has it.

    `num_actions` is the largest action set of the fleet. A run with fewer actions leaves the last
    ones out: they take no part in the dueling mean, so nothing they own gets a gradient, and
    everything random about an action depends on its number alone.
    """

    num_actions: int
    num_atoms: int
    hidden_size: int
    noisy_sigma: float
    head: str
    encoder_name: str = "data_efficient"
    embedding_init: str = "normal"

    @property
    def embedding_size(self) -> int:
        """Width of psi(s) and of phi(s, a)."""
        return NATURE_EMBEDDING_SIZE if self.encoder_name == "nature" else EMBEDDING_SIZE

    @property
    def _advantage_groups(self) -> int:
        """How many actions' logits the advantage stream returns at once."""
        return self.num_actions if self.head == "state" else 1

    def setup(self) -> None:
        """Creates the parts that `__call__` and `embed` share."""
        self.encoder = ENCODERS[self.encoder_name]()
        if self.head != "state_action_single":
            self.value_hidden = self._dense(self.hidden_size)
            self.value_out = self._dense(self.num_atoms)
        self.advantage_hidden = self._dense(self.hidden_size)
        self.advantage_out = self._dense(self.num_atoms, groups=self._advantage_groups)
        if self.head != "state":
            self.action_embedding = self.param(
                "action_embedding",
                initializers.by_row(_EMBEDDING_INITS[self.embedding_init]),
                (self.num_actions, self.embedding_size),
            )

    def _dense(self, features: int, groups: int = 1) -> noisy.NoisyDense:
        return noisy.NoisyDense(features, self.noisy_sigma, groups)

    def draw_noise(self, key: chex.PRNGKey) -> dict[str, noisy.LayerNoise]:
        """One sample of the noise of all noisy layers; with more actions it begins the same."""
        hidden = (self.embedding_size, self.hidden_size)
        layers = {}
        if self.head != "state_action_single":
            layers |= {"value_hidden": hidden, "value_out": (self.hidden_size, self.num_atoms)}
        layers["advantage_hidden"] = hidden
        layers["advantage_out"] = (self.hidden_size, self._advantage_groups * self.num_atoms)
        return noisy.draw_noise(key, layers)

    def __call__(
        self,
        observation: jax.Array,
        own_actions: jax.Array,
        noise: dict[str, noisy.LayerNoise] | None = None,
    ) -> jax.Array:
        """Maps observations to logits `[N, A, atoms]`.

        Args:
          observation: `[N, 225, C, 25] uint8`, stacks of frames as patches; `[N, C, 84, 84]` of
            the Nature encoder.
          own_actions: `[] int32`, the size of the run's own action set, at most A.
          noise: of the weights, from `draw_noise`; None for their means.
        """
        noise = noise or {}
        psi = self.encoder(observation)
        shape = (psi.shape[0], self.num_actions, self.num_atoms)
        if self.head == "state":
            advantage_input = psi  # [N, 576]
        else:
            advantage_input = psi[:, None] * self.action_embedding  # [N, A, 576]
            advantage_input = advantage_input.reshape(-1, self.embedding_size)
        if self.head != "state_action_single":
            value_input = advantage_input if self.head == "state_action_both" else psi
            hidden = nn.relu(self.value_hidden(value_input, noise.get("value_hidden")))
            value = self.value_out(hidden, noise.get("value_out"))
            value = value.reshape(psi.shape[0], -1, self.num_atoms)  # [N, A or 1, atoms]
        hidden = nn.relu(self.advantage_hidden(advantage_input, noise.get("advantage_hidden")))
        own_groups = own_actions if self.head == "state" else None
        advantage = self.advantage_out(hidden, noise.get("advantage_out"), own_groups)
        advantage = advantage.reshape(shape)
        if self.head == "state_action_single":
            return advantage
        own = jnp.arange(self.num_actions)[:, None] < own_actions
        mean = jnp.where(own, advantage, 0.0).sum(axis=1, keepdims=True) / own_actions
        return value + advantage - mean

    def embed(self, observation: jax.Array, action: jax.Array) -> jax.Array:
        """What the advantage stream reads: `[N, ...], [N] -> [N, embedding_size]`.

        The state-action embedding phi(s, a), or psi(s) where the head reads states alone.
        """
        chex.assert_rank(action, 1)
        if self.head == "state":
            return self.encoder(observation)
        return self.encoder(observation) * jnp.take(self.action_embedding, action, axis=0)
