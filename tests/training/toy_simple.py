"""Catch in small colour frames, and a small SimPLe that trains on it."""

import numpy as np

from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.config import fields
from rcrl_jax.envs import catch
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training.plan import Plan
from tests.training import toy

HEIGHT, WIDTH = 14, 15
STEPS = 72  # three rounds of data
WORLD = {"filters": 8, "compress_steps": 2, "double_steps": 1}
SMALL = {
    "frame_height": HEIGHT,
    "frame_width": WIDTH,
    "frame_stack": 2,
    "rounds": 2,
    "round_steps": 24,
    "model_updates": 3,
    "first_model_factor": 2,
    "policy_updates": 1,
    "real_rollout": 12,
    "real_agents": 2,
    "model_rollout": 4,
    "model_agents": 3,
    "model_batch_size": 2,
    "minibatch_steps": 2,
    "passes": 2,
    "evaluation_period": 48,
    "periodic_episodes": 2,
    "policy_learning_rate": 1e-3,
    **{f"deterministic.{name}": value for name, value in WORLD.items()},
    **{f"stochastic.{name}": value for name, value in WORLD.items()},
    "deterministic.warmup": 4,
    "stochastic.warmup": 4,
    "stochastic.target_frames": 2,
    "stochastic.state_filters": 3,
    "stochastic.bits": 16,
    "stochastic.predictor_size": 4,
    "stochastic.ramp": 8,
}


class SmallCatch:
    """Catch, two pixels for ten, in three colours."""

    def __init__(self, seeds: np.ndarray):
        self._catch = catch.make_catch(seeds)
        self.spec = discrete_spec((HEIGHT, WIDTH, 3), 3)

    def __getattr__(self, name):
        return getattr(self._catch, name)

    def _small(self, step):
        grey = step.frame[:, :70:5, :70:5]  # [R, 14, 14]
        colours = np.stack([grey, grey // 2, np.full_like(grey, 7)], axis=-1)
        return step._replace(frame=np.pad(colours, ((0, 0), (0, 0), (0, 1), (0, 0))))

    def reset(self, mask=None):
        return self._small(self._catch.reset(mask))

    def send(self, actions):
        self._catch.send(actions)

    def recv(self):
        return self._small(self._catch.recv())


def make_config(model="deterministic", overrides=None) -> SimpleConfig:
    return fields.replace(SimpleConfig(), {**SMALL, "model": model, **(overrides or {})})


def make_environment(seeds):
    return SmallCatch(seeds.reshape(-1))


def make_plan(workdir, model="deterministic", seeds=(3,), overrides=None, **changes) -> Plan:
    changes = {"total_steps": STEPS, "make_environment": make_environment, **changes}
    settings = make_config(model, overrides)
    return toy.plan_of(workdir, "simple", settings, "Catch", seeds, **changes)
