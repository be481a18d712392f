"""The comparison with other code bases, on stand-ins for them."""

import json
import os
import subprocess
import sys

from benchmarks import peer_process, peers
from rcrl_jax.config import fields, presets

FAKE_TORCH = "__version__ = '0.0'\ndef manual_seed(seed): pass\ndef device(name): return name\n"
# Each part prints what is asked of it, with the number of the step.
FAKE_CODE = {
    "agent.py": """
import atexit, json
class Agent:
    counts = {}
    def __init__(self, settings, env):
        assert settings.game == 'pong' and env.training
        atexit.register(lambda: json.dump(self.counts, open('counts', 'w')))
    def __getattr__(self, name):
        if name == 'update_momentum_net':
            raise AttributeError(name)
        def count(*arguments):
            self.counts[name] = self.counts.get(name, 0) + 1
            return 3
        return count
""",
    "env.py": """
import atari_py
class Env:
    def __init__(self, settings):
        self.ale = atari_py.ALEInterface()
        self.ale.loadROM(atari_py.get_game_path(settings.game))
        self.actions = self.ale.getMinimalActionSet()
        assert self.actions == [0, 1, 3, 4, 11, 12]
    def train(self):
        self.training = True
    def reset(self):
        self.ale.reset_game()
        return 0
    def step(self, action):
        reward = self.ale.act(self.actions[action])
        return 0, reward, self.ale.game_over()
""",
    "memory.py": """
class ReplayMemory:
    priority_weight = 0.4
    def __init__(self, settings, capacity):
        assert capacity == 100_000
    def append(self, state, action, reward, done):
        assert -1 <= reward <= 1
""",
}


def step_twelve_times(code, directory, argument) -> None:
    """Runs the peers' program on fake code, and checks its answers."""
    for name, text in {**code, "torch.py": FAKE_TORCH}.items():
        (directory / name).write_text(text)
    done = subprocess.run(
        [sys.executable, peer_process.__file__, directory, argument],
        input="7\n5\n", capture_output=True, text=True, cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory)},
    )  # fmt: skip
    ready, first, second = done.stdout.splitlines()[-3:]
    assert ready == "ready 0.0" and float(first) > 0 and float(second) > 0, done.stderr


def test_a_peer_steps_as_often_as_it_is_told(tmp_path):
    step_twelve_times(FAKE_CODE, tmp_path, "pong")
    learning = peer_process.WARM_STEPS + 12
    steps = peer_process.ATARI_SETTINGS["learn_start"] - 1 + learning
    counts = json.loads((tmp_path / "counts").read_text())
    assert counts == {"train": 1, "reset_noise": steps, "act": steps, "learn": learning}


FAKE_CONTROL = {
    "encoder.py": "",
    "utils.py": """
import gym, numpy as np
from skimage.util.shape import view_as_windows
class FrameStack(gym.Wrapper): pass
def set_seed_everywhere(seed): pass
class ReplayBuffer:
    added = 0
    def __init__(self, obs_shape, action_shape, capacity, batch_size, device, image_size):
        assert (obs_shape, batch_size, image_size) == ((9, 100, 100), 12, 84)
        images = np.arange(2 * 5 * 5 * 3).reshape(2, 5, 5, 3)
        windows = view_as_windows(images, (1, 4, 4, 1))[..., 0, :, :, 0]
        assert (windows[1, 1, 0, 2] == images[1, 1:, :4, 2]).all()
    def add(self, obs, action, reward, next_obs, done):
        assert obs.shape == next_obs.shape == (9, 100, 100) and (obs != next_obs).any()
        self.added += 1
""",
    "curl_sac.py": """
import atexit, json, utils
class CurlSacAgent:
    steps = []
    def __init__(self, obs_shape, action_shape, device, **settings):
        assert settings['encoder_tau'] == 0.05
        atexit.register(lambda: json.dump(self.steps, open('steps', 'w')))
    def update(self, replay, log, step):
        assert replay.added == 1000 and step % 10**9
        log.anything('x', 1, step)
        self.steps.append(step)
""",
}


def test_a_peer_of_sac_updates_as_often_as_it_is_told(tmp_path):
    step_twelve_times(FAKE_CONTROL, tmp_path, "12")
    updates = peer_process.WARM_UPDATES + 12
    assert json.loads((tmp_path / "steps").read_text()) == list(range(1, updates + 1))


def test_our_updates_of_sac_are_timed(monkeypatch):
    small = fields.replace(
        presets.DMC_PRESETS["curl_sac"], {"filters": 4, "hidden_size": 8, "embedding_size": 4}
    )
    monkeypatch.setitem(presets.DMC_PRESETS, "curl_sac", small)
    monkeypatch.setattr(peers, "_FILLED", 20)
    monkeypatch.setattr(peers, "_BATCH_SIZE", 4)
    assert peers.our_updates("curl_sac")(2) > 0


def test_ratios_are_taken_within_each_round():
    rates = {"kaixhin": [10.0, 20.0, 40.0], "erainbow": [30.0, 50.0, 120.0]}
    assert peers.ratios(rates) == {"erainbow / kaixhin": [3.0, 2.5, 3.0]}
    assert "erainbow / kaixhin          3.00 (2.50 to 3.00)" in peers.report(rates)
