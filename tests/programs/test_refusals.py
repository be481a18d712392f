"""Every bad command line is one line and exit code 2, at once, with nothing made or written."""

import functools
import pathlib
import shutil

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import rcrl_jax
from experiments.theory.studies import abstraction
from rcrl_jax.config import fields, presets
from rcrl_jax.config.fields import LARGEST_INT
from rcrl_jax.envs import atari, dmc, pools
from rcrl_jax.programs import command_line, commands, launch
from rcrl_jax.training import experiment, prediction, video
from rcrl_jax.training.plan import Plan
from tests.programs import programs
from tests.programs.test_command_line import assert_mistake, assert_refused
from tests.tasks.test_new_task import select
from tests.training import toy

ROOT = pathlib.Path(__file__).parents[2]
ATARI, DMC = "experiments.atari100k", "experiments.dmc"
MINATAR = "experiments.minatar"
REPRESENTATION, EVALUATE = "experiments.representation", "experiments.evaluate"
SWEEP = "experiments.sweep"
THROUGHPUT, FIRST_LOOK = "benchmarks.throughput", "benchmarks.first_look"
HOST, COMPILED = "benchmarks.host", "benchmarks.compiled"
COMPARE, TABLE1, REPORT = "benchmarks.compare", "benchmarks.table1", "benchmarks.report"
TABLE2, FIGURE_DMC = "benchmarks.table2", "benchmarks.figure_dmc"
THEORY = "experiments.theory"
SHORT_SWEEP = ("--presets=rcrl", "--games=Pong", "--results=x", "--dry_run")


@pytest.fixture(autouse=True, scope="module")
def machine():
    """A machine of 24 GiB whose disk is large, wherever the tests run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prediction, "available_bytes", lambda: 24 * 2**30)
        disk = shutil.disk_usage("/")._replace(free=10**12)
        patch.setattr(shutil, "disk_usage", lambda path: disk)
        yield


class Trained(Exception):
    """A program has accepted its command line."""


@pytest.mark.parametrize(
    "error, says",
    [
        (RuntimeError("Unable to initialize backend 'cuda'"), "JAX: Unable to initialize"),
        # What JAX raises for cuda alone where its plugin finds no GPU.
        (AssertionError(), "JAX: no device of JAX_PLATFORMS=cuda"),
    ],
    ids=["RuntimeError", "AssertionError"],
)
def test_a_platform_that_is_not_there_is_refused(tmp_path, monkeypatch, error, says):
    def fail():
        raise error

    monkeypatch.setattr(jax, "device_count", fail)
    monkeypatch.setenv("JAX_PLATFORMS", "cuda")
    for program in (
        [ATARI], [EVALUATE, "--workdir=x"], [THEORY, "--quick"], [THROUGHPUT], [FIRST_LOOK], [HOST]
    ):  # fmt: skip
        result = programs.call(*program, directory=tmp_path)
        assert_mistake(
            result, [says, "JAX_PLATFORMS=cpu", "make GPU=cuda13", "pip install"], tmp_path
        )


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    """Training ends before it begins; environments cannot be made."""

    def accept(plan, *rest):
        raise Trained(plan)

    def fail(*arguments, **options):
        raise AssertionError("an environment is made for a run that may not start")

    monkeypatch.setattr(experiment, "run", accept)
    for module, name in (
        (atari, "make_atari"), (atari, "make_games"), (dmc, "make_dmc"),
        (pools, "ConcatenatedEnvironments"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, fail)


def accepted(module: str, *arguments: str, directory) -> Plan:
    """The plan that a program would carry out."""
    with pytest.raises(Trained) as reached:
        programs.call(module, *arguments, directory=directory)
    return reached.value.args[0]


REFUSED = [
    # The flag library's own errors.
    (ATARI, ["--flagfile=/nope"], ["flagfile", "/nope"]),
    (ATARI, ["--preset"], ["Missing value", "--preset"]),
    (ATARI, ["--noconfig.clip_rewards=false"], ["--noconfig.clip_rewards"]),
    # Flags that name nothing.
    (ATARI, ["--workdir="], ["--workdir"]),
    (DMC, ["--tasks="], ["--tasks"]),
    (REPRESENTATION, ["--presets="], ["--presets"]),
    (EVALUATE, ["--workdir=x", "--output="], ["--output"]),
    (SWEEP, [*SHORT_SWEEP, "--workdir="], ["--workdir"]),
    (THROUGHPUT, ["--output="], ["--output"]),
    (THROUGHPUT, ["--runs="], ["--runs"]),
    (THEORY, ["--output="], ["--output"]),
    # Flags and fields that do not exist, and values that they do not take.
    (ATARI, ["--preset=rainbw"], ["preset", "rainbw", "erainbow"]),
    (ATARI, ["--seeed=1"], ["seeed"]),
    (ATARI, ["--steps=0"], ["steps", "0"]),
    (ATARI, ["--backend=mame"], ["backend", "mame", "envpool"]),
    (ATARI, ["Pong"], ["'Pong'", "--game=Pong"]),
    (ATARI, ["--config.batch_sise=3"], ["config.batch_sise", "did you mean --config.batch_size"]),
    (ATARI, ["--learning_rate=1"], ["--learning_rate", "did you mean --config.learning_rate?"]),
    (
        ATARI,
        ["--config.curl.wieght=1"],
        ["did you mean --config.curl.weight"],
    ),
    # Fields of the group that is named, else of the configuration, never of another group.
    (
        ATARI,
        ["--config.return_contrast.wieght=1"],
        ["did you mean --config.auxiliary_weight?"],
    ),
    (
        ATARI,
        ["--config.curl.batch_size=1"],
        ["did you mean --config.batch_size?"],
    ),
    (
        ATARI,
        ["--config.return_contrast.batch_sise=1"],
        ["did you mean --config.return_contrast.batch_size?"],
    ),
    (ATARI, ["--config.capacity=1"], ["did you mean --config.replay.capacity?"]),
    (
        ATARI,
        ["--config.retrun_contrast.loss=x"],
        ["did you mean --config.return_contrast.loss?"],
    ),
    (ATARI, ["--seed=0:5"], ["--seed=0:5", "--seeds=0:5"]),
    # The flag that is wrong is named, not one beside it.
    (ATARI, ["--seed=5", "--steps=abc"], ["--steps=abc"]),
    (ATARI, ["--preset=erainbow", "--steps=abc"], ["--steps=abc"]),
    (ATARI, ["--game=Pong,Alien"], ["--game=Pong,Alien", "--games"]),
    (ATARI, ["--preset=dreamer"], ["dreamer", "experiments.dmc"]),
    (SWEEP, ["--presets=rcrl_sac", "--games=cheetah_run", "--results=x"], ["rcrl_sac", "dmc"]),
    (ATARI, ["--config.zzz=3"], ["zzz", "--help"]),
    (ATARI, ["--config.batch_size=1e99"], ["batch_size", "at most 2147483647"]),
    (ATARI, ["--config.auxiliary=\x1b[31mred"], ["auxiliary", r"\x1b[31mred"]),
    (ATARI, ["--config.clip_rewards=maybe"], ["clip_rewards", "maybe"]),
    (ATARI, ["--game=pongg"], ["pongg", "did you mean Pong?"]),
    (ATARI, ["--game=all"], ["'all'"]),
    (DMC, ["--task=all"], ["'all'"]),
    (MINATAR, ["--game=Breakot"], ["Breakot", "did you mean Breakout?"]),
    (MINATAR, ["--games=Breakout,Pong"], ["'Pong'", "SpaceInvaders"]),
    (MINATAR, ["--games=Breakout,Breakout"], ["named twice"]),
    (MINATAR, ["--config.sticky=1.5"], ["sticky", "in [0, 1]", "1.5"]),
    (MINATAR, ["--config.sticky=nan"], ["sticky", "in [0, 1]", "nan"]),
    (MINATAR, ["--steps=1000"], ["steps: 1000", "learn_start"]),
    (MINATAR, ["--preset=rcrl"], ["is a preset of experiments.atari100k"]),
    (MINATAR, ["--config.auxiliary=curl"], ["curl", "encoder"]),
    (DMC, ["--task=cheeta_run"], ["cheeta_run", "did you mean cheetah_run?"]),
    (DMC, ["--tasks=cheetah_run,reacher_easy"], ["learning rate", "two fleets"]),
    (DMC, ["--tasks=finger_spin,cartpole_swingup"], ["action repeat", "two fleets"]),
    (DMC, ["--tasks=finger_spin,finger_spin"], ["named twice"]),
    (DMC, ["--preset=rcrl"], ["--preset=rcrl", "experiments.atari100k"]),
    (DMC, ["--preset=rcrll"], ["preset", "rcrl_sac"]),
    (DMC, ["--preset=state_sac", "--video"], ["no film", "state"]),
    (DMC, ["--backend=envpool", "--preset=state_sac"], ["envpool", "state", "dm_control"]),
    (
        DMC,
        ["--frame_store=device", "--preset=state_sac"],
        ["frame_store=device", "pixels", "states"],
    ),
    (DMC, ["--steps=3"], ["--steps", "action repeat, 4"]),
    (DMC, ["--preset=dreamer", "--config.sequence_length=101"], ["sequence_length", "100"]),
    (DMC, ["--preset=planet", "--config.action_repeat=25"], ["sequence_length", "an episode"]),
    (
        DMC,
        ["--preset=slac", "--config.return_contrast.loss=cross_entropy", "--dry_run"],
        ["return_contrast.loss: has no effect unless auxiliary holds a task"],
    ),
    (ATARI, ["--config.epsilon=0.5"], ["config.epsilon", "unless exploration is 'epsilon_greedy'"]),
    (
        REPRESENTATION,
        ["--presets=rcrl,curl", "--config.epsilon=0.5"],
        ["config.epsilon", "has no effect in any"],
    ),
    (DMC, ["--preset=slac", "--config.replay.capacity=200"], ["batch_size", "replay.capacity"]),
    (EVALUATE, [], ["--workdir"]),
    (EVALUATE, ["--workdir=nowhere"], ["no directory nowhere"]),
    (EVALUATE, ["--workdir=nowhere", "--seeds=1,1"], ["--seeds", "1,1"]),
    (EVALUATE, ["--workdir=x", "--first_episode=7"], ["--first_episode", "multiple of 10"]),
    (SWEEP, [*SHORT_SWEEP, "--gpus_per_fleet=1"], ["--gpus_per_fleet without --ray"]),
    (REPRESENTATION, ["--presets=rcrl,dqn"], ["dqn"]),
    (REPRESENTATION, ["--games=Pong,Alien"], ["one --game"]),
    (REPRESENTATION, ["--from=x.json"], ["no --from"]),
    ("experiments.simple", ["--from=x.json"], ["--from: not here"]),
    (THEORY, ["--page=README.missing"], ["README.missing"]),
    # Two flags of which one would be ignored, and names given twice.
    (ATARI, ["--seed=3", "--seeds=0:2"], ["--seed beside --seeds"]),
    (ATARI, ["--game=Alien", "--games=Pong"], ["--game beside --games"]),
    (REPRESENTATION, ["--presets=rcrl,rcrl"], ["--presets", "named twice"]),
    # Numbers beyond what a machine or a 32-bit counter holds.
    (ATARI, ["--seeds=0:1000"], ["1,000 runs: ", "memory needed"]),
    (ATARI, ["--devices=²"], ["--devices", "expected all or a number"]),
    (ATARI, ["--steps=2147483648"], ["--steps", "2147483647"]),
    (EVALUATE, ["--workdir=x", "--first_episode=2147483647"], ["--first_episode", "1000000"]),
    (REPRESENTATION, ["--pairs=99999999999"], ["--pairs", "10000"]),
    (ATARI, ["--config.replay.capacity=2147483647"], ["memory"]),
    (THROUGHPUT, ["--runs=1,1000"], ["1,000 runs: ", "memory needed"]),
    # Names.
    (ATARI, ["--config.curl.reduced_games=('Doom',)"], ["curl.reduced_games", "Doom"]),
    (ATARI, ["--config.auxiliary=("], ["config.auxiliary", "expected names with commas"]),
    (ATARI, ["--config.auxiliary="], ["config.auxiliary", "expected names with commas"]),
    (ATARI, ["--config.auxiliary=('curll')"], ["auxiliary", "return_contrast", "got ('curll',)"]),
    (ATARI, ["--config.auxiliary=([1],)"], ["auxiliary", "return_contrast"]),
    (ATARI, ["--config.auxiliary=((1,),[2])"], ["auxiliary", "expected names with commas"]),
    (ATARI, ["--config.auxiliary=curl,"], ["auxiliary", "expected names with commas"]),
    (ATARI, ["--config.auxiliary=,curl"], ["auxiliary", "expected names with commas"]),
    (ATARI, ["--config.auxiliary=curl,,return_contrast"], ["expected names with commas"]),
    (ATARI, ["--config.auxiliary=(,)"], ["expected names with commas"]),
    (ATARI, ["--seeds=0,"], ["--seeds", "'0,'"]),
    # Runs that learn nothing.
    (ATARI, ["--steps=1000"], ["steps: 1000", "first update", "1600"]),
    (DMC, ["--preset=state_sac", "--steps=4000"], ["first update", "1000"]),
    # Programs that read runs before they write.
    (COMPARE, ["--first=a", "--second=b", "--results=.", "--output=o/p"], ["no finished run of a"]),
    (COMPARE, ["--first=a", "--second=b", "--results=nowhere", "--output=o"], ["nowhere"]),
    (TABLE1, ["--presets=rcl"], ["--presets", "rcl"]),
    (TABLE2, ["--steps=200,100"], ["--steps", "200,100"]),
    (TABLE1, ["--results=nowhere", "--output=o/p"], ["nowhere"]),
    (FIGURE_DMC, ["--results=/nowhere"], ["/nowhere"]),
    (REPORT, ["--results=nowhere", "--output=o/p.html"], ["nowhere"]),
    (COMPILED, ["--one=x"], ["--one"]),
    (COMPILED, ["--one=5"], ["--one"]),
    (COMPILED, ['--one=[["v5e", "rcrl", 1, "auto", "updat"], null]'], ["--one"]),
    (COMPILED, ['--one=[["v5f", "rcrl", 1, "auto", "update"], null]'], ["--one"]),
    # Output that cannot be written.
    (THROUGHPUT, ["--output=/dev/null"], ["/dev/null"]),
    (THEORY, ["--page=/nope"], ["/nope"]),
]


@pytest.mark.parametrize(
    "module, arguments, says",
    REFUSED,
    ids=[f"{module.split('.')[1]} {' '.join(of)}" for module, of, _ in REFUSED],
)
def test_a_mistake_is_one_line_at_once_and_nothing_is_written(tmp_path, module, arguments, says):
    assert_mistake(programs.call(module, *arguments, directory=tmp_path), says, tmp_path)


@pytest.mark.parametrize("module, name", [(TABLE1, "results"), (SWEEP, "games")])
def test_an_empty_item_of_a_list_is_refused(tmp_path, module, name):
    """`--results=b,` must not read the whole current directory."""
    for value in ("b,", ",", ",b", "b,,c", "b, "):
        result = programs.call(module, f"--{name}={value}", directory=tmp_path)
        assert_mistake(result, [f"--{name}: an item of", "is empty"], tmp_path)


def test_what_is_right_is_accepted(tmp_path):
    call = functools.partial(accepted, directory=tmp_path)
    plan = call(ATARI)
    assert (plan.preset, plan.runs, plan.total_steps) == ("rcrl", (("Pong", 0),), 100_000)
    assert call(ATARI, "--steps=1e5").total_steps == 100_000
    assert call(ATARI, "--steps=50k").total_steps == 50_000
    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4", "PongDeterministic-v4", "Pong-v0"):
        plan = call(ATARI, f"--game={name}")
        assert plan.runs == (("Pong", 0),) and plan.workdir.name == "rcrl-Pong-0"
    plan = call(ATARI, "--config.batch_size=1e2", "--config.auxiliary=curl,return_contrast")
    assert plan.config.batch_size == 100
    assert plan.config.auxiliary == ("curl", "return_contrast")
    assert call(ATARI, "--config.auxiliary=()").config.auxiliary == ()
    for curl in ("('curl',)", "('curl')", "(curl)"):
        assert call(ATARI, f"--config.auxiliary={curl}").config.auxiliary == ("curl",)
    assert not call(ATARI, "--noconfig.clip_rewards").config.clip_rewards
    plan = call(DMC, "--task=cheetah_run")
    assert (plan.config.learning_rate, plan.eval_episodes) == (2e-4, 10)
    plan = call(DMC, "--task=cheetah_run", "--config.learning_rate=1e-3")
    assert plan.config.learning_rate == 1e-3
    plan = call(ATARI, "--games=Pong,Alien", "--seeds=0:2", "--video", "--steps=1601")
    assert plan.runs == (("Pong", 0), ("Pong", 1), ("Alien", 0), ("Alien", 1)) and plan.film
    assert plan.workdir.name == "rcrl-Pong+Alien-0to2"
    plan = call(DMC, "--task=finger_spin", "--seed=3", "--preset=state_sac", "--steps=2002")
    assert (plan.runs, plan.total_steps) == ((("finger_spin", 3),), 1001)
    assert call(REPRESENTATION, "--presets=rcrl").preset == "rcrl"
    flags = tmp_path / "flags"
    flags.write_text("--preset=curl\n--config.batch_size=64\n")
    assert call(ATARI, f"--flagfile={flags}").preset == "curl"


def test_a_lone_number_of_seeds_is_said_to_be_one_seed(tmp_path):
    short = ("--config.learn_start=100", "--config.replay.capacity=1000", "--steps=200")
    for program, *flags in ([MINATAR, *short], [SWEEP, *SHORT_SWEEP]):
        for seeds in ("5", "1", "0", "5:6", "0:5"):
            said = programs.call(
                program, *flags, f"--seeds={seeds}", "--dry_run", directory=tmp_path
            )
            line = "--seeds=5 is seed 5 alone: 5 seeds are --seeds=0:5"
            assert (line in said.stdout.splitlines()) == (seeds == "5"), (program, said)


def test_a_version_is_printed(tmp_path):
    ended = programs.call(ATARI, "--version", directory=tmp_path)
    assert (ended.returncode, ended.stdout) == (0, f"{rcrl_jax.__version__}\n")
    listed = programs.run("rcrl_jax").stdout
    for command, program in commands.PROGRAMS.items():
        assert f"python -m {program} " in listed and f"or {command} " in listed
    assert "--game" in programs.call(ATARI, "-h", directory=tmp_path).stdout


def test_steps_are_environment_steps_at_the_repeat_of_the_agent_or_the_task(tmp_path):
    """Dreamer repeats every action twice on every task, PlaNet as often as the task does."""
    for preset, agent_steps in (("dreamer", 10_000), ("planet", 2500), ("rcrl_sac", 2500)):
        arguments = (f"--preset={preset}", "--task=cartpole_swingup", "--steps=20000")
        plan = accepted(DMC, *arguments, directory=tmp_path)
        assert plan.total_steps == agent_steps, preset


def test_a_video_needs_ffmpeg_before_training(tmp_path, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nope")
    refused = programs.call(ATARI, "--video", directory=tmp_path)
    assert_mistake(refused, ["no ffmpeg", "IMAGEIO_FFMPEG_EXE"], tmp_path)


def test_defaults_of_minatar(tmp_path):
    plan = accepted(MINATAR, directory=tmp_path)
    assert plan.total_steps == 30_000 and plan.workdir.name == "minatar_rcrl-Breakout-0"


def test_a_run_that_holds_a_field_without_effect_is_resumed(tmp_path, monkeypatch):
    plan = toy.make_plan(tmp_path)
    monkeypatch.setattr(command_line, "changed_fields", lambda: {"epsilon": 0.5})
    with pytest.raises(ValueError, match="--config.epsilon: has no effect unless exploration is"):
        launch.check_effects(plan)
    manifest = plan.paths[0].manifest
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    launch.check_effects(plan)


def test_tasks_that_ask_for_different_samples_are_refused(tmp_path, monkeypatch):
    select(monkeypatch)
    refused = programs.call(ATARI, "--config.auxiliary=return_contrast,triplet", directory=tmp_path)
    assert_mistake(refused, ["return_contrast and triplet ask for different"], tmp_path)


def test_every_preset_of_a_representation_experiment_is_checked_before_the_first_trains(
    tmp_path, monkeypatch
):
    check = prediction.check_resources

    def check_all_but_the_second(plan, spec):
        if plan.preset == "rcrl":
            raise prediction.DoesNotFit("rcrl does not fit")
        check(plan, spec)

    monkeypatch.setattr(prediction, "check_resources", check_all_but_the_second)
    refused = programs.call(REPRESENTATION, "--presets=erainbow,rcrl", directory=tmp_path)
    assert_mistake(refused, ["rcrl does not fit"], tmp_path)


@pytest.mark.parametrize("flags", [(ATARI, "--dry_run"), (REPRESENTATION,)])
def test_the_work_directory_is_looked_at_before_anything_starts(flags, tmp_path):
    """Here the last of two presets, or the only one, would go to the directory of another run."""
    program, *more = flags
    workdir = tmp_path / "runs" / ("x" if program == ATARI else "x/rcrl")
    other = workdir / "rcrl" / "Pong" / "seed_7" / "manifest.json"
    other.parent.mkdir(parents=True)
    other.write_text("{}")
    refused = programs.call(program, "--workdir=runs/x", *more, directory=tmp_path)
    assert_refused(refused)
    assert "belongs to rcrl/Pong/seed_7 as well" in refused.stderr
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [other]


TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
NASTY = st.one_of(
    st.sampled_from(
        ["", "0", "-1", "1", "007", "1e9", "nan", "inf", "-inf", "1_0", "²", "0x10", "None", "True",
         "99999999999999999999", "0:5", "0:1000000000", "5:0", "0:", ",", ",,", "1,1", "Pong",
         "Pong,Alien", "all", "cheetah_run", "rcrl", "rcrl,rcrl", "(", "('curl',)", "((((", "'",
         "[[1]]", "{}", "a b", "--", "-dash", "col:on", "..", "/dev/null", "/", "\udcff", "é", "\n",
         "%s", "$HOME", "x" * 3000, "(" * 3000],
    ),
    st.integers().map(str),
    st.floats().map(repr),
    TEXT,
)  # fmt: skip

FLAGS = {
    ATARI: ["game", "games", "seed", "seeds", "steps", "eval_episodes", "backend", "preset"],
    DMC: ["task", "tasks", "seed", "seeds", "steps", "eval_episodes", "backend", "preset"],
    REPRESENTATION: ["game", "presets", "seeds", "snapshot_period", "pairs"],
    EVALUATE: ["workdir", "games", "seeds", "step", "backend", "episodes", "first_episode"],
    SWEEP: ["spec", "experiment", "presets", "games", "seeds", "steps", "results", "niceness"],
}
TRAINING = ["workdir", "video", "batching", "devices", "frame_store", "flagfile", "verbosity"]
FIELDS = {
    ATARI: list(fields.values(presets.ATARI_PRESETS["rcrl"])),
    DMC: list(fields.values(presets.DMC_PRESETS["rcrl_sac"])),
}


@st.composite
def command_lines(draw) -> tuple[str, list[str]]:
    """A program and up to three of its flags, or words like flags, with texts as values."""
    module = draw(st.sampled_from(list(FLAGS)))
    known = [*FLAGS[module], *(TRAINING if module in FIELDS else ())]
    known += [f"config.{name}" for name in FIELDS.get(module, ())]
    names = st.one_of(st.sampled_from(known), st.sampled_from(known), TEXT)
    flag = st.builds("{}{}{}".format, st.sampled_from(["--", "--", "-", "--no", ""]), names,
                     st.one_of(NASTY.map("={}".format), st.just("")))  # fmt: skip
    return module, draw(st.lists(flag, min_size=1, max_size=3))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(command_lines())
def test_no_command_line_ends_in_a_traceback(tmp_path, command_line):
    module, arguments = command_line
    with pytest.MonkeyPatch.context() as patch:
        # It has tests of its own.
        patch.setattr(prediction, "check_resources", lambda *arguments: None)
        try:
            ended = programs.call(module, *arguments, directory=tmp_path)
        except Trained:
            return
    if ended.returncode:
        assert_refused(ended)
    else:
        assert "--help" in ended.stdout or not ended.stderr


SIZES = [
    name
    for name, value in fields.values(presets.ATARI_PRESETS["rcrl_curl"]).items()
    if type(value) is int
]


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(SIZES), st.sampled_from([1, 2, 100, 10**4, 10**6, 2**30, LARGEST_INT]),
        min_size=1, max_size=3,
    ),
    st.sampled_from([1601, 10**6, LARGEST_INT]),
)  # fmt: skip
def test_a_configuration_of_any_size_is_accepted_or_refused(tmp_path, changes, steps):
    arguments = [f"--config.{name}={value}" for name, value in changes.items()]
    arguments += ["--preset=rcrl_curl", f"--steps={steps}"]
    try:
        assert_refused(programs.call(ATARI, *arguments, directory=tmp_path))
    except Trained:
        pass
    assert not list(tmp_path.iterdir())


def test_a_path_that_ffmpeg_takes_for_a_protocol_or_an_option_is_a_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("col:on", "-dash", "pipe:1", "100%d"):
        pathlib.Path(name).mkdir()
        video.write_video(pathlib.Path(name) / "film.mp4", np.zeros((2, 8, 8), np.uint8))
        assert pathlib.Path(name, "film.mp4").read_bytes()[4:8] == b"ftyp"


def test_a_trial_of_the_theory_leaves_its_tracked_results_alone(tmp_path, monkeypatch):
    def start(scale):
        raise Trained

    monkeypatch.setattr(abstraction, "proposition_representation", start)
    for arguments, folder in (["--quick"], "runs/theory-quick"), ([], "results/theory"):
        with pytest.raises(Trained):
            programs.call(THEORY, *arguments, directory=tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == [folder.split("/")[0]]
        (tmp_path / folder).rmdir()
        (tmp_path / folder).parent.rmdir()


@pytest.mark.parametrize(("arguments", "steps"), [((), 102_400), (("--steps=9600",), 9600)])
def test_simple_plans_all_its_rounds_in_colour(tmp_path, monkeypatch, arguments, steps):
    plan = accepted(ATARI, "--preset=simple", "--game=Freeway", *arguments, directory=tmp_path)
    assert plan.total_steps == steps
    made = []
    monkeypatch.setattr(atari, "make_games", lambda *described: made.append(described))
    plan.make_environment(np.zeros((1, 1), int))
    assert made[0][0] == ("Freeway",) and made[0][-1] == atari.Screen((105, 80, 3), 32)
    assert accepted(ATARI, "--game=Pong", directory=tmp_path).total_steps == 100_000
