"""Steps another code base's training loop on command; `benchmarks.peers` starts this program.

    PYTHON benchmarks/peer_process.py DIRECTORY GAME

PYTHON has PyTorch, ale_py, opencv and what else the code in DIRECTORY imports; it needs nothing of
this project. DIRECTORY holds `agent.py`, `env.py` and `memory.py` as Kaixhin/Rainbow and
aravindsrinivas/curl_rainbow have them. Each line of standard input is a number of steps to take;
the answer is the seconds that they took. The first answer, "ready", comes after the first updates.
"""

import argparse
import pathlib
import random
import sys
import types

import ale_py
import ale_py.roms
import numpy as np

# Kaixhin/Rainbow's README names these for its data-efficient agent; they are the defaults of
# curl_rainbow.
SETTINGS = {
    "seed": 0, "max_episode_length": 108_000, "history_length": 4, "T_max": 100_000,
    "architecture": "data-efficient", "hidden_size": 256, "noisy_std": 0.1, "atoms": 51,
    "V_min": -10.0, "V_max": 10.0, "model": None, "priority_exponent": 0.5, "priority_weight": 0.4,
    "multi_step": 20, "discount": 0.99, "target_update": 2000, "reward_clip": 1,
    "learning_rate": 1e-4, "adam_eps": 1.5e-4, "batch_size": 32, "norm_clip": 10.0,
    "learn_start": 1600,
}  # fmt: skip
CAPACITY = 100_000
WARM_STEPS = 20  # learning steps before the clock starts


class Emulator(ale_py.ALEInterface):
    """ale_py under the interface of the package atari_py, which is no longer installable."""

    def act(self, action):
        """Plays an action of the minimal set, or a raw one by its number."""
        return super().act(ale_py.Action(int(action)))

    def getMinimalActionSet(self):  # noqa: N802 - the name of atari_py
        """The raw numbers of the game's actions."""
        return [int(action.value) for action in super().getMinimalActionSet()]


def steps(directory: pathlib.Path, game: str):
    """Trains forever; yields after each agent step whether the agent has learned in it."""
    stand_in = types.ModuleType("atari_py")
    stand_in.ALEInterface = Emulator
    stand_in.get_game_path = lambda name: str(ale_py.roms.get_rom_path(name))
    sys.modules["atari_py"] = stand_in
    sys.path.insert(0, str(directory))
    import torch
    from agent import Agent
    from env import Env
    from memory import ReplayMemory

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    settings = argparse.Namespace(game=game, device=torch.device("cpu"), **SETTINGS)
    env = Env(settings)
    env.train()
    agent = Agent(settings, env)
    agent.train()
    memory = ReplayMemory(settings, CAPACITY)
    annealed = (1 - settings.priority_weight) / (settings.T_max - settings.learn_start)
    step, done = 0, True
    while True:
        step += 1
        if done:
            state = env.reset()
        agent.reset_noise()
        action = agent.act(state)
        following, reward, done = env.step(action)
        memory.append(state, action, float(np.clip(reward, -1, 1)), done)
        learns = step >= settings.learn_start
        if learns:
            memory.priority_weight = min(memory.priority_weight + annealed, 1)
            agent.learn(memory)
            if hasattr(agent, "update_momentum_net"):
                agent.update_momentum_net()
            if step % settings.target_update == 0:
                agent.update_target_net()
        state = following
        yield learns


def main() -> None:
    """Answers one line for each line read."""
    training = steps(pathlib.Path(sys.argv[1]), sys.argv[2])
    while not next(training):
        pass
    for _ in range(WARM_STEPS):
        next(training)
    import peer_answers  # beside this script, which another Python runs

    peer_answers.answer(training)


if __name__ == "__main__":
    main()
