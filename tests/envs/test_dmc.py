"""The suite's tasks through worker processes, against dm_control used directly."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np
import pytest

from rcrl_jax.envs import dmc, dmc_worker

REPEAT = {name: task.action_repeat for name, task in dmc.DMC_TASKS.items()}


def load(task, seed):
    from dm_control import suite

    return suite.load(
        dmc.DMC_TASKS[task].domain, dmc.DMC_TASKS[task].task, task_kwargs={"random": seed}
    )


def random_actions(rng, runs):
    return rng.uniform(-1, 1, (runs, dmc.ACTION_ROOM)).astype(np.float32)


@pytest.fixture
def make():
    """Makes vectors and ends their processes after the test."""
    made = []

    def make(*arguments, **options):
        made.append(dmc.make_dmc(*arguments, **options))
        return made[-1]

    yield make
    for environment in made:
        environment.close()


def test_the_table_of_tasks_is_the_suite_s_and_the_repeats_are_curl_s():
    assert REPEAT == {
        "finger_spin": 2, "walker_walk": 2, "cartpole_swingup": 8,
        "reacher_easy": 4, "cheetah_run": 4, "ball_in_cup_catch": 4,
    }  # fmt: skip
    for name, task in dmc.DMC_TASKS.items():
        environment = load(name, 0)
        spec = environment.action_spec()
        assert spec.shape == (task.num_actions,)
        assert np.all(spec.minimum == -1) and np.all(spec.maximum == 1)
        sizes = [np.prod(part.shape, dtype=int) for part in environment.observation_spec().values()]
        assert sum(sizes) == task.state_size
        assert environment._step_limit == dmc.TIME_LIMIT
    assert (dmc.ACTION_ROOM, dmc.STATE_ROOM) == (6, 24)


def test_states_rewards_and_limits_are_those_of_the_suite(make):
    """A whole episode of every task, and the start of the next one."""
    tasks = list(dmc.DMC_TASKS)
    environment = make(tasks, range(10, 16), observation="state", num_workers=2)
    assert environment.spec == ((24,), 6, np.float32)
    assert environment.num_actions_per_env.tolist() == [
        dmc.DMC_TASKS[task].num_actions for task in tasks
    ]
    direct = [load(task, 10 + r) for r, task in enumerate(tasks)]
    own = [dmc.DMC_TASKS[task] for task in tasks]

    def state(time_step):
        parts = [np.ravel(part) for part in time_step.observation.values()]
        vector = np.concatenate(parts)
        return np.concatenate([vector, np.zeros(24 - vector.size)]).astype(np.float32)

    first = environment.reset()
    time_steps = [each.reset() for each in direct]
    np.testing.assert_array_equal(first.frame, [state(time_step) for time_step in time_steps])
    rng, ended = np.random.default_rng(0), np.zeros(6, int)
    for step in range(1, 502):
        actions = random_actions(rng, 6)
        result = environment.step(actions)
        for r, each in enumerate(direct):
            reward = 0.0
            for _ in range(own[r].action_repeat):
                time_steps[r] = each.step(actions[r, : own[r].num_actions])
                reward += time_steps[r].reward
            np.testing.assert_array_equal(result.frame[r], state(time_steps[r]))
            assert result.reward[r] == np.float32(reward)
            assert result.truncated[r] == time_steps[r].last()
        assert not result.terminated.any()
        mask = result.truncated
        ended[mask] += 1
        # 1000 environment steps, in agent steps
        assert mask.tolist() == [step % (1000 // task.action_repeat) == 0 for task in own]
        if mask.any():
            first = environment.reset(mask)
            for r in np.nonzero(mask)[0]:
                time_steps[r] = direct[r].reset()
                np.testing.assert_array_equal(first.frame[r], state(time_steps[r]))
            np.testing.assert_array_equal(first.frame[~mask], result.frame[~mask])
            assert not first.reward.any()
    assert ended.tolist() == [501 * task.action_repeat // 1000 for task in own]


def test_an_environment_depends_on_its_seed_and_actions_alone(make):
    def play(tasks, seeds, row, **options):
        environment = make(tasks, seeds, observation="state", **options)
        rng = np.random.default_rng(0)
        frames = [environment.reset().frame[row]]
        for _ in range(20):
            actions = random_actions(rng, 1).repeat(len(tasks), axis=0)
            frames.append(environment.step(actions).frame[row])
        return np.stack(frames)

    alone = play(["cheetah_run"], [7], 0)
    company = ["walker_walk", "cheetah_run", "cheetah_run"]
    np.testing.assert_array_equal(alone, play(company, [1, 7, 8], 1, num_workers=1))
    np.testing.assert_array_equal(alone, play(company, [1, 7, 8], 1, num_workers=3))
    assert np.any(alone[0] != play(company, [1, 7, 8], 2, num_workers=2)[0])


def test_frames_are_camera_0_of_the_suite_and_belong_to_the_caller(make, renderer):
    """A random stretch of a real task, rendered here and there."""
    environment = make(["cheetah_run", "cartpole_swingup"], [3, 4], render_size=40, num_workers=1)
    assert environment.spec == ((40, 40, 3), 6, np.uint8)
    first = environment.reset()
    kept = first.frame.copy()
    rng = np.random.default_rng(0)
    actions = [random_actions(rng, 2) for _ in range(5)]
    steps = [environment.step(action) for action in actions]
    np.testing.assert_array_equal(first.frame, kept)  # not written over by later steps
    assert all(np.any(step.frame[0] != kept[0]) for step in steps)

    script = """
import sys, numpy as np
from dm_control import suite
environment = suite.load("cheetah", "run", task_kwargs={"random": 3})
actions = np.load(sys.argv[1])
environment.reset()
frames = [environment.physics.render(height=40, width=40, camera_id=0)]
for action in actions:
    for _ in range(4):
        environment.step(action)
    frames.append(environment.physics.render(height=40, width=40, camera_id=0))
np.save(sys.argv[1], np.stack(frames))
"""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, np.stack(actions)[:, 0])
        subprocess.run(
            [sys.executable, "-c", script, file.name], check=True,
            env={**os.environ, "MUJOCO_GL": renderer},
        )  # fmt: skip
        direct = np.load(file.name)
    np.testing.assert_array_equal(direct, [kept[0], *(step.frame[0] for step in steps)])


def test_description(make):
    description = make(["cheetah_run"], [0], observation="state").description
    assert description["backend"] == "dm_control" and description["renderer"] == "disabled"
    assert description["physics"].startswith("MuJoCo ")
    assert description["pools"] == [{"task": "cheetah_run", "action_repeat": 4, "num_envs": 1}]


# --- mistakes and accidents -------------------------------------------------------------------


@pytest.mark.parametrize(
    "tasks, seeds, options, message",
    [
        (["cheeta_run"], [0], {}, "unknown task 'cheeta_run': did you mean cheetah_run"),
        (["zzz"], [0], {}, "choose from finger_spin"),
        (["cheetah_run"], [-1], {}, "seeds must be in"),
        (["cheetah_run"], [1, 2], {}, "2 seeds for 1 tasks"),
        (["cheetah_run"], [0], {"observation": "smell"}, "pixels or state"),
    ],
)
def test_bad_arguments_are_refused(tasks, seeds, options, message):
    with pytest.raises(ValueError, match=message):
        dmc.make_dmc(tasks, seeds, **options)


def test_bad_actions_are_refused(make):
    environment = make(["cheetah_run"], [0], observation="state")
    environment.reset()
    with pytest.raises(ValueError, match="shape"):
        environment.send(np.zeros((1, 2), np.float32))
    for bad in (1.1, np.nan):
        with pytest.raises(ValueError, match=r"\[-1, 1\]"):
            environment.send(np.full((1, 6), bad, np.float32))


def test_without_a_renderer_the_message_names_the_packages(monkeypatch):
    monkeypatch.setenv("MUJOCO_GL", "nonsense")
    with pytest.raises(dmc.RendererUnavailable, match="libegl1.*libosmesa6") as refusal:
        dmc.find_renderer.__wrapped__()
    assert "\n" not in str(refusal.value)


def test_a_worker_that_fails_or_is_gone_is_an_error_not_a_hang(make):
    environment = make(["cheetah_run"], [0], observation="state")
    environment.reset()
    worker = _children()[-1]
    os.kill(worker, signal.SIGKILL)
    with pytest.raises((RuntimeError, BrokenPipeError)):
        environment.step(np.zeros((1, 6), np.float32))
    failing = make(["cheetah_run"], [0], observation="state")
    failing._arrays.restart[:] = 0
    failing._connections[0].send("step")  # before any reset
    with pytest.raises(RuntimeError, match="a simulator failed"):
        failing.recv()


def test_workers_end_with_their_vector_and_outlive_signals_to_the_group(make):
    environment = make(["cheetah_run"] * 2, [0, 1], observation="state", num_workers=2)
    environment.reset()
    workers = _children()[-2:]
    for worker in workers:
        os.kill(worker, signal.SIGINT)
        os.kill(worker, signal.SIGTERM)
    environment.step(np.zeros((2, 6), np.float32))
    environment.close()
    deadline = time.monotonic() + 10
    while any(worker in _children() for worker in workers):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _children() -> list[int]:
    return sorted(child.pid for child in multiprocessing.active_children())


def test_a_worker_imports_no_jax():
    script = f"import sys, {dmc_worker.__name__}; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
