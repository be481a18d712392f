"""Parts of an experiment are built as its plan says: environments run by run."""

import numpy as np
import pytest

from rcrl_jax.config.presets import WORLD_MODEL_PRESETS, atari_presets
from rcrl_jax.envs import atari, dmc, pools
from rcrl_jax.runs.paths import RunId
from rcrl_jax.training import build

SEEDS = np.arange(8).reshape(4, 2)  # [R, E]: two games of two runs, two environments a run


def runs_of(*games):
    return [RunId(game, seed) for game in games for seed in (3, 4)]


@pytest.mark.parametrize(("preset", "repeat"), [("dreamer", 2), ("planet", 0), ("slac", 4)])
def test_control_environments_are_made_run_by_run_with_the_repeat_of_the_agent(
    monkeypatch, preset, repeat
):
    made = {}
    monkeypatch.setattr(
        dmc,
        "make_dmc",
        lambda tasks, seeds, **how: made.update(how, tasks=tasks, seeds=seeds.tolist()),
    )
    runs = runs_of("cheetah_run", "walker_walk")
    build.environment_maker(WORLD_MODEL_PRESETS[preset], runs, "dm_control")(SEEDS)
    assert made == {
        "tasks": ["cheetah_run"] * 4 + ["walker_walk"] * 4, "seeds": [*range(8)],
        "backend": "dm_control", "observation": "pixels", "render_size": 64,
        "action_repeat": repeat,
    }  # fmt: skip


def test_atari_environments_are_made_run_by_run(monkeypatch):
    made = []
    monkeypatch.setattr(
        atari, "make_atari", lambda game, seeds, **how: made.append((game, seeds.tolist(), how))
    )
    monkeypatch.setattr(pools, "ConcatenatedEnvironments", list)
    for preset in ("rcrl", "simple"):
        made.clear()
        config = atari_presets()[preset]
        build.environment_maker(config, runs_of("Pong", "Alien"), "ale")(SEEDS)
        how = {"backend": "ale", "screen": atari.Screen(config.frame_shape, config.most_noops)}
        assert made == [("Pong", [0, 1, 2, 3], how), ("Alien", [4, 5, 6, 7], how)]
    assert how["screen"] == atari.Screen((105, 80, 3), 32)
