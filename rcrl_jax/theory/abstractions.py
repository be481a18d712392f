"""Abstractions as integer labels, and the coarsest ones of each kind (RCRL, appendix A).

An abstraction of n things is an array `[n]` of labels; two things are merged where labels agree.
Only the partition matters; `canonical` names it.
"""

from typing import Literal

import numpy as np

from rcrl_jax.theory import mdp as mdps

TOLERANCE = 1e-9  # probabilities closer than this are equal; backups in float64 err by about 1e-15

Matching = Literal["expectation", "marginal", "joint"]


def canonical(labels: np.ndarray) -> np.ndarray:
    """Renames labels in order of first appearance: 0, 1, 2, ..."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def size(labels: np.ndarray) -> int:
    """Number of abstract things."""
    return np.unique(labels).size


def is_coarser(coarse: np.ndarray, fine: np.ndarray) -> bool:
    """Whether everything that `fine` merges is merged by `coarse` as well."""
    return size(np.stack([coarse, fine], 1) @ [fine.max() + 1, 1]) == size(fine)


def group_rows(rows: np.ndarray) -> np.ndarray:
    """The partition of `rows` `[n, d]` into equal ones.

    Raises:
      ValueError: if equality up to `TOLERANCE` is not an equivalence, so that the answer would
        hinge on rounding.
    """
    distance = np.max(np.abs(rows[:, None] - rows[None]), axis=-1)
    equal = distance <= TOLERANCE
    labels = np.argmax(equal, axis=1)  # the first row equal to this one
    if not np.array_equal(equal, labels[:, None] == labels[None]):
        raise ValueError("rows are not clearly equal or different at the tolerance")
    return canonical(labels)


def is_irrelevance(labels: np.ndarray, probability: np.ndarray) -> bool:
    """Whether merged pairs have equal return distributions (section 4.1): `[X], [X, K]`."""
    return is_coarser(group_rows(probability), labels)


def coarsest_irrelevance(probability: np.ndarray) -> np.ndarray:
    """The coarsest Z^pi-irrelevance of `[X, K]` (or `[S, K]`); its size is N_{pi,K}.

    With the full return law as `probability` its size is N_{pi,infinity}.
    """
    return group_rows(probability)


def bisimulation(mdp: mdps.MDP, matching: Literal["expectation", "distribution"]) -> np.ndarray:
    """The coarsest bisimulation `[S]` by partition refinement (appendix A.1).

    Args:
      mdp: the MDP.
      matching: what "R(s1, a) = R(s2, a)" compares: the expected reward (the definition read with
        R as a number) or its distribution (what the proof uses).
    """
    actions = mdp.transition.shape[1]
    reward = mdp.reward if matching == "distribution" else (mdp.reward @ mdp.reward_values)
    reward = reward.reshape(len(reward), -1)

    def signature(labels):
        to_class = mdp.transition @ np.eye(size(labels))[labels]
        return np.concatenate([reward, to_class.reshape(len(labels), actions * size(labels))], 1)

    return _refine(signature, len(reward))


def pi_bisimulation(mdp: mdps.MDP, policy: np.ndarray, matching: Matching) -> np.ndarray:
    """The coarsest pi-bisimulation `[S]` by partition refinement (appendix A.2).

    Args:
      mdp: the MDP.
      policy: `[S, A]`.
      matching: what two merged states share. "expectation": the expected reward and the law of the
        next class, as the paper's definition is written. "marginal": the law of the reward and the
        law of the next class. "joint": the joint law of both, which the proposition needs.
    """
    values = mdp.reward_values

    def signature(labels):
        to_class = mdp.transition @ np.eye(size(labels))[labels]  # [S, A, C]
        ending = 1.0 - to_class.sum(-1, keepdims=True)
        to_class = np.concatenate([to_class, ending], -1)
        if matching == "joint":
            joint = np.einsum("sa,sam,sac->smc", policy, mdp.reward, to_class)
            return joint.reshape(len(labels), -1)
        reward = np.einsum("sa,sam->sm", policy, mdp.reward)
        if matching == "expectation":
            reward = reward @ values[:, None]
        return np.concatenate([reward, np.einsum("sa,sac->sc", policy, to_class)], 1)

    return _refine(signature, len(policy))


def _refine(signature, states: int) -> np.ndarray:
    """Splits classes by signature until nothing splits: at most S rounds."""
    labels = np.zeros(states, np.int64)
    while True:
        refined = canonical(labels * states + group_rows(signature(labels)))
        if size(refined) == size(labels):
            return refined
        labels = refined


def pair_labels(state_labels: np.ndarray, actions: int) -> np.ndarray:
    """The state-action abstraction (class of s, a) `[X]` that a state abstraction `[S]` induces."""
    return canonical((state_labels[:, None] * actions + np.arange(actions)).ravel())
