"""The suite's tasks in worker processes, against dm_control and envpool used directly."""

import ctypes.util
import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile

import dm_env
import envpool
import numpy as np
import pytest

from rcrl_jax import signals
from rcrl_jax.envs import dmc, dmc_rendering, dmc_worker
from rcrl_jax.envs.protocol import SimulatorFailed, control_spec
from tests.envs import diverging

REPEAT = {name: task.action_repeat for name, task in dmc.DMC_TASKS.items()}


def load(task, seed):
    from dm_control import suite

    return suite.load(
        dmc.DMC_TASKS[task].domain, dmc.DMC_TASKS[task].task, task_kwargs={"random": seed}
    )


def random_actions(rng, runs):
    return rng.uniform(-1, 1, (runs, dmc.MAX_NUM_ACTIONS)).astype(np.float32)


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


@pytest.fixture(scope="module")
def idle():
    """Three environments in one worker, for tests that ask for neither a reset nor a step."""
    environment = dmc.make_dmc(["cheetah_run"] * 3, range(3), observation="state", num_workers=1)
    yield environment
    environment.close()


def test_sizes_of_tasks_are_the_suite_s_and_action_repeats_are_curl_s():
    assert REPEAT == {
        "finger_spin": 2, "walker_walk": 2, "cartpole_swingup": 8,
        "reacher_easy": 4, "cheetah_run": 4, "ball_in_cup_catch": 4,
    }  # fmt: skip
    for name, task in dmc.DMC_TASKS.items():
        environment = load(name, 0)
        spec = environment.action_spec()
        assert spec.shape == (task.action_size,)
        assert np.all(spec.minimum == -1) and np.all(spec.maximum == 1)
        sizes = [np.prod(part.shape, dtype=int) for part in environment.observation_spec().values()]
        assert sum(sizes) == task.state_size
        assert environment._step_limit == dmc.TIME_LIMIT
    assert (dmc.MAX_NUM_ACTIONS, dmc.MAX_STATE_SIZE) == (6, 24)


@pytest.mark.parametrize(
    ("repeat", "num_workers", "end", "chosen"),
    [(2, 2, 60, 0), (4, 1, 60, 0), (8, 1, 130, 0), (8, 1, 60, 5)],
)
def test_states_rewards_and_limits_are_the_suite_s(make, repeat, num_workers, end, chosen):
    """All tasks of one action repeat, or with another one; a whole episode of short ones."""
    tasks = [task for task in dmc.DMC_TASKS if REPEAT[task] == repeat]
    runs, sizes = len(tasks), [dmc.DMC_TASKS[task].action_size for task in tasks]
    environment = make(
        tasks, range(10, 10 + runs), observation="state", num_workers=num_workers,
        action_repeat=chosen,
    )  # fmt: skip
    repeat = chosen or repeat
    assert environment.spec == control_spec((24,), 6, action_repeat=repeat)
    assert environment.num_valid_actions.tolist() == sizes
    direct = [load(task, 10 + r) for r, task in enumerate(tasks)]

    def states(time_steps):
        rows = np.zeros((len(time_steps), 24), np.float32)
        for row, time_step in zip(rows, time_steps, strict=True):
            vector = np.concatenate([np.ravel(part) for part in time_step.observation.values()])
            row[: vector.size] = vector
        return rows

    first = environment.reset()
    time_steps = [each.reset() for each in direct]
    np.testing.assert_array_equal(first.frame, states(time_steps))
    rng, steps = np.random.default_rng(0), np.zeros(runs, int)  # of the current episodes
    for step in range(1, end):
        actions = random_actions(rng, runs)
        result = environment.step(actions)
        steps += 1
        rewards = np.zeros(runs)
        for r, each in enumerate(direct):
            for _ in range(repeat):
                time_steps[r] = each.step(actions[r, : sizes[r]])
                rewards[r] += time_steps[r].reward
        np.testing.assert_array_equal(result.frame, states(time_steps))
        np.testing.assert_array_equal(result.reward, rewards.astype(np.float32))
        assert not result.terminated.any()
        assert result.truncated.tolist() == [time_step.last() for time_step in time_steps]
        assert result.truncated.tolist() == (steps * repeat == dmc.TIME_LIMIT).tolist()
        mask = result.truncated.copy()
        mask[0] |= step == 3  # in mid-episode, and so the first ends after the others
        if mask.any():
            first = environment.reset(mask)
            for r in np.flatnonzero(mask):
                time_steps[r], steps[r] = direct[r].reset(), 0
            np.testing.assert_array_equal(first.frame, states(time_steps))
            assert not first.reward.any()
    assert steps[0] == (1 if repeat == 8 else end - 4)  # it has started over


def test_discount_tells_termination_from_the_time_limit(idle, monkeypatch):
    monkeypatch.setattr(dmc, "_wait", lambda connection, timeout_s: None)
    last = dm_env.StepType.LAST
    idle._arrays.step_type[:] = [dm_env.StepType.MID, last, last]
    idle._arrays.discount[:] = [1, 0, 1]
    step = idle.recv()
    assert step.terminated.tolist() == [False, True, False]
    assert step.truncated.tolist() == [False, False, True]


@pytest.mark.parametrize(
    "end, rewards",
    [(None, 1 + 2 + 4), (dm_env.termination, 1 + 2), (dm_env.truncation, 1 + 2)],
)
def test_rewards_are_summed_until_the_repeat_or_the_episode_ends(end, rewards):
    class Simulator:
        steps = 0

        def step(self, action):
            self.steps += 1
            make = end if end and self.steps == 2 else dm_env.transition
            return make(2.0 ** (self.steps - 1), None)

    time_step, failed = dmc_worker._repeat(Simulator(), np.zeros(1), 3)
    assert not failed and time_step.reward == rewards and time_step.last() == (end is not None)
    assert time_step.discount == (end is not dm_env.termination)


def test_frames_are_the_suite_s_camera_0_and_never_overwritten(make, renderer):
    """Some random steps, rendered in a worker and directly."""
    environment = make(["cheetah_run", "reacher_easy"], [3, 4], render_size=40, num_workers=1)
    assert environment.spec == control_spec((40, 40, 3), 6, action_repeat=4)._replace(
        host_bytes=dmc.RENDERER_BYTES
    )
    first = environment.reset()
    kept = first.frame.copy()
    rng = np.random.default_rng(0)
    actions = [random_actions(rng, 2) for _ in range(5)]
    steps = [environment.step(action) for action in actions]
    np.testing.assert_array_equal(first.frame, kept)  # not overwritten by later steps
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


def test_envpool_renders_if_egl_and_libgl_do(renderer):
    """Otherwise the tests below could be skipped without need."""
    if renderer != "egl" or ctypes.util.find_library("GL") is None:
        pytest.skip("no EGL, or no libGL")
    assert dmc_rendering.find_envpool_renderer() == "egl"


def test_steps_limits_and_actions_of_envpool_are_the_suite_s():
    for name, task in dmc.DMC_TASKS.items():
        spec = envpool.make_spec(ENVPOOL_NAMES[name])
        # envpool's frame_skip counts physics steps, so it must stay the suite's number.
        assert spec.config.frame_skip == load(name, 0)._n_sub_steps
        assert spec.config.max_episode_steps == dmc.TIME_LIMIT
        assert spec.action_array_spec["action"].shape == [-1, task.action_size]


def play_beside_envpool(name, step, reset):
    """Compares `step` and `reset` with envpool: a start, a whole episode, and the next start.

    `step` takes an action [A] and returns a reward and whether the episode terminated and was
    truncated.
    """
    repeat, size, direct = REPEAT[name], dmc.DMC_TASKS[name].action_size, load_envpool(name, 5)
    rng, rewards = np.random.default_rng(0), []
    for steps in (3, dmc.TIME_LIMIT // repeat, 3):
        reset()  # also in mid-episode
        direct.reset()
        for number in range(1, steps + 1):
            (action,) = random_actions(rng, 1)
            reward, terminated, truncated = step(action)
            expected = 0.0
            for _ in range(repeat):
                _, one, _, cut, _ = direct.step(action[np.newaxis, :size])
                expected += float(one[0])
            np.testing.assert_allclose(reward, expected, rtol=1e-6)
            assert not terminated and truncated == cut[0] == (number * repeat == dmc.TIME_LIMIT)
            rewards.append(expected)
    assert len(set(rewards)) > 50  # the rewards compared are not all zero


def test_rewards_and_limits_are_envpool_s(monkeypatch):
    """In this process and without rendering."""
    name = "cheetah_run"
    task = dmc.DMC_TASKS[name]
    monkeypatch.setattr(dmc_worker, "make_pool", lambda *arguments: load_envpool(name, 5))
    simulation = dmc_worker.Simulation(task.domain, task.task, task.action_size, 5)
    simulator = dmc_worker._EnvpoolSimulator(simulation, (8, 8, 3))

    def step(action):
        time_step, _ = dmc_worker._repeat(simulator, action[: task.action_size], task.action_repeat)
        last = time_step.last()
        return time_step.reward, last and not time_step.discount, last and time_step.discount == 1

    play_beside_envpool(name, step, simulator.reset)


@pytest.mark.usefixtures("envpool_renderer")
def test_frames_of_envpool_are_its_pixel_task_s(make, tmp_path):
    environment = make(["cheetah_run"], [3], backend="envpool", render_size=40)
    assert environment.spec == control_spec((40, 40, 3), 6, action_repeat=4)._replace(
        host_bytes=dmc.RENDERER_BYTES
    )
    rng = np.random.default_rng(0)
    actions = [random_actions(rng, 1) for _ in range(5)]
    first = environment.reset()
    kept = first.frame.copy()
    frames = [kept[0]]
    for number, action in enumerate(actions):
        environment.renders = number not in (1, 2)
        frames.append(environment.step(action).frame[0])
    np.testing.assert_array_equal(first.frame, kept)  # not overwritten by later steps

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
os._exit(0)  # a pool that renders in its own thread may crash its process at exit
"""
    run_script(script, tmp_path, LP_NUM_THREADS="1")
    direct = np.load(tmp_path / "frames.npy").transpose(0, 2, 3, 1)
    assert all(np.any(frame != kept[0]) for frame in direct[1:])
    # Steps without frames lead to the same frames.
    seen = [0, 1, 4, 5]
    np.testing.assert_array_equal(np.stack(frames)[seen], direct[seen])
    assert np.any(frames[2] != direct[2]) and np.any(frames[3] != direct[3])


@pytest.mark.usefixtures("envpool_renderer")
def test_rewards_and_frames_of_envpool_are_dm_control_s(make, renderer, tmp_path):
    """Equal states and actions give equal rewards and, except for the floor, equal frames.

    The two versions of MuJoCo place the checks of the floor differently. In this task the
    observation is the whole state, and the upper rows of a frame show no floor.
    """
    name = "cartpole_swingup"
    task, upper, path = dmc.DMC_TASKS[name], slice(0, 60), tmp_path / "played.npz"
    environment = make([name], [3], backend="envpool")
    rng = np.random.default_rng(0)
    actions = np.stack([random_actions(rng, 1) for _ in range(20)])
    frames, rewards = [environment.reset().frame[0]], []
    for action in actions:
        result = environment.step(action)
        frames.append(result.frame[0])
        rewards.append(result.reward[0])

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
    start, _ = load_envpool(name, 3).reset()
    x, cosine, sine = start["position"][0]
    np.savez(
        path,
        position=[x, np.arctan2(sine, cosine)],
        velocity=start["velocity"][0],
        actions=actions[:, 0, : task.action_size],
    )
    run_script(script, path, task.domain, task.task, task.action_repeat, MUJOCO_GL=renderer)
    direct = np.load(path)
    np.testing.assert_allclose(rewards, direct["rewards"], rtol=1e-5)
    ours, theirs = np.stack(frames)[:, upper].astype(int), direct["frames"][:, upper]
    assert np.abs(ours - theirs).max() <= 2  # 0 where both render with EGL
    assert np.abs(np.diff(ours, axis=0)).max(axis=(1, 2, 3)).min() > 50  # the frames change


@pytest.mark.usefixtures("envpool_renderer")
def test_an_environment_of_envpool_depends_on_its_seed_and_actions_alone(make, capfd):
    """Two workers: one holds two pools that share a GL context. Others restart in mid-episode.

    The workers end without output.
    """

    def play(tasks, seeds, row, num_workers):
        before = set(multiprocessing.active_children())
        environment = make(tasks, seeds, backend="envpool", render_size=32, num_workers=num_workers)
        workers = set(multiprocessing.active_children()) - before
        rng = np.random.default_rng(0)
        others = np.arange(len(tasks)) != row
        frames, rewards = [environment.reset().frame], []
        for step in range(8):
            actions = random_actions(rng, 1).repeat(len(tasks), axis=0)
            result = environment.step(actions)
            frames.append(result.frame)
            rewards.append(result.reward)
            if others.any() and step == 4:
                after = environment.reset(others)
                np.testing.assert_array_equal(after.frame[row], result.frame[row])
                for other in np.flatnonzero(others):
                    assert np.any(after.frame[other] != result.frame[other])
        environment.close()
        for worker in workers:
            worker.join(30)
            assert worker.exitcode == 0
        return np.stack(frames, axis=1), np.stack(rewards, axis=1)

    frames, rewards = play(["cheetah_run"], [7], 0, 1)
    tasks, seeds = ["reacher_easy", "cheetah_run", "cheetah_run"], [1, 7, 8]
    joined_frames, joined_rewards = play(tasks, seeds, 1, 2)
    np.testing.assert_array_equal(joined_frames[1], frames[0])
    np.testing.assert_array_equal(joined_rewards[1], rewards[0])
    assert np.any(joined_frames[2, 0] != frames[0, 0])
    assert capfd.readouterr() == ("", "")


# --- errors and crashes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "tasks, seeds, message",
    [
        (["cheetah_run"], [-1], "seeds must be in"),
        (["cheetah_run"], [1, 2], "2 seeds for 1 tasks"),
        (["cheetah_run", "walker_walk"], [1, 2], "one action repeat.*_run.: 4.*_walk.: 2"),
    ],
)
def test_bad_arguments_are_refused(tasks, seeds, message):
    with pytest.raises(ValueError, match=message):
        dmc.make_dmc(tasks, seeds)


@pytest.mark.parametrize(
    "requested, working, found, tried",
    [
        (None, {"egl", "osmesa"}, "egl", ["egl"]),
        (None, {"osmesa"}, "osmesa", ["egl", "osmesa"]),
        ("osmesa", {"egl", "osmesa"}, "osmesa", ["osmesa"]),
    ],
)
def test_renderer_is_egl_or_else_osmesa_unless_mujoco_gl_names_one(
    monkeypatch, requested, working, found, tried
):
    def fail(probe, MUJOCO_GL):  # noqa: N803 - the variable's name
        asked.append(MUJOCO_GL)
        return None if MUJOCO_GL in working else "fails"

    asked = []
    monkeypatch.setattr(dmc_rendering, "_failure", fail)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    if requested:
        monkeypatch.setenv("MUJOCO_GL", requested)
    assert dmc_rendering.find_renderer.__wrapped__() == found
    assert asked == tried


def test_the_platform_of_opengl_that_a_shell_names_does_not_matter(make, renderer, monkeypatch):
    """Users of dm_control set it against an old error; dm_control fails where it is another one."""
    monkeypatch.setenv("PYOPENGL_PLATFORM", "osmesa" if renderer == "egl" else "egl")
    assert dmc_rendering.find_renderer.__wrapped__() == renderer
    assert make(["cheetah_run"], [0]).reset().frame.any()


@pytest.mark.usefixtures("envpool_renderer")
def test_an_abort_of_envpool_ends_only_its_worker(make, monkeypatch, tmp_path):
    abort = "import os, resource\nresource.setrlimit(resource.RLIMIT_CORE, (0, 0))\nos.abort()\n"
    (tmp_path / "envpool.py").write_text(abort)
    monkeypatch.syspath_prepend(tmp_path)  # of this process's children as well
    with pytest.raises(dmc_rendering.RendererUnavailable, match="does not render.*exit -6"):
        dmc_rendering.find_envpool_renderer.__wrapped__()
    monkeypatch.setattr(dmc_rendering, "find_envpool_renderer", lambda: "egl")
    environment = make(["cheetah_run"], [0], backend="envpool")
    with pytest.raises(SimulatorFailed, match="a simulator's process has ended"):
        environment.reset()


def test_a_physics_error_truncates_where_it_occurs(make, monkeypatch):
    """The third of a step's four environment steps has no valid state; the run goes on."""
    tasks, seeds, direct = ["cheetah_run", "reacher_easy"], [0, 1], load("cheetah_run", 0)
    monkeypatch.setattr(dmc_worker, "work", functools.partial(diverging.work, 11))
    environment = make(tasks, seeds, observation="state", num_workers=1)
    rng, actions = np.random.default_rng(0), None
    last, _ = environment.reset(), direct.reset()
    for _ in range(2):
        actions = random_actions(rng, 2)
        last = environment.step(actions)
        for _ in range(4):
            direct.step(actions[0])
        assert not last.failed.any() and not last.truncated.any()
    actions = random_actions(rng, 2)
    failed = environment.step(actions)
    assert failed.failed.all() and failed.truncated.all() and not failed.terminated.any()
    np.testing.assert_array_equal(failed.frame, last.frame)
    valid = sum(direct.step(actions[0]).reward for _ in range(2))
    assert failed.reward[0] == np.float32(valid) > 0
    first = environment.reset(np.array([True, False]))
    assert not np.array_equal(first.frame[0], last.frame[0])
    np.testing.assert_array_equal(first.frame[1], last.frame[1])
    environment.reset(np.array([False, True]))
    for _ in range(3):
        step = environment.step(random_actions(rng, 2))
        assert not step.failed.any() and not step.truncated.any()
        assert np.isfinite(step.frame).all()


@pytest.mark.parametrize("failures", [9, 10])
def test_an_episode_that_cannot_start_is_replaced_by_the_next_one(failures):
    class Simulator:
        physics_errors = (ArithmeticError,)
        resets = 0

        def reset(self):
            self.resets += 1
            if self.resets <= failures:
                raise ArithmeticError("no valid state")
            return dm_env.restart(observation=None)

    simulator = Simulator()
    if failures == 10:
        with pytest.raises(ArithmeticError):
            dmc_worker._reset(simulator)
    else:
        assert dmc_worker._reset(simulator).first()
    assert simulator.resets == 10


def test_a_worker_that_fails_hangs_or_ends_raises(make, monkeypatch):
    actions = np.zeros((1, 6), np.float32)
    environment = make(["cheetah_run"], [0], observation="state")
    failing = make(["cheetah_run"], [0], observation="state")
    failing._arrays.restart[:] = 0
    failing._connections[0].send(("step", True))  # before any reset
    with pytest.raises(SimulatorFailed, match="a simulator failed"):
        failing.recv()

    environment.reset()
    worker = environment._workers[0].pid
    os.kill(worker, signal.SIGSTOP)
    environment.send(actions)
    with monkeypatch.context() as shorter:
        shorter.setattr(dmc, "_ANSWER_TIMEOUT_S", 0.1)
        with pytest.raises(SimulatorFailed, match="a simulator has not answered for 0.1 s"):
            environment.recv()
    os.kill(worker, signal.SIGKILL)
    for call in (environment.recv, lambda: environment.send(actions), environment.reset):
        with pytest.raises(SimulatorFailed, match="a simulator's process has ended"):
            call()


def test_a_program_ends_although_a_worker_hangs():
    run_script("""
import os, signal
from rcrl_jax.envs import dmc
if __name__ == "__main__":
    dmc._END_TIMEOUT_S = 0.1
    environment = dmc.make_dmc(["cheetah_run"], [0], observation="state")
    os.kill(environment._workers[0].pid, signal.SIGSTOP)
""")


@pytest.mark.parametrize("waits", [False, True], ids=["while it starts", "once it runs"])
def test_workers_ignore_signals_and_end_with_their_vector(make, waits):
    environment = make(["cheetah_run"] * 2, [0, 1], observation="state", num_workers=2)
    if waits:
        environment.reset()
    workers = [worker.pid for worker in environment._workers]
    for worker in workers:
        for number in signals.STOP_SIGNALS:
            os.kill(worker, number)
    environment.reset()
    environment.step(np.zeros((2, 6), np.float32))
    environment.close()
    assert not {*workers} & {*_children()}


def _children() -> list[int]:
    return sorted(child.pid for child in multiprocessing.active_children())


def test_a_worker_imports_no_jax():
    """Python imports the main program in each process that it spawns."""
    modules = f"rcrl_jax.programs.dmc, {dmc_worker.__name__}"
    run_script(f"import sys, {modules}; assert 'jax' not in sys.modules")
