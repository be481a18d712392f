"""Reach, a control task small enough for tests: pixels or state, actions of one to three numbers.

A dot is moved along a line towards a mark; the reward of a step is one less the distance. Only the
first component of an action moves the dot. Episodes are cut after ten steps and never terminate.
"""

import sys

import numpy as np

from rcrl_jax import counter_random
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.envs.protocol import TimeStep, VectorEnvironment, after_reset, control_spec
from rcrl_jax.training import experiment
from rcrl_jax.training.plan import Plan
from tests.training import toy

STEPS, MAX_NUM_ACTIONS, EPISODE, STATE_SIZE = 200, 3, 10, 24
SIZE, CROP = 20, 17  # pixels; four convolutions leave 2 x 2
SMALL = {
    "render_size": SIZE,
    "crop_size": CROP,
    "filters": 4,
    "embedding_size": 6,
    "hidden_size": 16,
    "return_contrast.discriminator_hidden": 16,
    "batch_size": 8,
    "return_contrast.batch_size": 4,
    "learn_start": 20,
    "replay.capacity": 80,  # the ring wraps before the last step
    "evaluation_period": 160,
    "periodic_episodes": 2,
}


class Reach(VectorEnvironment):
    """R games of Reach; `own[r]` is the number of components of run r's actions."""

    def __init__(self, seeds: np.ndarray, own, observation: str):
        self.num_envs = len(seeds)
        pixels = observation == "pixels"
        shape = (SIZE, SIZE, 3) if pixels else (STATE_SIZE,)
        self.spec = control_spec(shape, MAX_NUM_ACTIONS, action_repeat=2)
        self.num_valid_actions = np.array(own, np.int32)
        self.description = {"backend": "reach", "observation": observation}
        self._pixels, self._seeds = pixels, seeds
        self._episodes = np.zeros(self.num_envs, np.int64)
        self._dot, self._mark = np.zeros(self.num_envs), np.zeros(self.num_envs)
        self._time = np.zeros(self.num_envs, int)
        self._last = None

    def reset(self, mask=None):
        mask = np.ones(self.num_envs, bool) if mask is None else mask
        places = counter_random.uniform(self._seeds, 0, self._episodes, 2)
        self._dot[mask], self._mark[mask] = places[mask].T
        self._episodes[mask] += 1
        self._time[mask] = 0
        lives = np.zeros(self.num_envs, np.int32)
        self._last = after_reset(self._last, mask, self._frame()[mask], lives[mask])
        return self._last

    def send(self, actions):
        assert actions.shape == (self.num_envs, MAX_NUM_ACTIONS) and actions.dtype == np.float32
        absent = np.arange(MAX_NUM_ACTIONS) >= self.num_valid_actions[:, None]
        assert not actions[absent].any() and np.all(np.abs(actions) <= 1)
        self._dot = np.clip(self._dot + 0.25 * actions[:, 0], 0.0, 1.0)
        self._time += 1
        never = np.zeros(self.num_envs, bool)
        reward = 1.0 - np.abs(self._dot - self._mark)
        self._last = TimeStep(
            self._frame(), reward.astype(np.float32), never.astype(np.int32), never,
            self._time == EPISODE,
        )  # fmt: skip

    def recv(self):
        return self._last

    def close(self):
        pass

    def _frame(self):
        if not self._pixels:
            state = np.zeros((self.num_envs, *self.spec.frame.shape), np.float32)
            state[:, 0], state[:, 1] = self._dot, self._mark
            return state
        frame = np.zeros((self.num_envs, SIZE, SIZE, 3), np.uint8)
        rows = np.arange(self.num_envs)
        for channel, place, top in ((0, self._dot, 4), (1, self._mark, 10)):
            column = (3 + place * (SIZE - 9)).astype(int)  # in every crop
            for y in range(5):
                for x in range(3):
                    frame[rows, top + y, column + x, channel] = 255
        return frame


def make_config(preset: str, overrides=None, **changes) -> SacConfig:
    """A small preset; `overrides` are for fields of groups, whose names have a dot."""
    changes = {**SMALL, **(overrides or {}), **changes}
    return fields.replace(presets.DMC_PRESETS[preset], changes)


def make_reach(own, observation):
    """An environment maker for runs with `own [R]` action components each."""

    def make(seeds):
        runs, episodes = seeds.shape
        assert runs == len(own)
        return Reach(seeds.reshape(-1), np.repeat(own, episodes), observation)

    return make


def make_plan(workdir, preset, own=(2,), seeds=(3,), overrides=None, **changes) -> Plan:
    settings = make_config(preset, overrides)
    changes = {
        "total_steps": STEPS,
        "make_environment": make_reach(own, settings.observation),
        **changes,
    }
    return toy.plan_of(workdir, preset, settings, "reach", seeds, **changes)


if __name__ == "__main__":
    seeds = tuple(map(int, sys.argv[2:]))
    experiment.run(make_plan(sys.argv[1], "rcrl_sac", own=(2,) * len(seeds), seeds=seeds))
