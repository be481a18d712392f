"""The comparison with other code bases, on stand-ins for them."""

import json
import sys
import textwrap

import pytest

from benchmarks.peers import jax_peers, measure, ours, torch_peers
from benchmarks.peers.measure import Measured, Pair, Took
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


def start(name, directory) -> measure.Process:
    """Starts the peers' program on the code in a directory."""
    command = measure.peer_command(name, sys.executable, str(directory))
    return measure.Process(
        name, ["env", "-C", directory, f"PYTHONPATH={directory}", *map(str, command)]
    )


def step_twelve_times(name, code, directory) -> None:
    """Runs the peers' program on fake code, and checks its answers."""
    for part, text in {**code, "torch.py": FAKE_TORCH}.items():
        (directory / part).write_text(text)
    peer = start(name, directory)
    assert peer.version == "0.0" and peer.flop() is None
    for count in (7, 5):
        took = peer.advance(count)
        assert took.wall_s > 0 and took.cpu_s > 0
    peer._process.communicate()  # ends its input, so that the fake code writes what it counted


def test_a_peer_steps_as_often_as_it_is_told(tmp_path):
    step_twelve_times("kaixhin", FAKE_CODE, tmp_path)
    learning = torch_peers.WARM_STEPS + 12
    steps = torch_peers.ATARI_SETTINGS["learn_start"] - 1 + learning
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
        assert (obs_shape, batch_size, image_size) == ((9, 100, 100), 128, 84)
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
    step_twelve_times("curl_control", FAKE_CONTROL, tmp_path)
    updates = torch_peers.WARM_UPDATES + 12
    assert json.loads((tmp_path / "steps").read_text()) == list(range(1, updates + 1))


def test_a_peer_that_ends_is_named(tmp_path):
    with pytest.raises(measure.PeerFailed, match="cleanrl has ended with exit code 1"):
        start("cleanrl", tmp_path)


# Of jaxrl: the update is one product of [128, 5] by [5, 3], and one by [3, 3] twice.
FAKE_JAXRL = """
import functools, gym, jax, jax.numpy as jnp, types
from jaxrl.datasets import Batch
assert jax.tree_multimap is jax.tree.map and gym.Wrapper
@functools.partial(jax.jit, static_argnums=2)
def _update_jit(weights, pixels, first):
    assert first
    out = pixels[:, 0, 0, :5].astype(jnp.float32) @ weights
    for _ in range(2):
        out = out @ jnp.ones((3, 3))
    return weights + out.sum()
class DrQLearner:
    def __init__(self, seed, observation, action):
        assert observation.shape == (1, 84, 84, 9) and action.shape == (1, 6)
        self.weights = jnp.zeros((5, 3))
        self.actor = self.critic = types.SimpleNamespace(params=self.weights)
    def update(self, batch):
        assert batch.masks.min() == batch.masks.max() == 1
        self.weights = _update_jit(self.weights, batch.observations, True)
"""


def test_flop_of_a_peer_in_jax_are_those_of_its_update_s_products(tmp_path):
    learner = tmp_path / "jaxrl" / "agents" / "drq" / "drq_learner.py"
    learner.parent.mkdir(parents=True)
    learner.write_text(FAKE_JAXRL)
    (tmp_path / "jaxrl" / "datasets.py").write_text(
        "import collections, gym.spaces, d4rl\nBatch = collections.namedtuple('Batch', "
        "'observations actions rewards masks next_observations')\n"
    )
    peer = start("jaxrl_drq", tmp_path)
    assert peer.flop() == 2 * 128 * (5 * 3 + 2 * 3 * 3)
    assert peer.advance(2).wall_s > 0
    peer.end()


def test_only_dopamine_s_orphaned_lines_are_left_out():
    source = textwrap.dedent(
        """
        NAMES = 1


          if not destination_dir:
            return
          for rom in roms:
            try:
              copy(rom)
            except OSError:
              continue


        @gin.configurable
        def create():
          if not destination_dir:
            return 2
        """
    )
    kept = jax_peers.without_orphan(source)
    compile(kept, "atari_lib", "exec")
    assert kept.startswith("\nNAMES = 1\n") and "roms" not in kept
    assert kept[kept.index("@gin") :] == source[source.index("@gin") :]


def test_every_program_of_a_pair_can_be_started():
    peers = {**torch_peers.START, **jax_peers.START}
    assert {pair.theirs for pair in measure.PAIRS} == set(peers)
    assert {pair.ours for pair in measure.PAIRS} == set(ours.START)


def test_programs_that_are_compared_are_measured_together():
    kinds = [
        {name for pair in group for name in pair[:2]}
        for group in measure.groups(["kaixhin", "dopamine_der", "dopamine_drq", "jaxrl_sac"])
    ]
    rainbow = {"erainbow", "rainbow_der", "der_plus"}
    theirs = {"kaixhin", "dopamine_der", "dopamine_drq"}
    assert kinds == [rainbow | theirs, {"state_sac", "jaxrl_sac"}]


def test_our_updates_of_sac_are_timed(monkeypatch):
    small = fields.replace(
        presets.DMC_PRESETS["curl_sac"], {"filters": 4, "hidden_size": 8, "embedding_size": 4}
    )
    monkeypatch.setitem(presets.DMC_PRESETS, "curl_sac", small)
    monkeypatch.setattr(ours, "_FILLED", 20)
    advance, program = ours.sac_updates("curl_sac", {"batch_size": 4}, "cartpole_swingup")
    advance(2)
    text, known = program()
    assert text.startswith("HloModule") and list(known.values()) == [ours._WARM_UPDATES + 2]


def test_turns_of_our_replay_add_and_sample(monkeypatch):
    monkeypatch.setattr(ours, "_REPLAY_CAPACITY", 200)
    advance, program = ours.replay_turns("erainbow", 2)
    advance(2)
    assert program() is None


class Steady:
    """A program that takes a tenth of a second a step."""

    version = "0.0"

    def __init__(self):
        self.asked = []

    def flop(self):
        """Of an update."""
        return 3 * 10**9

    def advance(self, count):
        """Takes no step."""
        self.asked.append(count)
        return Took(count / 10, count / 20)


def test_programs_take_turns_of_about_the_same_length():
    programs = {"ours": Steady(), "theirs": Steady()}
    measured = measure.in_turns(programs, rounds=2, steps=None, seconds=3.0)
    assert programs["ours"].asked == [1, 30, 30]
    assert measured["theirs"] == Measured("0.0", 3.0, 30, [Took(3.0, 1.5)] * 2)
    measure.in_turns(programs, rounds=1, steps=4, seconds=3.0)
    assert programs["ours"].asked == [1, 30, 30, 4]


def test_ratios_are_taken_within_each_round():
    pair = Pair("erainbow", "dopamine_der", measure.STEP)
    measured = {
        "erainbow": Measured("0.0", 0.5, 10, [Took(0.1, 0.1), Took(0.2, 0.1)]),
        "dopamine_der": Measured("0.0", 4.0, 2, [Took(0.2, 0.1), Took(0.2, 0.12)]),
    }
    assert measure.ratios(measured, pair) == {
        "wall": pytest.approx([10, 5]),
        "cpu": pytest.approx([5, 6]),
        "per_flop": pytest.approx([5 / 8, 6 / 8]),
    }
    printed = measure.report(measured, [pair])
    assert "| 15 (10 to 20) | 10 (10 to 10) | 0.500 | 50 |" in printed
    assert "| 7.5 (5 to 10) | 5.5 (5 to 6) | 0.688 (0.625 to 0.75) |" in printed


def test_there_is_no_ratio_per_flop_where_flop_are_unknown():
    measured = {
        "erainbow": Measured("0.0", 0.5, 1, [Took(1, 1)]),
        "kaixhin": Measured("0.0", None, 1, [Took(4, 4)]),
    }
    pair = Pair("erainbow", "kaixhin", measure.STEP)
    assert measure.ratios(measured, pair) == {"wall": [4], "cpu": [4]}
    assert "| 4 (4 to 4) | 4 (4 to 4) | – |" in measure.report(measured, [pair])
