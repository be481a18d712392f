"""The comparison with other code bases, on stand-ins for them."""

import json
import os
import subprocess
import sys

from benchmarks import peer_process, peers

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


def test_a_peer_steps_as_often_as_it_is_told(tmp_path):
    for name, text in {**FAKE_CODE, "torch.py": FAKE_TORCH}.items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, peer_process.__file__, tmp_path, "pong"],
        input="7\n5\n", capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    ready, first, second = done.stdout.splitlines()[-3:]
    assert ready == "ready 0.0" and float(first) > 0 and float(second) > 0, done.stderr
    learning = peer_process.WARM_STEPS + 12
    steps = peer_process.ATARI_SETTINGS["learn_start"] - 1 + learning
    counts = json.loads((tmp_path / "counts").read_text())
    assert counts == {"train": 1, "reset_noise": steps, "act": steps, "learn": learning}


def test_ratios_are_taken_within_each_round():
    rates = {"kaixhin": [10.0, 20.0, 40.0], "erainbow": [30.0, 50.0, 120.0]}
    assert peers.ratios(rates) == {"erainbow / kaixhin": [3.0, 2.5, 3.0]}
    assert "erainbow / kaixhin          3.00 (2.50 to 3.00)" in peers.report(rates)
