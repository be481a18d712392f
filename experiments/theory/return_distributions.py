"""Return distributions Z^pi(x), their form over K bins, and Q^pi (RCRL, section 3).

Returns are multiples of a resolution, the lattice. If all rewards are on the lattice, undiscounted
returns of finite horizon are exact. Discounted returns are truncated at the horizon and rounded
down to the lattice in every backup; `ReturnDistribution` holds a bound on the error.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

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
    steps = mdp.reward_values / resolution
    aligned = mdp.discount == 1.0 and np.allclose(steps, np.round(steps), atol=1e-9)
    tail = mdp.discount**horizon / (1 - mdp.discount) if mdp.discount < 1.0 else 0.0
    rounding = 0.0 if aligned else resolution * weight
    return ReturnDistribution(
        lattice,
        resolution,
        _backups(mdp, policy, landing, 1.0 * (lattice == 0), horizon).reshape(-1, lattice.size),
        below=-floor * tail,
        above=ceiling * tail + rounding,
    )


def _backups(
    mdp: mdps.MDP, policy: np.ndarray, landing: np.ndarray, nothing: np.ndarray, horizon: int
) -> np.ndarray:
    """Probability of each return g `[S, A, G]`; `nothing` `[G]` is 1 at return 0, else 0."""
    size = nothing.size
    ending = 1.0 - mdp.transition.sum(-1)
    ending[ending < 1e-12] = 0.0  # a row that sums to 1 up to rounding does not end the episode
    # [G, G] for each reward: moves the probability of return g to that of reward and g.
    start, weight = np.arange(size), np.ones(size)
    moves = [sparse.csr_array((weight, (start, end)), (size, size)) for end in landing]
    state_pmf = np.broadcast_to(nothing, (len(policy), size))
    for _ in range(horizon):
        following = mdp.transition @ state_pmf + ending[..., None] * nothing
        pmf = sum(
            mdp.reward[..., m, None] * (following.reshape(-1, size) @ move).reshape(following.shape)
            for m, move in enumerate(moves)
        )
        state_pmf = np.einsum("sa,sag->sg", policy, pmf)
    return pmf


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
    mean_reward = mdp.reward @ mdp.reward_values
    values = np.zeros_like(mean_reward)
    for _ in range(horizon):
        values = mean_reward + mdp.discount * mdp.transition @ np.sum(policy * values, -1)
    return values.ravel()


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
