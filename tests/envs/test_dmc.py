"""The suite's tasks through worker processes, against dm_control and envpool used directly."""

import ctypes.util
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time

import envpool
import numpy as np
import pytest

from rcrl_jax.envs import dmc, dmc_worker
from rcrl_jax.envs.protocol import SimulatorFailed

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


# --- envpool ----------------------------------------------------------------------------------

ENVPOOL_NAMES = {
    "finger_spin": "FingerSpin-v1",
    "cartpole_swingup": "CartpoleSwingup-v1",
    "reacher_easy": "ReacherEasy-v1",
    "cheetah_run": "CheetahRun-v1",
    "walker_walk": "WalkerWalk-v1",
    "ball_in_cup_catch": "BallInCupCatch-v1",
}


def load_envpool(task, seed):
    """A pool of one environment that renders nothing."""
    return envpool.make_gymnasium(ENVPOOL_NAMES[task], num_envs=1, num_threads=1, seed=[seed])


def run_script(script, *arguments, **variables):
    subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        check=True,
        env={**os.environ, **variables},
    )


def test_envpool_renders_wherever_egl_and_libgl_do(renderer):
    """So that the tests below are not all skipped where they need not be."""
    if renderer != "egl" or ctypes.util.find_library("GL") is None:
        pytest.skip("no EGL, or no libGL")
    assert dmc.find_envpool_renderer() == "egl"


def test_an_environment_step_of_envpool_is_the_suite_s():
    for task, own in dmc.DMC_TASKS.items():
        suite_s = load(task, 0)
        spec = envpool.make_spec(ENVPOOL_NAMES[task])
        # envpool's frame_skip counts physics steps: the suite's number must be left alone.
        assert spec.config.frame_skip == suite_s._n_sub_steps
        assert spec.config.max_episode_steps == dmc.TIME_LIMIT
        assert spec.action_array_spec["action"].shape == [-1, own.num_actions]


@pytest.mark.usefixtures("envpool_renderer")
@pytest.mark.parametrize("task", ["walker_walk", "cheetah_run", "cartpole_swingup"])
def test_rewards_and_limits_of_envpool_s_episodes(make, task):
    """A start, a whole episode at each action repeat, and the start of the next one."""
    repeat, size = dmc.DMC_TASKS[task].action_repeat, dmc.DMC_TASKS[task].num_actions
    environment, direct = make([task], [5], backend="envpool", render_size=8), load_envpool(task, 5)
    rng = np.random.default_rng(0)

    def step_both():
        actions = random_actions(rng, 1)
        result, reward = environment.step(actions), 0.0
        for _ in range(repeat):
            _, one, _, truncated, _ = direct.step(actions[:, :size])
            reward += float(one[0])
        np.testing.assert_allclose(result.reward, [reward], rtol=1e-6)
        assert not result.terminated.any() and result.truncated.tolist() == truncated.tolist()
        return result

    rewards = []
    for steps in (3, dmc.TIME_LIMIT // repeat, 3):
        first = environment.reset()  # in mid-episode, too
        direct.reset()
        assert first.reward.tolist() == [0] and not first.truncated.any()
        results = [step_both() for _ in range(steps)]
        assert [bool(result.truncated[0]) for result in results] == [
            step * repeat == dmc.TIME_LIMIT for step in range(1, steps + 1)
        ]
        rewards += [float(result.reward[0]) for result in results]
    assert len(set(rewards)) > 50  # the equality above is not one of zeros


@pytest.mark.usefixtures("envpool_renderer")
def test_frames_of_envpool_are_those_of_its_pixel_task(make, tmp_path):
    environment = make(["cheetah_run"], [3], backend="envpool", render_size=40)
    assert environment.spec == ((40, 40, 3), 6, np.uint8)
    rng = np.random.default_rng(0)
    actions = [random_actions(rng, 1) for _ in range(5)]
    first = environment.reset()
    kept = first.frame.copy()
    frames = [kept[0], *(environment.step(action).frame[0] for action in actions)]
    np.testing.assert_array_equal(first.frame, kept)  # not written over by later steps

    np.save(tmp_path / "actions.npy", actions)
    script = """
import ctypes, sys, numpy as np
ctypes.CDLL("libGL.so.1", mode=ctypes.RTLD_GLOBAL)
import envpool
pool = envpool.make_gymnasium(
    "CheetahRun-v1", num_envs=1, num_threads=1, seed=[3], from_pixels=True, frame_stack=1,
    render_width=40, render_height=40, render_camera_id=0,
)
frames = [pool.reset()[0]]
for action in np.load(sys.argv[1] + "/actions.npy"):
    for _ in range(4):
        frame = pool.step(action)[0]
    frames.append(frame)
np.save(sys.argv[1] + "/frames.npy", np.concatenate(frames))
import os
os._exit(0)  # a pool that renders in a thread of its own may end its process as it goes
"""
    run_script(script, tmp_path, LP_NUM_THREADS="1")
    direct = np.load(tmp_path / "frames.npy").transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(frames, direct)
    assert all(np.any(frame != kept[0]) for frame in frames[1:])


@pytest.mark.usefixtures("envpool_renderer")
def test_envpool_simulates_and_draws_what_dm_control_does(make, renderer, tmp_path):
    """From equal states, by equal actions: equal rewards and, but for the floor, equal frames.

    The checks of the floor lie elsewhere in the other version of MuJoCo. In these two tasks, the
    ones whose observation is their whole state, the upper rows of a frame show none of it.
    """
    tasks, upper = ["cartpole_swingup", "ball_in_cup_catch"], slice(0, 60)
    environment = make(tasks, [3, 4], backend="envpool", num_workers=1)
    rng = np.random.default_rng(0)
    actions = np.stack([random_actions(rng, 2) for _ in range(30)])
    frames, rewards = [environment.reset().frame], []
    for action in actions:
        result = environment.step(action)
        frames.append(result.frame)
        rewards.append(result.reward)

    script = """
import sys, numpy as np
from dm_control import suite
given = np.load(sys.argv[1])
environment = suite.load(sys.argv[2], sys.argv[3])
environment.reset()
with environment.physics.reset_context():
    environment.physics.data.qpos[:] = given["position"]
    environment.physics.data.qvel[:] = given["velocity"]
frames, rewards = [environment.physics.render(100, 100, camera_id=0)], []
for action in given["actions"]:
    rewards.append(sum(environment.step(action).reward for _ in range(int(sys.argv[4]))))
    frames.append(environment.physics.render(100, 100, camera_id=0))
np.savez(sys.argv[1], frames=frames, rewards=rewards)
"""
    for r, task in enumerate(tasks):
        own, path = dmc.DMC_TASKS[task], tmp_path / f"{task}.npz"
        start, _ = load_envpool(task, 3 + r).reset()
        position = start["position"][0]
        if task == "cartpole_swingup":
            x, cosine, sine = position
            position = [x, np.arctan2(sine, cosine)]
        np.savez(
            path,
            position=position,
            velocity=start["velocity"][0],
            actions=actions[:, r, : own.num_actions],
        )
        run_script(script, path, own.domain, own.task, own.action_repeat, MUJOCO_GL=renderer)
        suite_s = np.load(path)
        np.testing.assert_allclose(np.stack(rewards)[:, r], suite_s["rewards"], rtol=1e-5)
        ours, theirs = np.stack(frames)[:, r, upper].astype(int), suite_s["frames"][:, upper]
        assert np.abs(ours - theirs).max() <= 2  # 0 where both render with EGL
        assert np.abs(np.diff(ours, axis=0)).max(axis=(1, 2, 3)).min() > 50  # and they move


@pytest.mark.usefixtures("envpool_renderer")
def test_an_environment_of_envpool_depends_on_its_seed_and_actions_alone(make):
    """Several in a process share its GL context; the others restart while this one goes on."""

    def play(tasks, seeds, row, **options):
        environment = make(tasks, seeds, backend="envpool", render_size=32, **options)
        rng = np.random.default_rng(0)
        others = np.arange(len(tasks)) != row
        frames, rewards = [environment.reset().frame[row]], []
        for step in range(12):
            actions = random_actions(rng, 1).repeat(len(tasks), axis=0)
            result = environment.step(actions)
            frames.append(result.frame[row])
            rewards.append(result.reward[row])
            if others.any() and step == 5:
                after = environment.reset(others)
                np.testing.assert_array_equal(after.frame[row], result.frame[row])
                for other in np.flatnonzero(others):
                    assert np.any(after.frame[other] != result.frame[other])
        return np.stack(frames), np.array(rewards)

    alone = play(["cheetah_run"], [7], 0)
    company = ["walker_walk", "cheetah_run", "cheetah_run"]
    for num_workers in (1, 3):
        together = play(company, [1, 7, 8], 1, num_workers=num_workers)
        np.testing.assert_array_equal(alone[0], together[0])
        np.testing.assert_array_equal(alone[1], together[1])
    other_seed = play(company, [1, 7, 8], 2, num_workers=2)
    assert np.any(alone[0][0] != other_seed[0][0])


@pytest.mark.usefixtures("envpool_renderer")
def test_a_worker_of_envpool_ends_without_a_word(make, capfd):
    before = set(multiprocessing.active_children())
    environment = make(["cheetah_run", "reacher_easy"], [0, 1], backend="envpool", num_workers=1)
    (worker,) = set(multiprocessing.active_children()) - before
    environment.reset()
    environment.step(np.zeros((2, 6), np.float32))
    environment.close()
    worker.join(30)
    assert worker.exitcode == 0
    assert capfd.readouterr() == ("", "")


def test_description_of_envpool(make, envpool_renderer):
    description = make(["cheetah_run"], [0], backend="envpool").description
    assert description["backend"] == "envpool" and description["renderer"] == envpool_renderer
    assert description["backend_version"] == envpool.__version__
    assert description["physics"] == f"MuJoCo as built into envpool {envpool.__version__}"
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
        (["cheetah_run"], [0], {"backend": "mame"}, "unknown DMControl backend 'mame'.*envpool"),
        (["cheetah_run"], [0], {"backend": "envpool", "observation": "state"}, "pixels alone"),
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


def test_where_envpool_does_not_render_the_message_names_the_packages(monkeypatch):
    monkeypatch.setenv("__EGL_VENDOR_LIBRARY_FILENAMES", "/nonexistent")
    with pytest.raises(dmc.RendererUnavailable, match="libgl1 libegl1 libgl1-mesa-dri") as refusal:
        dmc.find_envpool_renderer.__wrapped__()
    assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("envpool_renderer")
def test_an_abort_within_envpool_ends_no_process_but_its_own(make, monkeypatch, tmp_path):
    abort = "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.abort()\n"
    (tmp_path / "envpool.py").write_text(abort)
    monkeypatch.syspath_prepend(tmp_path)  # of this process's children as well
    with pytest.raises(dmc.RendererUnavailable, match="does not render.*exit -6"):
        dmc.find_envpool_renderer.__wrapped__()
    monkeypatch.setattr(dmc, "find_envpool_renderer", lambda: "egl")
    environment = make(["cheetah_run"], [0], backend="envpool")
    with pytest.raises(SimulatorFailed, match="a simulator's process has ended"):
        environment.reset()


def test_a_worker_that_fails_hangs_or_is_gone_is_an_error_not_a_hang(make, monkeypatch):
    actions = np.zeros((1, 6), np.float32)
    environment = make(["cheetah_run"], [0], observation="state")
    failing = make(["cheetah_run"], [0], observation="state")
    failing._arrays.restart[:] = 0
    failing._connections[0].send("step")  # before any reset
    with pytest.raises(SimulatorFailed, match="a simulator failed"):
        failing.recv()

    environment.reset()
    worker = _children()[-2]
    os.kill(worker, signal.SIGSTOP)
    environment.send(actions)
    with monkeypatch.context() as patience:
        patience.setattr(dmc, "_ANSWER_S", 0.1)
        with pytest.raises(SimulatorFailed, match="a simulator has not answered for 0.1 s"):
            environment.recv()
    os.kill(worker, signal.SIGKILL)
    for asks in (environment.recv, lambda: environment.send(actions), environment.reset):
        with pytest.raises(SimulatorFailed, match="a simulator's process has ended"):
            asks()


def test_a_worker_has_time_to_make_all_its_environments_before_its_first_answer(make):
    environment = make(["cheetah_run"] * 3, range(3), observation="state", num_workers=2)
    limits = []
    for connection in environment._connections:

        def poll(limit_s, poll=connection.poll):
            limits.append(limit_s)
            return poll(limit_s)

        connection.poll = poll
    environment.reset()
    assert limits == [2 * dmc._ANSWER_S, dmc._ANSWER_S]
    environment.step(np.zeros((3, 6), np.float32))
    environment.reset()
    assert limits[2:] == 4 * [dmc._ANSWER_S]


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
    run_script(f"import sys, {dmc_worker.__name__}; assert 'jax' not in sys.modules")


@pytest.mark.usefixtures("envpool_renderer")
def test_a_worker_of_envpool_imports_no_jax():
    script = """
import sys
from rcrl_jax.envs import dmc_worker
dmc_worker.make_pool("cheetah", "run", 0, (8, 8, 3))
assert not any(name.startswith("jax") for name, module in sys.modules.items() if module)
"""
    run_script(script)
