"""Steps another code base's training on command; `benchmarks.peers` starts this program.

    PYTHON benchmarks/peer_process.py DIRECTORY GAME

PYTHON has PyTorch, ale_py, opencv and what else the code in DIRECTORY imports; it needs nothing of
this project. DIRECTORY holds `agent.py`, `env.py` and `memory.py` as Kaixhin/Rainbow and
aravindsrinivas/curl_rainbow have them. A step is an agent step with an update.

The first answer, "ready" and the version of PyTorch, comes after the first updates. Then each line
of standard input is a number of steps to take, and the answer the seconds that they took.
"""

import argparse
import pathlib
import random
import sys
import time
import types

import numpy as np

# Kaixhin/Rainbow's README names these for its data-efficient agent; they are the defaults of
# curl_rainbow.
ATARI_SETTINGS = {
    "seed": 0, "max_episode_length": 108_000, "history_length": 4, "T_max": 100_000,
    "architecture": "data-efficient", "hidden_size": 256, "noisy_std": 0.1, "atoms": 51,
    "V_min": -10.0, "V_max": 10.0, "model": None, "priority_exponent": 0.5, "priority_weight": 0.4,
    "multi_step": 20, "discount": 0.99, "target_update": 2000, "reward_clip": 1,
    "learning_rate": 1e-4, "adam_eps": 1.5e-4, "batch_size": 32, "norm_clip": 10.0,
    "learn_start": 1600,
}  # fmt: skip
CAPACITY = 100_000
WARM_STEPS = 21  # learning steps before the clock starts


def atari_steps(directory: pathlib.Path, game: str):
    """Trains on a game forever; yields after each agent step with an update."""
    import ale_py
    import ale_py.roms

    class Emulator(ale_py.ALEInterface):
        """ale_py under the interface of the package atari_py, which is no longer installable."""

        def act(self, action):
            return super().act(ale_py.Action(int(action)))

        def getMinimalActionSet(self):  # noqa: N802 - the name of atari_py
            return [int(action.value) for action in super().getMinimalActionSet()]

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
    settings = argparse.Namespace(game=game, device=torch.device("cpu"), **ATARI_SETTINGS)
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
        if step >= settings.learn_start:
            memory.priority_weight = min(memory.priority_weight + annealed, 1)
            agent.learn(memory)
            if hasattr(agent, "update_momentum_net"):
                agent.update_momentum_net()
            if step % settings.target_update == 0:
                agent.update_target_net()
            yield
        state = following


def main() -> None:
    """Answers one line for each line read."""
    directory, game = sys.argv[1:]
    training = atari_steps(pathlib.Path(directory), game)
    for _ in range(WARM_STEPS):
        next(training)
    import torch

    print(f"ready {torch.__version__}", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        for _ in range(int(line)):
            next(training)
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
