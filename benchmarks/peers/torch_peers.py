"""Training of three code bases in PyTorch, for `process.py`.

`agent.py`, `env.py` and `memory.py` of Kaixhin/Rainbow or aravindsrinivas/curl_rainbow take agent
steps, each with an update; they also need ale_py and opencv. `curl_sac.py`, `encoder.py` and
`utils.py` of MishaLaskin/curl update SAC from a replay of noise. They use little of gym and
scikit-image, so neither is needed.
"""

import argparse
import functools
import pathlib
import random
import sys
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
GAME, CAPACITY = "pong", 100_000
# From the repository's script for cartpole_swingup, and the repository's defaults for the rest.
CONTROL_SETTINGS = {
    "hidden_dim": 1024, "discount": 0.99, "init_temperature": 0.1, "alpha_lr": 1e-4,
    "alpha_beta": 0.5, "actor_lr": 1e-3, "actor_beta": 0.9, "actor_log_std_min": -10,
    "actor_log_std_max": 2, "actor_update_freq": 2, "critic_lr": 1e-3, "critic_beta": 0.9,
    "critic_tau": 0.01, "critic_target_update_freq": 2, "encoder_type": "pixel",
    "encoder_feature_dim": 50, "encoder_lr": 1e-3, "encoder_tau": 0.05, "num_layers": 4,
    "num_filters": 32, "log_interval": 10**9, "detach_encoder": False, "curl_latent_dim": 128,
}  # fmt: skip
FRAMES, FILLED = (9, 100, 100), 1000  # pixels of a stack; transitions in the replay of noise
BATCH_SIZE = 128
WARM_STEPS, WARM_UPDATES = 21, 3  # before the clock starts


def atari_steps(directory: pathlib.Path):
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
    settings = argparse.Namespace(game=GAME, device=torch.device("cpu"), **ATARI_SETTINGS)
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


class Logger:
    """Keeps nothing."""

    def __getattr__(self, name):
        """Any method, which does nothing."""
        return lambda *arguments, **named: None


def stand_in_modules() -> None:
    """What the code imports of gym and scikit-image."""
    gym, skimage = types.ModuleType("gym"), types.ModuleType("skimage")
    gym.Wrapper = object
    shape = types.ModuleType("skimage.util.shape")
    shape.view_as_windows = np.lib.stride_tricks.sliding_window_view
    sys.modules["gym"], sys.modules["skimage"] = gym, skimage
    sys.modules["skimage.util"] = types.ModuleType("skimage.util")
    sys.modules["skimage.util.shape"] = shape


def control_updates(directory: pathlib.Path):
    """Updates SAC forever; yields after each update."""
    stand_in_modules()
    sys.path.insert(0, str(directory))
    import torch
    import utils
    from curl_sac import CurlSacAgent

    utils.set_seed_everywhere(0)
    device = torch.device("cpu")
    agent = CurlSacAgent(
        obs_shape=(9, 84, 84), action_shape=(1,), device=device, **CONTROL_SETTINGS
    )
    replay = utils.ReplayBuffer(
        obs_shape=FRAMES, action_shape=(1,), capacity=FILLED, batch_size=BATCH_SIZE,
        device=device, image_size=84,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    for _ in range(FILLED):
        pixels = rng.integers(0, 256, (2, *FRAMES), np.uint8)
        replay.add(pixels[0], rng.uniform(-1, 1, 1), rng.uniform(), pixels[1], False)
    step = 1
    while True:
        agent.update(replay, Logger(), step)
        step += 1
        yield


def _start(steps, warm: int, directory: pathlib.Path):
    """What `serve` takes, after the first updates; the programs of PyTorch are not counted."""
    training = steps(directory)

    def advance(count):
        for _ in range(count):
            next(training)

    advance(warm)
    import torch

    return torch.__version__, advance, lambda: None


START = {
    "kaixhin": functools.partial(_start, atari_steps, WARM_STEPS),
    "curl_rainbow": functools.partial(_start, atari_steps, WARM_STEPS),
    "curl_control": functools.partial(_start, control_updates, WARM_UPDATES),
}
