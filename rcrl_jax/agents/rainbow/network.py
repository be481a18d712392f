"""The C51 Rainbow network: encoder, state-action embedding, dueling noisy streams."""

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp

from rcrl_jax import types
from rcrl_jax.agents.rainbow import noisy
from rcrl_jax.config.choices import ENCODERS, load
from rcrl_jax.networks import initializers
from rcrl_jax.ops import products

_EMBEDDING_INITS = {
    "normal": nn.initializers.normal(1.0),
    "uniform": nn.initializers.uniform(1.0),
    "ones": nn.initializers.ones,
}


class RainbowNetwork(nn.Module):
    """Return-distribution logits of every action.

    A run may have fewer actions than `max_num_actions`. Its last actions are then padding: the
    dueling mean leaves them out, so their parameters get no gradient. The parameters and noise of
    an action depend only on the action's index.

    Attributes:
      max_num_actions: A, the size of the largest action set of the fleet.
      num_atoms: size of the support.
      hidden_size: units of the hidden layer of each stream.
      noisy_sigma: scale of the initial sigmas of the noisy layers; None for layers without noise.
      head: input of the two dueling streams, where phi(s, a) = psi(s) * e_a.
        'state': both streams read psi(s).
        'state_action': the advantage stream reads phi(s, a) and returns the logits of that action
          (RCRL, appendix C.1 and figure 1, left); the value stream reads psi(s).
        'state_action_both': both streams read phi(s, a), so the head reads a state through phi
          only.
        'state_action_single': there is no value stream; the value of action a depends only on
          phi(s, a), as in Proposition 4.1.
      encoder_name: one of `ENCODERS`.
      embedding_init: distribution of the initial e_a: 'normal', 'uniform' in [0, 1) or 'ones'.
    """

    max_num_actions: int
    num_atoms: int
    hidden_size: int
    noisy_sigma: float | None
    head: str
    encoder_name: str
    embedding_init: str

    @property
    def embedding_size(self) -> int:
        """Width of psi(s) and of phi(s, a)."""
        return ENCODERS[self.encoder_name].psi_size

    @property
    def _is_small(self) -> bool:
        """Whether to use the faster products of `products.py`, which round differently."""
        return ENCODERS[self.encoder_name].is_small

    @property
    def _advantage_groups(self) -> int:
        """Number of actions whose logits the advantage stream returns for one input."""
        return self.max_num_actions if self.head == "state" else 1

    def setup(self) -> None:
        """Creates the layers that the methods share."""
        self.encoder = load(ENCODERS[self.encoder_name].network)()
        if self.head != "state_action_single":
            self.value_hidden = self._dense(self.hidden_size)
            self.value_out = self._dense(self.num_atoms)
        self.advantage_hidden = self._dense(self.hidden_size)
        self.advantage_out = self._dense(self.num_atoms, groups=self._advantage_groups)
        if self.head != "state":
            self.action_embedding = self.param(
                "action_embedding",
                initializers.by_row(_EMBEDDING_INITS[self.embedding_init]),
                (self.max_num_actions, self.embedding_size),
            )

    def _dense(self, features: int, groups: int = 1) -> noisy.NoisyDense:
        multiply = products.multiply if self._is_small else jnp.matmul
        return noisy.NoisyDense(features, self.noisy_sigma, groups, multiply)

    def draw_noise(self, key: chex.PRNGKey) -> dict[str, noisy.LayerNoise]:
        """Draws one sample of the noise of all noisy layers.

        The noise of an action does not depend on `max_num_actions`.
        """
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
        num_valid_actions: jax.Array,
        noise: dict[str, noisy.LayerNoise] | None = None,
    ) -> jax.Array:
        """Maps observations to logits `[N, A, atoms]`.

        Args:
          observation: as for `encode`.
          num_valid_actions: as for `logits_of`.
          noise: as for `logits_of`.
        """
        return self.logits_of(self.encode(observation), num_valid_actions, noise)

    def encode(self, observation: jax.Array) -> jax.Array:
        """Maps observations to the state embedding psi(s) `[N, embedding_size] float32`.

        Args:
          observation: as the encoder reads it: patches `[N, 225, C, 25] uint8`, whole frames
            `[N, C, 84, 84] uint8`, bits `[N, C, bytes] uint8` or vectors `[N, C, D] float32`.

        Raises:
          Incompatible: psi(s) has another shape or type than the entry in `ENCODERS` promises.
        """
        psi = self.encoder(observation)
        expected = (len(observation), self.embedding_size)
        if psi.shape != expected or psi.dtype != jnp.float32:
            raise types.Incompatible(
                f"encoder {self.encoder_name} returns psi(s) {list(psi.shape)} {psi.dtype} where "
                f"its entry in config/choices.py, psi_size={self.embedding_size}, asks for "
                f"{list(expected)} float32"
            )
        return psi

    def logits_of(
        self,
        psi: jax.Array,
        num_valid_actions: jax.Array,
        noise: dict[str, noisy.LayerNoise] | None = None,
    ) -> jax.Array:
        """Maps state embeddings to logits `[N, A, atoms]`.

        Args:
          psi: `[N, embedding_size]`.
          num_valid_actions: `[] int32`, the size of the run's action set, at most A.
          noise: of the weights, from `draw_noise`; None for the mean weights.
        """
        chex.assert_shape(psi, (None, self.embedding_size))
        chex.assert_rank(num_valid_actions, 0)
        noise = noise or {}
        actions_first = self._is_small and self.head != "state"

        def by_state(rows):
            """`[N, A or 1, atoms]`."""
            if actions_first:
                return rows.reshape(-1, psi.shape[0], self.num_atoms).swapaxes(0, 1)
            return rows.reshape(psi.shape[0], -1, self.num_atoms)

        if self.head == "state":
            advantage_input = psi
        elif actions_first:
            advantage_input = products.spread(psi, self.action_embedding)  # [A * N, d]
        else:
            advantage_input = psi[:, None] * self.action_embedding[None]  # [N, A, d]
            advantage_input = advantage_input.reshape(-1, self.embedding_size)
        if self.head != "state_action_single":
            value_input = advantage_input if self.head == "state_action_both" else psi
            hidden = nn.relu(self.value_hidden(value_input, noise.get("value_hidden")))
            value = by_state(self.value_out(hidden, noise.get("value_out")))
        hidden = nn.relu(self.advantage_hidden(advantage_input, noise.get("advantage_hidden")))
        num_valid_groups = num_valid_actions if self.head == "state" else None
        advantage = self.advantage_out(hidden, noise.get("advantage_out"), num_valid_groups)
        advantage = by_state(advantage)
        if self.head == "state_action_single":
            return advantage
        action_mask = jnp.arange(self.max_num_actions) < num_valid_actions
        valid = jnp.where(action_mask[None, :, None], advantage, 0.0)
        mean = valid.sum(axis=1, keepdims=True) / num_valid_actions
        return value + advantage - mean

    def encode_each(self, observations: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        """Maps several batches of observations, as `encode` maps one."""
        return self.encoder.encode_each(observations)

    def join(self, psi: jax.Array, action: jax.Array) -> jax.Array:
        """Maps states and actions to the input of the advantage stream `[N, embedding_size]`.

        The input is phi(s, a), or psi(s) with `head='state'`.

        Args:
          psi: `[N, embedding_size]`.
          action: `[N] int32`.
        """
        chex.assert_shape(action, psi.shape[:1])
        if self.head == "state":
            return psi
        return psi * jnp.take(self.action_embedding, action, axis=0)
