"""Trains Kaixhin/Rainbow's data-efficient agent, and measures how much its noise explores.

    PYTHON benchmarks/peer_exploration.py DIRECTORY GAME SEED STEPS OUTPUT.json

PYTHON and DIRECTORY are those of `peer_process.py`. The trained agent plays 2,000 steps with noise.
`experiments/exploration.py` says what is measured.
"""

import inspect
import json
import pathlib
import sys

import numpy as np
import peer_process

DRAWS, PLAYED = 10, 2000


def main() -> None:
    """Trains, plays, writes."""
    directory, game, seed, steps, output = sys.argv[1:]
    peer_process.ATARI_SETTINGS["seed"] = int(seed)
    training = peer_process.atari_steps(pathlib.Path(directory), game)
    for _ in training:
        inside = inspect.getgeneratorlocals(training)
        if inside["step"] == int(steps):
            break
    env, agent = inside["env"], inside["agent"]
    changed, taken, done = 0, np.zeros(env.action_space(), int), True
    for _ in range(PLAYED):
        if done:
            state = env.reset()
        agent.eval()
        best = agent.act(state)
        agent.train()
        for _ in range(DRAWS):
            agent.reset_noise()
            changed += agent.act(state) != best
        agent.reset_noise()
        action = agent.act(state)
        taken[action] += 1
        state, _, done = env.step(action)
    found = {
        "code": "Kaixhin/Rainbow",
        "game": game,
        "seed": int(seed),
        "agent_steps": int(steps),
        "states": PLAYED,
        "changed": changed / PLAYED / DRAWS,
        "most_frequent": taken.max() / PLAYED,
    }
    pathlib.Path(output).write_text(json.dumps(found, indent=2))
    print(found)


if __name__ == "__main__":
    main()
