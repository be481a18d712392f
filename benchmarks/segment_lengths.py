r"""Measures how long segments are on DMControl under a random policy, at both units of reward.

    python -m benchmarks.segment_lengths

A trained policy's lengths are in its run's metrics.jsonl: segment_length_p50, positive_is_anchor.
"""

import numpy as np
from absl import app, flags

from rcrl_jax.envs import dmc
from rcrl_jax.replay import segments

_EPISODES = flags.DEFINE_integer("episodes", 4, "episodes of each task", lower_bound=1)
_THRESHOLD = flags.DEFINE_float("threshold", 1.0, "reward that closes a segment", lower_bound=0.0)


def play(task: str, episodes: int) -> np.ndarray:
    """Rewards `[E, steps]` of one episode of every environment under uniform actions."""
    environment = dmc.make_dmc([task] * episodes, range(episodes), observation="state")
    rng = np.random.default_rng(0)
    try:
        environment.reset()
        rewards = [
            environment.step(
                rng.uniform(-1, 1, (episodes, dmc.ACTION_ROOM)).astype(np.float32)
            ).reward
            for _ in range(dmc.TIME_LIMIT // dmc.DMC_TASKS[task].action_repeat)
        ]
    finally:
        environment.close()
    return np.stack(rewards, axis=1)


def lengths(rewards: np.ndarray, threshold: float) -> np.ndarray:
    """`[pairs]`, the length of every pair's own segment."""
    episodes, steps = rewards.shape
    table = segments.SegmentTable(episodes, steps, segments.closes_above(threshold))
    numbers = [
        table.add(np.full(episodes, t), reward, np.full(episodes, t == steps - 1))
        for t, reward in enumerate(rewards.T)
    ]
    per_episode = [np.unique(own, return_counts=True)[1] for own in np.transpose(numbers)]
    return np.concatenate([np.repeat(own, own) for own in per_episode])


def main(argv: list[str]) -> None:
    """Prints one line a task."""
    del argv
    print("task, action repeat, return; then, by agent step and by environment step: median length")
    print("of a pair's segment, share of positives that are their anchor")
    for name, task in dmc.DMC_TASKS.items():
        rewards = play(name, _EPISODES.value)
        cells = [name, str(task.action_repeat), f"{rewards.sum(axis=1).mean():.0f}"]
        for unit in (1, task.action_repeat):
            own = lengths(rewards, unit * _THRESHOLD.value)
            cells += [f"{np.median(own):.0f}", f"{np.mean(1 / own):.2f}"]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    app.run(main)
