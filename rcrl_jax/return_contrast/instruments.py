"""Measures how well a return-contrastive agent separates pairs from episodes not trained on.

Accuracy on training batches says little: a discriminator that only compares actions is right on
most of them. So pairs come from evaluation games, and the actions of a pair are either equal by
choice or measured separately. The area under the ROC curve (AUC) is the probability that a pair
labelled "different" gets a larger output than one labelled "same". Ties count half; 0.5 is chance.

    metric                              label "same"                label "different"
    unseen_auc                          one segment                 unequal returns
    unseen_auc_action                   the same pairs, judged by their actions alone
    unseen_auc_equal_action             one segment, equal actions  unequal returns, equal actions
    unseen_auc_equal_return             equal returns, two games    unequal returns, two games
    unseen_auc*_clock                   the same pairs, judged by their distance in time alone
    unseen_auc*_matched_time            as above, but both partners of an anchor are equally far
                                        from it in time, within a tenth
    unseen_pairs*                       how many anchors such an AUC rests on
    unseen_cosine_*_equal_action        the pairs of unseen_auc_equal_action
    unseen_cosine_*_different_action    the pairs of unseen_auc whose actions differ

The clock is the null of every AUC of pairs. It sees no frame, but two steps of one segment are
close in time, so its AUC is far above 0.5. Only an AUC above the clock's, or above 0.5 at matched
time, can come from returns. Even such an AUC is no proof: a network may infer both step numbers
from the frames, and so exceed the clock without knowing returns.

Time is the step number in the game. The distance of two steps is the difference of their step
numbers, also in different games. Returns are undiscounted, to the end of the training episode. Two
returns count as equal if they differ by at most the `segment_threshold` of the agent's task. In a
game without a reward all returns are equal, and there is nothing to measure.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from rcrl_jax import types
from rcrl_jax.return_contrast import episodes
from rcrl_jax.training.fleet import Fleet

MOST_BYTES = 8 * 2**20  # frames kept of a game: 1188 steps of Atari

_PAIRS = 256  # anchors of each kind of contrast, compared at once
_FEWEST = 20  # pairs of each label; with fewer, a metric is NaN
_MATCHED_WITHIN = 0.1  # relative difference of two distances in time that count as equal
_DRAWS = 128  # attempts to find a partner that fulfils a condition
_ACTION_CELL = 0.2  # continuous actions in the same cell of a grid this fine count as equal
NONE = -1  # marks an anchor without a partner


class Played(NamedTuple):
    """The steps of one run's games, one after the other."""

    game: np.ndarray  # [N] int64
    time: np.ndarray  # [N] int64, step number within the game
    segment: np.ndarray  # [N] int64
    action: np.ndarray  # [N] int64, equal where two actions count as equal
    returns: np.ndarray  # [N] float64


class Contrast(NamedTuple):
    """Indices into `Played`: anchors, one partner of each label; -1 for both if one is missing.

    `matched` is another partner of the label "different", as far from the anchor in time as `same`
    is; -1 if there is none.
    """

    anchor: np.ndarray  # [n] int64
    same: np.ndarray  # [n] int64
    different: np.ndarray  # [n] int64
    matched: np.ndarray  # [n] int64


def measure(
    fleet: Fleet,
    params: types.TrainableParams,
    games: Sequence[Sequence[episodes.Episode]],
    *,
    seeds: Sequence[int],
    agent_steps: int,
) -> list[dict[str, float]]:
    """Measures every run of a fleet on its own games.

    Args:
      fleet: compares pairs.
      params: all trainable parameters, leading axis R.
      games: `[R][G]`, recorded games of each run.
      seeds: `[R]`, of the draws; usually the seeds of the runs.
      agent_steps: how long the runs have trained. Seed and agent steps determine the draws.

    Returns:
      `[R]`, value by metric; NaN where the games have too few pairs of a kind. Agents without a
      discriminator get the cosines and `unseen_auc_action` alone.
    """
    played = [as_played(run_games) for run_games in games]
    tolerance = fleet.agent.replay.contrast_rule.tolerance
    contrasts = [
        draw_contrasts(steps, _PAIRS, tolerance, np.random.default_rng((seed, agent_steps)))
        for steps, seed in zip(played, seeds, strict=True)
    ]
    drawn = np.array(contrasts)  # [R, 3 kinds, 4, n]
    cosine, logit = compare(fleet, params, games, np.maximum(drawn, 0))
    return [
        metrics_of(
            played[run], Contrast(*drawn[run].swapaxes(0, 1)), cosine[run],
            None if logit is None else logit[run],
        )
        for run in range(len(games))
    ]  # fmt: skip


def metrics_of(
    played: Played, drawn: Contrast, cosine: np.ndarray, logit: np.ndarray | None
) -> dict[str, float]:
    """The metrics of one run.

    Args:
      played: the run's steps.
      drawn: of the three kinds, each field `[3, n]`, as `draw_contrasts` returns them.
      cosine: `[3, 3, n]`, of each anchor with its partners `same`, `different` and `matched`.
      logit: `[3, 3, n]` likewise, of the discriminator; None without one.
    """
    found = drawn.same != NONE  # [3, n]
    partner = np.stack([drawn.same[0], drawn.different[0]])  # [2, n], of any action
    differs = played.action[drawn.anchor[0]] != played.action[partner]
    metrics = {"unseen_auc_action": area_under_roc(*differs[:, found[0]].astype(float))}
    for label, name in enumerate(("positive", "negative")):
        kinds = {
            "equal_action": cosine[1, label, found[1]],
            "different_action": cosine[0, label, found[0] & differs[label]],
        }
        for kind, values in kinds.items():
            mean = values.mean() if len(values) >= _FEWEST else np.nan
            metrics[f"unseen_cosine_{name}_{kind}"] = float(mean)
    if logit is not None:
        clock = np.abs(played.time[drawn.anchor] - played.time[np.array(drawn[1:])])  # [3, 3, n]
        matched = drawn.matched != NONE
        for kind, name in enumerate(("", "_equal_action", "_equal_return")):
            same, different, equally_far = logit[kind]
            both, at_matched_time = found[kind], matched[kind]
            metrics |= {
                f"unseen_auc{name}": area_under_roc(same[both], different[both]),
                f"unseen_auc{name}_clock": area_under_roc(*clock[:2, kind, both]),
                f"unseen_auc{name}_matched_time": area_under_roc(
                    same[at_matched_time], equally_far[at_matched_time]
                ),
                f"unseen_pairs{name}": float(both.sum()),
                f"unseen_pairs{name}_matched_time": float(at_matched_time.sum()),
            }
    return metrics


def area_under_roc(same: np.ndarray, different: np.ndarray) -> float:
    """P(different > same) + P(equal) / 2 of samples `[n]` and `[m]`; NaN if n or m is below 20."""
    if min(len(same), len(different)) < _FEWEST:
        return float("nan")
    larger, equal = (relation.outer(different, same).sum() for relation in (np.greater, np.equal))
    return float((larger + equal / 2) / (len(same) * len(different)))


def as_played(games: Sequence[episodes.Episode]) -> Played:
    """The recorded steps of one run's games."""
    steps = episodes.all_steps(games)
    action = np.concatenate([game.action[: len(game.frames)] for game in games])
    if np.issubdtype(action.dtype, np.floating):
        action = np.floor(action / _ACTION_CELL)
    _, action = np.unique(action, axis=0, return_inverse=True)
    returns = [episodes.undiscounted_returns(game)[: len(game.frames)] for game in games]
    return Played(
        *steps,
        episodes.segment_numbers(games),
        action.reshape(-1),
        np.concatenate(returns),
    )


def draw_contrasts(
    played: Played, size: int, return_tolerance: float, rng: np.random.Generator
) -> tuple[Contrast, Contrast, Contrast]:
    """Pairs of any action, of equal actions, and of two games, as the table above says.

    Args:
      played: N steps of one run.
      size: n, anchors of each kind.
      return_tolerance: returns that differ by at most this count as equal [reward].
      rng: of all draws.

    Returns:
      A contrast of each kind, each field `[n]`.
    """
    steps = np.arange(len(played.game))

    def anywhere() -> np.ndarray:
        return rng.integers(0, len(steps), size)

    def differs(anchor: np.ndarray, step: np.ndarray) -> np.ndarray:
        return np.abs(played.returns[step] - played.returns[anchor]) > return_tolerance

    def elsewhere(anchor: np.ndarray, step: np.ndarray) -> np.ndarray:
        return played.game[step] != played.game[anchor]

    both = np.stack([played.segment, played.action])
    _, segment_and_action = np.unique(both, axis=1, return_inverse=True)
    # The order of the draws is part of the recorded numbers.
    one, same_one = sharing_a_group(played.segment, size, rng)
    equal, same_equal = sharing_a_group(segment_and_action.reshape(-1), size, rng)
    two = anywhere()
    same_two = _draw_until(anywhere, lambda step: elsewhere(two, step) & ~differs(two, step))
    other_two = _draw_until(anywhere, lambda step: elsewhere(two, step) & differs(two, step))
    other_one = _draw_until(anywhere, lambda step: differs(one, step))
    other_equal = _draw_until(
        lambda: _another_of(played.action, equal, rng), lambda step: differs(equal, step)
    )

    def complete(anchor, same, other, allowed: Callable[[np.integer], np.ndarray]) -> Contrast:
        """Keeps the partners of anchors that have one of each label; sets all others to -1."""
        matched = _draw_at_matched_time(
            played.time, anchor, same, lambda a: differs(a, steps) & allowed(a), rng
        )
        found = (same != NONE) & (other != NONE)
        return Contrast(anchor, *(np.where(found, x, NONE) for x in (same, other, matched)))

    # If `same` comes from the anchor's game, so does `matched`. Otherwise an agent could tell games
    # apart instead of returns.
    return (
        complete(one, same_one, other_one, lambda a: ~elsewhere(a, steps)),
        complete(
            equal,
            same_equal,
            other_equal,
            lambda a: ~elsewhere(a, steps) & (played.action == played.action[a]),
        ),
        complete(two, same_two, other_two, lambda a: elsewhere(a, steps)),
    )


def _draw_at_matched_time(
    time: np.ndarray,
    anchor: np.ndarray,
    same: np.ndarray,
    accepts: Callable[[np.integer], np.ndarray],
    rng: np.random.Generator,
) -> np.ndarray:
    """Steps `[n]` as far from their anchors in time as `same`; -1 where there is none.

    Args:
      time: `[N]`, of all steps.
      anchor: `[n]`.
      same: `[n]`, -1 where an anchor has no such partner.
      accepts: the steps `[N] bool` that may be drawn for an anchor.
      rng: chooses uniformly.
    """
    result = np.full(len(anchor), NONE)
    for i in np.nonzero(same != NONE)[0]:
        distance = np.abs(time - time[anchor[i]])
        wanted = distance[same[i]]
        near = np.abs(distance - wanted) <= _MATCHED_WITHIN * wanted
        allowed = np.nonzero(near & accepts(anchor[i]))[0]
        if allowed.size:
            result[i] = rng.choice(allowed)
    return result


def sharing_a_group(
    group: np.ndarray, size: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Anchors `[size]` among the steps that share their group, and another step of the group."""
    candidates = np.nonzero(np.bincount(group)[group] > 1)[0]
    if not candidates.size:
        return np.zeros(size, np.int64), np.full(size, NONE)
    anchor = rng.choice(candidates, size)
    return anchor, _another_of(group, anchor, rng)


def _another_of(group: np.ndarray, anchor: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A uniform draw from the other steps of each anchor's group.

    If a group has no other step, the result is arbitrary. That happens only if `sharing_a_group`
    found no anchor, and then no pair uses the result.
    """
    order = np.argsort(group, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    first = np.searchsorted(group[order], group[anchor])
    others = np.bincount(group)[group[anchor]] - 1
    drawn = first + (rng.random(len(anchor)) * others).astype(np.int64)
    return order[np.minimum(drawn + (drawn >= place[anchor]), len(order) - 1)]


def _draw_until(
    draw: Callable[[], np.ndarray], accepts: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Draws all rows until each is accepted; -1 for a row that `_DRAWS` draws do not settle."""
    result = draw()
    accepted = accepts(result)
    for _ in range(_DRAWS - 1):
        if accepted.all():
            break
        again = draw()
        result = np.where(accepted, result, again)
        accepted = accepted | accepts(again)
    return np.where(accepted, result, NONE)


def compare(
    fleet: Fleet,
    params: types.TrainableParams,
    games: Sequence[Sequence[episodes.Episode]],
    drawn: np.ndarray,
) -> types.Comparison:
    """Compares anchors with their partners, n pairs at a time.

    Args:
      fleet: compares pairs.
      params: all trainable parameters, leading axis R.
      games: `[R][G]`, recorded games of each run.
      drawn: `[R, K, 1 + P, n]`, for K kinds of contrasts the anchors, then P partners of each;
        indices into `episodes.all_steps` of a run's games.

    Returns:
      Leading axes `[R, K, P, n]`.
    """
    observations = fleet.agent.observations
    steps = [episodes.all_steps(run_games) for run_games in games]

    def pairs_at(number: np.ndarray) -> types.Pairs:
        by_run = [
            episodes.pairs_at(played, episodes.Steps(*(x[n] for x in s)), observations)
            for played, s, n in zip(games, steps, number, strict=True)
        ]
        return jax.tree.map(lambda *runs: np.stack(runs), *by_run)

    kinds = []
    for kind in drawn.swapaxes(0, 1):
        anchor = pairs_at(kind[:, 0])
        compared = [
            fleet.compare(params, anchor, pairs_at(partner))
            for partner in kind[:, 1:].swapaxes(0, 1)
        ]
        kinds.append(jax.tree.map(lambda *partners: np.stack(partners, axis=1), *compared))
    return jax.tree.map(lambda *each: np.stack(each, axis=1), *kinds)
