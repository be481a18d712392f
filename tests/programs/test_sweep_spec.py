"""Specs of sweeps: what they describe; mistakes are one line that names the place."""

import pytest

from rcrl_jax.config import presets
from rcrl_jax.programs.sweeps import work
from rcrl_jax.programs.sweeps.spec import SweepError, make_spec, read_spec
from rcrl_jax.training.environments import ENVIRONMENTS, environment_of
from tests.programs import toy_sweep
from tests.programs.toy_sweep import alone


@pytest.fixture
def read(tmp_path):
    """Reads the toy spec with one piece of its text replaced by another."""

    def read(old="", new="", *, more=""):
        path = tmp_path / "spec.toml"
        text = toy_sweep.TEXT.format(results="results/toy", seeds="0:2", steps=2000)
        assert old in text
        path.write_text(text.replace(old, new, 1) + more)
        return read_spec(path)

    return read


def test_units_are_ordered_by_block_seed_game_and_arm(read):
    spec = read(more='\n[[blocks]]\npresets = ["curl"]\ngames = ["Hero"]\nseeds = [7, 3]\n')
    arms = ("erainbow_sa", "rcrl", "small")
    assert [unit.name for unit in spec.units] == [
        *(f"{arm}-{game}-{seed}" for seed in (0, 1) for game in ("Pong", "Alien") for arm in arms),
        "curl-Hero-7",
        "curl-Hero-3",
    ]


def test_command_and_paths_of_a_preset_and_of_an_arm(read, tmp_path):
    spec = read("hidden_size = 16", 'hidden_size = 16, auxiliary = ["curl"], learning_rate = 1')
    preset, arm = spec.units[1], spec.units[2]
    common = ["--preset=rcrl", "--games=Pong", "--seed=0", "--steps=2000", "--eval_episodes=3"]
    command = spec.make_command(alone(preset), tmp_path)
    assert command[1:] == ["-m", "rcrl_jax.programs.atari100k", *common, f"--workdir={tmp_path}"]
    assert spec.make_command(alone(arm), tmp_path)[len(command) :] == [
        "--arm=small", "--config.hidden_size=16",
        "--config.auxiliary=('curl',)", "--config.learning_rate=1.0"
    ]  # fmt: skip
    assert spec.make_config(arm).auxiliary == ("curl",)
    assert read("steps = 2000", "steps = 1e5").steps == 100_000
    assert str(spec.result_paths(preset).directory) == "results/toy/rcrl/Pong/seed_0"
    assert str(spec.result_paths(arm).directory) == "results/toy/small/rcrl/Pong/seed_0"


def test_without_steps_and_episodes_a_spec_takes_those_of_its_program():
    block = {"presets": ["rcrl"], "games": ["Pong"], "seeds": [0]}
    table = {"experiment": "atari100k", "results": "r"}
    spec = make_spec({**table, "blocks": [block]})
    assert (spec.steps, spec.eval_episodes) == (100_000, 100)
    block = {**block, "presets": ["rcrl", "simple"]}
    with pytest.raises(ValueError, match="^steps is missing: these arms differ"):
        make_spec({**table, "blocks": [block]})


@pytest.mark.parametrize(("rounds", "steps"), [(3, 25_600), (20, 134_400)])
def test_the_usual_steps_are_those_of_the_arm(rounds, steps):
    arms = {"mine": {"preset": "simple", "config": {"rounds": rounds}}}
    block = {"arms": ["mine"], "games": ["Pong"], "seeds": [0]}
    table = {"experiment": "atari100k", "results": "r", "arms": arms, "blocks": [block]}
    assert make_spec(table).steps == steps


def test_arms_of_one_name_are_refused():
    arms = {
        "small": {"preset": "rcrl", "config": {"batch_size": [16, 64]}},
        "small-batch_size=16": {"preset": "rcrl", "config": {"learning_rate": 1e-3}},
    }
    block = {"arms": [*arms], "games": ["Pong"], "seeds": [0]}
    table = {"experiment": "atari100k", "results": "r", "arms": arms, "blocks": [block]}
    with pytest.raises(ValueError, match="two arms are named small-batch_size=16: rename one"):
        make_spec(table)


def test_tasks_keep_their_learning_rate_and_count_agent_steps():
    block = {"presets": ["rcrl_sac"], "games": ["cheetah_run", "walker_walk"], "seeds": [0]}
    table = {"experiment": "dmc", "steps": 8000, "eval_episodes": 1, "results": "r"}
    spec = make_spec({**table, "blocks": [block]})
    assert [spec.agent_steps(unit) for unit in spec.units] == [2000, 4000]
    assert [spec.make_config(unit).learning_rate for unit in spec.units] == [2e-4, 1e-3]
    assert "--tasks=cheetah_run" in spec.make_command(alone(spec.units[0]), "w")
    with pytest.raises(ValueError, match="rcrl_sac on cheetah_run: .* end before the first update"):
        make_spec({**table, "steps": 4000, "blocks": [block]})


def test_the_presets_of_simple_train_for_as_many_steps_as_their_rounds_have():
    block = {"presets": ["simple", "simple_small"], "games": ["Freeway"], "seeds": [0]}
    table = {"experiment": "atari100k", "steps": 25_600, "eval_episodes": 1, "results": "r"}
    spec = make_spec({**table, "blocks": [block]})
    assert [spec.make_config(unit).rounds for unit in spec.units] == [15, 3]
    assert "--preset=simple_small" in spec.make_command(alone(spec.units[1]), "w")
    with pytest.raises(ValueError, match="simple_small on Freeway: .* more than the 25600 of all"):
        make_spec({**table, "steps": 25_601, "blocks": [block]})


def test_a_list_of_values_makes_an_arm_a_value_named_by_field_and_value(read, tmp_path):
    spec = read(
        "hidden_size = 16", "hidden_size = [16, 32]",
        more='\n[config]\nlearning_rate = [1e-4, 2e-4]\nreplay.capacity = 5000\n',
    )  # fmt: skip
    rates = ("learning_rate=0.0001", "learning_rate=0.0002")
    arms = [
        *(f"{preset}-{rate}" for preset in ("erainbow_sa", "rcrl") for rate in rates),
        *(f"small-{rate}-hidden_size={size}" for rate in rates for size in (16, 32)),
    ]
    assert [unit.arm.name for unit in spec.units] == arms * 4
    config = spec.make_config(spec.units[5])
    assert (config.learning_rate, config.hidden_size, config.replay.capacity) == (1e-4, 32, 5000)
    assert str(spec.result_paths(spec.units[2]).directory).endswith(
        "rcrl-learning_rate=0.0001/rcrl/Pong/seed_0"
    )
    command = spec.make_command(alone(spec.units[3]), tmp_path)
    assert "--config.learning_rate=0.0002" in command and "--preset=rcrl" in command
    lists = read("hidden_size = 16", 'auxiliary = [["curl"], ["curl", "return_contrast"]]')
    assert [unit.arm.name for unit in lists.units[2:4]] == [
        "small-auxiliary=curl", "small-auxiliary=curl+return_contrast"
    ]  # fmt: skip


def test_a_name_that_no_file_can_have_is_refused(read):
    arm = "a" * 200
    block = f'[[blocks]]\narms = ["{arm}"]\ngames = ["Pong"]\nseeds = [0]\n'
    with pytest.raises(SweepError, match="a: the name is too long"):
        read(more=f'\n[arms.{arm}]\npreset = "rcrl"\nconfig = {{hidden_size = 8}}\n{block}')


@pytest.mark.parametrize(
    "more, says",
    [
        ("learning_rate = []", "config.learning_rate: the list of values is empty"),
        ("learning_rate = [1e-4, 'a']", "config.learning_rate: expected a number, got 'a'"),
        ("learning_rate = [1e-4, -1]", "config: learning_rate: must be "),
        ("learning_rate = [1e-4, 1e-4]", "learning_rate=0.0001-Pong-0 twice"),
        ("lerning_rate = 1e-4", "did you mean learning_rate"),
        ("epsilon = [0.5, 0.6]", "erainbow_sa-epsilon=0.5 on Pong: config.epsilon: has no effect"),
    ],
)
def test_wrong_fields_of_all_arms_are_refused(read, more, says):
    with pytest.raises(SweepError) as raised:
        read(more=f"\n[config]\n{more}\n")
    assert says in str(raised.value)


@pytest.mark.parametrize(
    "old, new, says",
    [
        ("steps = 2000", "steps = ", "Invalid value"),
        ("steps = 2000", "stepps = 2000", "unknown 'stepps': did you mean steps?"),
        ("steps = 2000", 'games = ["Pong"]', "games: stands in [[blocks]]"),
        ("steps = 2000", "steps = 1.5", "steps: expected a whole number, got 1.5"),
        ("hidden_size = 16", 'curl.reduced_games = ["Doom"]', "small on Pong: curl.reduced_games"),
        pytest.param("steps = 2000", "steps = " + "[" * 5000, "nested too deeply", id="deep list"),
        pytest.param("hidden_size", "a" + ".a" * 5000, "nested too deeply", id="deep table"),
        ("[arms.small]", r'[arms."\u001b[31m"]', r"arms.\x1b[31m: an arm's name"),
        ('"atari100k"', r'"\u001b[31m"', r"experiment: unknown '\x1b[31m'"),
        ("steps = 2000", "steps = 3", "3 agent steps end before the first update"),
        ("eval_episodes = 3", "eval_episodes = 0", "eval_episodes: must be at least 1"),
        ('"atari100k"', '"atari"', "experiment: unknown 'atari': did you mean atari100k or "),
        ('"results/toy"', "3", "results: expected a directory, got 3"),
        ("[[blocks]]", "[blocks]", "blocks: expected [[blocks]] tables"),
        ("[arms.small]", '[arms."a/b"]', "arms.a/b: an arm's name"),
        ("[arms.small]", "[arms.minatar_rcrl]", "arms.minatar_rcrl: an arm's name"),
        ('preset = "rcrl"', 'preset = "rcl"', "arms.small: preset: unknown 'rcl': did you mean"),
        ("{ hidden_size = 16 }", "3", "arms.small: config: expected changed fields, got 3"),
        ("hidden_size = 16", "hiden_size = 16", "did you mean hidden_size"),
        ("hidden_size = 16", "hidden_size = 1.5", "hidden_size: expected a whole number, got 1.5"),
        ("hidden_size = 16", "hidden_size = -1", "arms.small: config: hidden_size: must be "),
        ("hidden_size = 16", "clip_rewards = 1", "clip_rewards: expected true or false, got 1"),
        ("hidden_size = 16", 'auxiliary = "curl"', "auxiliary: expected a list"),
        ('"rcrl"]', '"rcl"]', "block 1: presets: unknown 'rcl'"),
        ('"rcrl"]', '"Pong"]', "block 1: presets: unknown 'Pong'"),
        ('"rcrl"]', '"rcrl_sac"]', "block 1: presets: 'rcrl_sac' is of experiment dmc"),
        ("steps = 2000", 'curl = "x"', "keys: unknown 'curl'"),
        ('["small"]', '"small"', "block 1: arms: expected a list of names"),
        ('presets = ["erainbow_sa", "rcrl"]\narms = ["small"]', "", "presets or arms are missing"),
        ('["Pong", "Alien"]', '["Pong", "Alein"]', "block 1: games: unknown 'Alein'"),
        ('games = ["Pong", "Alien"]', "", "block 1: games is missing"),
        ('"0:2"', "[1, 1]", "block 1: seeds: expected different seeds"),
        ('["Pong", "Alien"]', '["Pong", "Pong"]', "the sweep holds erainbow_sa-Pong-0 twice"),
        ("hidden_size = 16", "hidden_size = 256", "small-Pong-0 and rcrl-Pong-0, one run"),
        ('seeds = "0:2"', 'seeds = "0:2"\nseed = 3', "block 1: keys: unknown 'seed'"),
    ],
)
def test_a_wrong_spec_is_refused_in_one_line(read, tmp_path, old, new, says):
    with pytest.raises(SweepError) as raised:
        read(old, new)
    assert says in str(raised.value) and str(raised.value).isprintable()
    assert str(raised.value).startswith(f"{tmp_path}/spec.toml: ")


def test_a_field_without_effect_is_refused_unless_the_run_is_finished(tmp_path):
    arm = {"preset": "rcrl", "config": {"epsilon": 0.5}}
    block = {"arms": ["odd"], "games": ["Pong"], "seeds": [0]}
    table = {
        "experiment": "atari100k", "steps": 4000, "eval_episodes": 1, "results": str(tmp_path),
        "arms": {"odd": arm}, "blocks": [block],
    }  # fmt: skip
    with pytest.raises(ValueError, match="odd on Pong: config.epsilon: has no effect unless expl"):
        make_spec(table)
    manifest = tmp_path / "odd" / "rcrl" / "Pong" / "seed_0" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    assert len(make_spec(table).units) == 1


@pytest.mark.parametrize(
    ("preset", "game", "config", "says"),
    [
        ("erainbow", "Pong", {"encoder": "minatar"}, r"uint8 \[84, 84\]; choose data_efficient or"),
        ("minatar_rcrl", "Breakout", {"encoder": "nature"}, r"\[10, 10, 4\]; choose minatar"),
        (
            "dreamer_rcrl",
            "walker_walk",
            {"return_contrast.anchors": "rl_batch"},
            "learns from windows",
        ),
    ],
)
def test_what_every_fleet_would_refuse_is_refused(preset, game, config, says):
    environment = environment_of(presets.all_presets()[preset], game)
    (experiment,) = [name for name, one in ENVIRONMENTS.items() if one is environment]
    block = {"presets": [preset], "games": [game], "seeds": [0]}
    table = {"experiment": experiment, "results": "r", "config": config, "blocks": [block]}
    with pytest.raises(ValueError, match=says):
        make_spec(table)


def test_an_environment_stands_in_place_of_an_experiment():
    """Fields follow from what each game shows; a fleet plays one game."""
    table = {
        "environment": ["gymnasium:CartPole-v1", "gymnasium:Acrobot-v1"], "steps": 2000,
        "eval_episodes": 1, "results": "r", "blocks": [{"presets": ["rcrl"], "seeds": [0]}],
    }  # fmt: skip
    spec = make_spec(table)
    assert [unit.game for unit in spec.units] == ["gymnasium.CartPole-v1", "gymnasium.Acrobot-v1"]
    assert {(spec.make_config(u).encoder, spec.make_config(u).frame_stack) for u in spec.units} == {
        ("dense", 1)
    }
    for one in (spec, make_spec({**table, "games_per_fleet": 2})):
        assert [fleet.games for fleet in work.group(one, one.units, 10)] == [
            ("gymnasium.CartPole-v1",),
            ("gymnasium.Acrobot-v1",),
        ]
    command = spec.make_command(alone(spec.units[1]), "w")
    assert command[1:5] == [
        "-m", "rcrl_jax.programs.train", "--preset=rcrl", "--environment=gymnasium:Acrobot-v1",
    ]  # fmt: skip
    one = {**table, "blocks": [{**table["blocks"][0], "games": ["gymnasium:Acrobot-v1"]}]}
    assert [unit.game for unit in make_spec(one).units] == ["gymnasium.Acrobot-v1"]


@pytest.mark.parametrize(
    "environment, preset, words",
    [
        (5, "rcrl", "environment: expected gymnasium:CartPole-v1 or a list, got 5"),
        ([], "rcrl", "environment: expected gymnasium:CartPole-v1 or a list"),
        ("CartPole-v1", "rcrl", "environment 'CartPole-v1': expected gymnasium:CartPole-v1"),
        ("gymnasium:CartPol-v1", "rcrl", "gymnasium:CartPol-v1: .*Did you mean"),
        ("gymnasium:CartPole-v1", "rcrl_sac", "has discrete actions"),
        ("gymnasium:Pendulum-v1", "rcrl", "has continuous actions"),
    ],
)
def test_an_environment_that_cannot_be_trained_is_refused(environment, preset, words):
    table = {
        "environment": environment, "steps": 2000, "eval_episodes": 1, "results": "r",
        "blocks": [{"presets": [preset], "seeds": [0]}],
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        make_spec(table)
