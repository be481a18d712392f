"""Return distributions Z^pi(x), their form over K bins, and Q^pi (RCRL, section 3).

Returns are multiples of a resolution, the lattice. If all rewards are on the lattice, undiscounted
returns of finite horizon are exact. Discounted returns are truncated at the horizon and rounded
down to the lattice in every backup; `ReturnDistribution` holds a bound on the error.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.theory import mdp as mdps

_LATTICE_DIGITS = 6  # decimals of a reward value from which the default resolution is derived


class ReturnDistribution(NamedTuple):
    """The distribution of the return of every pair.

    The true return R and the stored return Z have a coupling with Z - below <= R <= Z + above.
    """

    lattice: np.ndarray  # [G] int64, consecutive
    resolution: float  # column g of `pmf` is the return `resolution * lattice[g]`
    pmf: np.ndarray  # [X, G] float64
    below: float  # >= 0; `below` and `above` are 0 if the distribution is exact
    above: float  # >= 0


class BinnedReturns(NamedTuple):
    """The vectors Z^pi(x) over K bins of equal width, which divide [R_min, R_max]."""

    probability: np.ndarray  # [X, K]
    width: float  # of a bin, (R_max - R_min) / K


def return_distribution(
    mdp: mdps.MDP, policy: np.ndarray, horizon: int, resolution: float | None = None
) -> ReturnDistribution:
    """The distribution of the return of every pair under a policy.

    With discount 1 the return is the sum of the first `horizon` rewards, and exact. Otherwise it is
    the infinite discounted sum, truncated after `horizon` rewards. The truncation error is at most
    `discount^horizon * max|r| / (1 - discount)`, the rounding error `resolution / (1 - discount)`.

    Args:
      mdp: the MDP.
      policy: action probabilities after the first action, `[S, A]`.
      horizon: number of rewards that count, at least 1.
      resolution: distance between two returns of the lattice. By default the largest one of which
        every reward value is a multiple; a discount below 1 has no default.
    """
    if resolution is None:
        resolution = _lattice_spacing(mdp.reward_values)
    weight = _geometric_sum(mdp.discount, horizon)
    floor, ceiling = min(0.0, mdp.reward_values.min()), max(0.0, mdp.reward_values.max())
    first = math.floor(floor * weight / resolution + 1e-9)
    last = math.ceil(ceiling * weight / resolution - 1e-9)
    lattice = np.arange(first, last + 1)
    # [M, G]: lattice index of reward m followed by return g. The clip can raise a rounded-down
    # return, but never above the true one, so it adds no error.
    landing = mdp.reward_values[:, None] / resolution + mdp.discount * lattice
    landing = np.clip(np.floor(landing + 1e-9).astype(np.int64) - first, 0, lattice.size - 1)
    ending = 1.0 - mdp.transition.sum(-1)
    ending[ending < 1e-12] = 0.0  # a row that sums to 1 up to rounding does not end the episode
    with jax.enable_x64(True):
        pmf = _backups(
            jnp.asarray(mdp.transition),
            jnp.asarray(ending),
            jnp.asarray(mdp.reward),
            jnp.asarray(policy),
            jnp.asarray(landing),
            jnp.asarray(lattice == 0, jnp.float64),
            horizon,
        )
    steps = mdp.reward_values / resolution
    aligned = mdp.discount == 1.0 and np.allclose(steps, np.round(steps), atol=1e-9)
    tail = mdp.discount**horizon / (1 - mdp.discount) if mdp.discount < 1.0 else 0.0
    rounding = 0.0 if aligned else resolution * weight
    return ReturnDistribution(
        lattice,
        resolution,
        np.asarray(pmf).reshape(-1, lattice.size),
        below=-floor * tail,
        above=ceiling * tail + rounding,
    )


@functools.partial(jax.jit, static_argnames="horizon")
def _backups(transition, ending, reward, policy, landing, nothing, horizon):
    def pair_pmf(state_pmf):  # [S, G] -> [S, A, G]
        following = jnp.einsum("sat,tg->sag", transition, state_pmf)
        following += ending[..., None] * nothing[None, None]

        def after_reward(target):  # [G] -> [S, A, G]
            return jnp.zeros_like(following).at[..., target].add(following)

        return jnp.einsum("sam,msag->sag", reward, jax.vmap(after_reward)(landing))

    def backup(state_pmf, _):
        return jnp.einsum("sa,sag->sg", policy, pair_pmf(state_pmf)), None

    start = jnp.broadcast_to(nothing, (policy.shape[0], nothing.size))
    state_pmf, _ = jax.lax.scan(backup, start, length=horizon - 1)
    return pair_pmf(state_pmf)


def bin_returns(distribution: ReturnDistribution, bins: int) -> BinnedReturns:
    """The distributions over K bins (section 3).

    The paper's bin k is R_{k-1} < R <= R_k, so R_min is in no bin. Here the first bin includes its
    left edge. Returns and edges are compared as integers, so rounding cannot move a return to
    another bin.
    R_min and R_max are the smallest and the largest possible return of any pair.
    """
    possible = distribution.lattice[distribution.pmf.max(0) > 0.0]
    first, span = int(possible[0]), max(int(possible[-1] - possible[0]), 1)
    index = -((first - distribution.lattice) * bins // span) - 1  # ceil(K (g - first) / span) - 1
    index = np.clip(index, 0, bins - 1)
    probability = distribution.pmf @ np.eye(bins)[index]
    low, high = (float(distribution.resolution * possible[end]) for end in (0, -1))
    return BinnedReturns(probability, (high - low) / bins)


def action_values(mdp: mdps.MDP, policy: np.ndarray, horizon: int) -> np.ndarray:
    """Q^pi `[X]` of the first `horizon` rewards, by backups of expected values."""
    with jax.enable_x64(True):
        values = _value_backups(
            jnp.asarray(mdp.transition),
            jnp.asarray(mdp.reward @ mdp.reward_values),
            jnp.asarray(policy),
            mdp.discount,
            horizon,
        )
    return np.asarray(values).ravel()


@functools.partial(jax.jit, static_argnames="horizon")
def _value_backups(transition, mean_reward, policy, discount, horizon):
    def backup(values, _):
        return mean_reward + discount * transition @ jnp.sum(policy * values, -1), None

    return jax.lax.scan(backup, jnp.zeros_like(mean_reward), length=horizon)[0]


def _geometric_sum(discount: float, horizon: int) -> float:
    """1 + discount + ... + discount^(horizon - 1)."""
    if discount == 1.0:
        return float(horizon)
    return (1.0 - discount**horizon) / (1.0 - discount)


def _lattice_spacing(reward_values: np.ndarray) -> float:
    """The largest spacing of which every reward value is an integer multiple."""
    scaled = reward_values * 10**_LATTICE_DIGITS
    integers = np.round(scaled).astype(np.int64)
    if not np.allclose(scaled, integers, atol=1e-3):
        raise ValueError(f"reward values need an explicit resolution: {reward_values}")
    spacing = np.gcd.reduce(integers)
    return float(max(spacing, 1)) / 10**_LATTICE_DIGITS
