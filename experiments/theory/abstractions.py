"""Abstractions as integer labels, and the coarsest abstraction of each kind (RCRL, appendix A).

An abstraction of n elements (states or state-action pairs) is an array `[n]` of integer labels. Two
elements are merged if their labels are equal. The values of the labels carry no meaning: after
`canonical`, equal partitions have equal labels.
"""

from typing import Literal

import numpy as np

from experiments.theory import mdp as mdps

TOLERANCE = 1e-9  # probabilities this close count as equal; float64 backups err by about 1e-15

Matching = Literal["expectation", "marginal", "joint"]


def canonical(labels: np.ndarray) -> np.ndarray:
    """Renames labels `[n]` to 0, 1, 2, ... in order of first appearance."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def size(labels: np.ndarray) -> int:
    """Number of classes of `labels` `[n]`."""
    return np.unique(labels).size


def is_coarser(coarse: np.ndarray, fine: np.ndarray) -> bool:
    """Whether `coarse` `[n]` merges every two elements that `fine` `[n]` merges."""
    return size(np.stack([coarse, fine], 1) @ [fine.max() + 1, 1]) == size(fine)


def group_rows(rows: np.ndarray) -> np.ndarray:
    """Labels `[n]` that are equal where rows of `rows` `[n, d]` are equal up to `TOLERANCE`.

    For rows that are return distributions this is the coarsest Z^pi-irrelevance (section 4.1). Its
    number of classes is N_{pi,K} for distributions over K bins, and N_{pi,infinity} for those over
    all possible returns.

    Raises:
      ValueError: if equality up to `TOLERANCE` is not transitive on these rows, so that the
        partition would depend on rounding.
    """
    distance = np.max(np.abs(rows[:, None] - rows[None]), axis=-1)
    equal = distance <= TOLERANCE
    labels = np.argmax(equal, axis=1)  # index of the first equal row
    if not np.array_equal(equal, labels[:, None] == labels[None]):
        raise ValueError("rows are not clearly equal or different at the tolerance")
    return canonical(labels)


def is_irrelevance(labels: np.ndarray, probability: np.ndarray) -> bool:
    """Whether labels `[X]` (or `[S]`) are a Z^pi-irrelevance (section 4.1).

    They are if all merged elements have equal return distributions, rows of `probability` `[X, K]`.
    """
    return is_coarser(group_rows(probability), labels)


def bisimulation(mdp: mdps.MDP) -> np.ndarray:
    """The coarsest bisimulation, labels `[S]`, by partition refinement (appendix A.1).

    R(s1, a) = R(s2, a) means equal reward distributions, as in the paper's proof.
    """
    actions = mdp.transition.shape[1]
    reward = mdp.reward.reshape(len(mdp.reward), -1)

    def signature(labels):
        to_class = mdp.transition @ np.eye(size(labels))[labels]
        return np.concatenate([reward, to_class.reshape(len(labels), actions * size(labels))], 1)

    return _refine(signature, len(reward))


def pi_bisimulation(mdp: mdps.MDP, policy: np.ndarray, matching: Matching) -> np.ndarray:
    """The coarsest pi-bisimulation, labels `[S]`, by partition refinement (appendix A.2).

    Args:
      mdp: the MDP.
      policy: action probabilities, `[S, A]`.
      matching: what merged states have in common. "expectation": the expected reward and the
        distribution of the next class (the paper's definition). "marginal": the distribution of
        the reward and that of the next class. "joint": the joint distribution of both (what the
        proposition needs).
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
    """Splits classes by signature until no class splits, which takes at most S rounds."""
    labels = np.zeros(states, np.int64)
    while True:
        refined = canonical(labels * states + group_rows(signature(labels)))
        if size(refined) == size(labels):
            return refined
        labels = refined


def pair_labels(state_labels: np.ndarray, actions: int) -> np.ndarray:
    """Labels `[X]` of the pairs (class of s, a), given labels `[S]` of the states."""
    return canonical((state_labels[:, None] * actions + np.arange(actions)).ravel())
