"""Reach in frames of 64 x 64 pixels, and small agents with a world model that train on it."""

import numpy as np

from rcrl_jax.config import fields, presets
from rcrl_jax.config.world_models import WorldModelConfig
from rcrl_jax.envs.protocol import control_spec
from rcrl_jax.training.plan import Plan
from tests.training import toy, toy_control

STEPS, REPEAT = 84, 2
SMALL = {
    "return_contrast.discriminator_hidden": 16,
    "return_contrast.batch_size": 4,
    "batch_size": 3,
    "learn_start": 40,  # two episodes
    "update_period": 20,  # one
    "updates": 3,
    "replay.capacity": 60,  # the ring wraps before the last step
    "evaluation_period": 100,
    "periodic_episodes": 2,
}
SMALL_RECURRENT = {
    "filters": 2,
    "deter_size": 6,
    "stoch_size": 3,
    "hidden_size": 5,
    "head_size": 6,
    "sequence_length": 4,
    "context": 3,
    "first_updates": 4,
    "horizon": 3,
    "free_nats": 0.0,  # the prior learns from the first update on
}
SMALL_SLAC = {
    "filters": 1,
    "z1_size": 3,
    "z2_size": 4,
    "hidden_size": 5,
    "sequence_length": 3,
    "model_batch_size": 2,
    "pretraining_updates": 3,
    "updates": 1,
    "update_period": 4,  # two agent steps
}
SMALL_PRESETS = {
    "dreamer": SMALL_RECURRENT | {"mode_samples": 5},
    "dreamer_rcrl": SMALL_RECURRENT | {"mode_samples": 5},
    "planet": SMALL_RECURRENT | {"iterations": 2, "candidates": 8, "best_candidates": 3},
    "slac": SMALL_SLAC,
}


class LargeReach(toy_control.Reach):
    """Reach, three pixels for one."""

    def __init__(self, seeds: np.ndarray, own):
        super().__init__(seeds, own, "pixels")
        self.spec = control_spec((64, 64, 3), toy_control.MAX_NUM_ACTIONS, action_repeat=REPEAT)

    def _frame(self):
        large = super()._frame().repeat(3, axis=1).repeat(3, axis=2)
        return np.pad(large, ((0, 0), (2, 2), (2, 2), (0, 0)))


def make_config(preset: str, overrides=None) -> WorldModelConfig:
    changes = {**SMALL, **SMALL_PRESETS[preset], **(overrides or {})}
    return fields.replace(presets.WORLD_MODEL_PRESETS[preset], changes)


def make_plan(workdir, preset, own=(2,), seeds=(3,), overrides=None, **changes) -> Plan:
    """A plan on Reach for runs with `own` action components each."""

    def make_environment(environment_seeds):
        episodes = environment_seeds.shape[1]
        return LargeReach(environment_seeds.reshape(-1), np.repeat(own, episodes))

    changes = {"total_steps": STEPS, "make_environment": make_environment, **changes}
    settings = make_config(preset, overrides)
    return toy.plan_of(workdir, preset, settings, "reach", seeds, **changes)
