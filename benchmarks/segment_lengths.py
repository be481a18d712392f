r"""Measures how long segments are on DMControl, with either choice of `segment_reward`.

    python -m benchmarks.segment_lengths
    python -m benchmarks.segment_lengths --trained=runs/state_sac-cheetah_run-0,runs/...

Actions are uniform or, with --trained, the mean actions of finished runs of `experiments.dmc`.
"""

import pathlib

import numpy as np
from absl import app, flags

from experiments import command_line
from rcrl_jax.envs import dmc
from rcrl_jax.replay import segment_table
from rcrl_jax.training import build, evaluation, trained

_TRAINED = flags.DEFINE_list("trained", None, "work directories of finished runs")
_EPISODES = flags.DEFINE_integer("episodes", 4, "episodes of each task or run", lower_bound=1)
_THRESHOLD = flags.DEFINE_float("threshold", 1.0, "reward that closes a segment", lower_bound=0.0)


def play_at_random(task: str, episodes: int) -> np.ndarray:
    """Rewards `[E, steps]` of one episode of every environment under uniform actions."""
    environment = dmc.make_dmc([task] * episodes, range(episodes), observation="state")
    rng = np.random.default_rng(0)
    try:
        environment.reset()
        rewards = [
            environment.step(
                rng.uniform(-1, 1, (episodes, dmc.MAX_NUM_ACTIONS)).astype(np.float32)
            ).reward
            for _ in range(dmc.TIME_LIMIT // dmc.DMC_TASKS[task].action_repeat)
        ]
    finally:
        environment.close()
    return np.stack(rewards, axis=1)


def play_trained(workdir: pathlib.Path, episodes: int) -> tuple[str, np.ndarray]:
    """The task of a finished run, and rewards `[E, steps]` of its agent's evaluation episodes.

    Raises:
      ValueError: `workdir` does not hold one finished run on DMControl.
    """
    found = trained.read(workdir)
    if len(found.runs) != 1 or not found.plan().paths[0].scores.exists():
        raise ValueError(f"--trained: {workdir} holds no finished run, or several")
    (run,) = found.runs
    if run.game not in dmc.DMC_TASKS:
        raise ValueError(f"--trained: {workdir} holds a run on {run.game}, no DMControl task")
    plan = found.plan()
    fleet, params = build.restore_agents(plan)
    rewards = []
    evaluation.evaluate(
        params,
        fleet,
        plan.make_environment,
        plan.total_steps,
        range(episodes),
        after_step=lambda observation, actions, outcome: rewards.append(outcome.reward),
    )
    return run.game, np.stack(rewards, axis=1)


def lengths(rewards: np.ndarray, threshold: float) -> np.ndarray:
    """`[pairs]`, the length of each pair's segment [agent steps].

    Args:
        rewards: `[E, steps]`, of one episode per row.
        threshold: a segment ends once its accumulated reward exceeds this.
    """
    episodes, steps = rewards.shape
    table = segment_table.SegmentTable(episodes, steps, segment_table.closes_above(threshold))
    numbers = [
        table.add(np.full(episodes, t), reward, np.full(episodes, t == steps - 1))
        for t, reward in enumerate(rewards.T)
    ]
    per_episode = [np.unique(own, return_counts=True)[1] for own in np.transpose(numbers)]
    return np.concatenate([np.repeat(own, own) for own in per_episode])


def line(task: str, rewards: np.ndarray) -> str:
    """One row of a table."""
    repeat = dmc.DMC_TASKS[task].action_repeat
    cells = [task, str(repeat), f"{rewards.sum(axis=1).mean():.0f}"]
    for summands in (1, repeat):  # 'sum', 'mean'
        own = lengths(rewards, summands * _THRESHOLD.value)
        cells += [f"{np.median(own):.0f}", f"{np.mean(1 / own):.2f}"]
    return "| " + " | ".join(cells) + " |"


def main(argv: list[str]) -> None:
    """Prints one line per task, or one per run."""
    del argv
    try:
        if _TRAINED.value is None:
            played = [(task, play_at_random(task, _EPISODES.value)) for task in dmc.DMC_TASKS]
        else:
            played = [play_trained(pathlib.Path(d), _EPISODES.value) for d in _TRAINED.value]
    except ValueError as error:
        command_line.refuse(str(error))
    print("task, action repeat, return; then, for segment_reward 'sum' and 'mean': median length")
    print("of a pair's segment, share of positives that are their anchor")
    for task, rewards in played:
        print(line(task, rewards))


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
