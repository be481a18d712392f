"""Training of code bases in JAX, for `process.py`.

Each function takes the directory of a clone, makes the first updates and returns what `serve`
takes. `_StandIns` stands for packages that a clone imports and that its updates do not use.
"""

import functools
import importlib
import importlib.machinery
import pathlib
import re
import sys
import textwrap
import types
from unittest import mock

import numpy as np

BATCH, ATOMS, ACTIONS = 32, 51, 6
CONTROL_ACTIONS, CONTROL_STATE, CONTROL_FILLED = 6, 17, 1000
CONTROL_BATCHES = {"drq": 128, "sac": 256}
SEQUENCE, REPLAY_CAPACITY = 4 + 20, 10_000  # frames of a stack and of an n-step return
WARM_STEPS, WARM_UPDATES = 21, 3  # before the clock starts


class _StandIn(types.ModuleType):
    """A module that has every attribute."""

    def __getattr__(self, name):
        """Anything but a module's own dunders."""
        if name.startswith("__"):
            raise AttributeError(name)
        value = mock.MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, value)
        return value


class _StandIns:
    """Finds a stand-in for each of the named modules and for all modules below them."""

    def __init__(self, *names):
        self._names = names

    def find_spec(self, name, path=None, target=None):
        """As `importlib.abc.MetaPathFinder`."""
        if any(name == own or name.startswith(f"{own}.") for own in self._names):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        """As `importlib.abc.Loader`."""
        return _StandIn(spec.name)

    def exec_module(self, module):
        """As `importlib.abc.Loader`."""


def _import_from(directory: pathlib.Path, *stand_ins: str) -> None:
    sys.path.insert(0, str(directory))
    sys.meta_path.insert(0, _StandIns(*stand_ins))


def _program(function, arguments, **static):
    """The text of a jitted function before the compiler's passes; see `serve`."""
    traced = function.trace(*arguments, **static)
    return traced.lower(lowering_platforms=("cuda",)).as_text("hlo"), {}


def without_orphan(source: str) -> str:
    """Dopamine's `atari_lib.py` without a function's body whose `def` line 5873f54 has lost."""
    return re.sub(r"\n  if not destination_dir:\n.*?(?=\n\n@gin)", "", source, flags=re.DOTALL)


def dopamine(agent_name: str, directory: pathlib.Path):
    """Agent steps on Pong, each with its update, of the laboratory `atari_100k`.

    The runner's loop, the replay and the emulator are Dopamine's. Nothing is logged.
    """
    # It would use TensorFlow's stand-in.
    importlib.import_module("tensorflow_probability.substrates.jax.distributions")
    _import_from(
        directory, "tensorflow", "gym", "baselines", "flax.metrics.tensorboard", "dopamine.tf",
        "dopamine.discrete_domains.gym_lib",
    )  # fmt: skip
    domains = importlib.import_module("dopamine.discrete_domains")
    path = directory / "dopamine" / "discrete_domains" / "atari_lib.py"
    domains.atari_lib = types.ModuleType("dopamine.discrete_domains.atari_lib")
    sys.modules[domains.atari_lib.__name__] = domains.atari_lib
    exec(compile(without_orphan(path.read_text()), path, "exec"), domains.atari_lib.__dict__)  # noqa: S102
    import gin
    import jax
    from absl import logging
    from dopamine.jax.agents.full_rainbow import full_rainbow_agent
    from dopamine.labs.atari_100k import (  # noqa: F401 - the configuration names the last
        atari_100k_rainbow_agent,
        atari_100k_runner,
        eval_run_experiment,
    )

    logging.set_verbosity(logging.ERROR)
    settings = directory / "dopamine" / "labs" / "atari_100k" / "configs" / f"{agent_name}.gin"
    gin.parse_config_file(str(settings), skip_unknown=["OutOfGraphPrioritizedReplayBuffer"])

    class Runner(atari_100k_runner.DataEfficientAtariRunner):
        def _maybe_save_single_summary(self, *arguments, **named):
            pass

    runner = Runner(
        "unused",
        lambda session, environment, summary_writer: atari_100k_rainbow_agent.Atari100kRainbowAgent(
            num_actions=environment.action_space.n, seed=0
        ),
    )
    agent, state, environments = runner._agent, None, runner.train_envs
    agent.eval_mode = False
    agent.restore_train_state()

    def advance(count):
        nonlocal state, environments
        *_, state, environments = runner._run_parallel(
            environments, max_steps=count - 1, needs_reset=state is None, resume_state=state
        )
        jax.block_until_ready(agent.online_params)

    def program():
        with mock.patch.object(
            full_rainbow_agent, "train", wraps=full_rainbow_agent.train
        ) as train:
            agent._training_step_update()
        return _program(full_rainbow_agent.train, train.call_args.args)

    advance(agent.min_replay_history + WARM_STEPS)
    return jax.__version__, advance, program


def cleanrl(directory: pathlib.Path):
    """The update of `c51_atari_jax.py` alone, on one batch of noise.

    The file is a script that trains, so its network and its update are cut out of its text.
    """
    import flax
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import optax
    from flax.training.train_state import TrainState

    text = (directory / "cleanrl" / "c51_atari_jax.py").read_text()
    networks = text[text.index("# ALGO LOGIC: initialize agent here:") :]
    networks = networks[: networks.index("def linear_schedule")]
    update = text[text.index("    @jax.jit\n    def update") :]
    update = update[: update.index("    @jax.jit\n    def get_action")]
    # Today's names in `jnp.clip`.
    update = textwrap.dedent(update).replace("a_min=", "min=").replace("a_max=", "max=")
    names = {
        "flax": flax, "nn": nn, "jax": jax, "jnp": jnp, "np": np, "TrainState": TrainState,
        "args": types.SimpleNamespace(n_atoms=ATOMS, v_min=-10, v_max=10, gamma=0.99),
    }  # fmt: skip
    exec(networks, names)  # noqa: S102
    network = names["q_network"] = names["QNetwork"](action_dim=ACTIONS, n_atoms=ATOMS)
    exec(update, names)  # noqa: S102
    random = np.random.default_rng(0)
    frames = random.integers(0, 256, (2, BATCH, 4, 84, 84), np.uint8)
    params = network.init(jax.random.PRNGKey(0), frames[0, :1])
    state = names["TrainState"].create(
        apply_fn=network.apply, params=params, target_params=params,
        atoms=jnp.linspace(-10, 10, ATOMS), tx=optax.adam(2.5e-4, eps=0.01 / BATCH),
    )  # fmt: skip
    actions = random.integers(0, ACTIONS, (BATCH, 1))
    rewards = random.normal(size=(BATCH, 1)).astype(np.float32)
    batch = frames[0], actions, frames[1], rewards, np.zeros((BATCH, 1), np.float32)

    def advance(count):
        nonlocal state
        for _ in range(count):
            *_, state = names["update"](state, *batch)
        jax.block_until_ready(state.params)

    advance(WARM_UPDATES)
    return jax.__version__, advance, lambda: _program(names["update"], (state, *batch))


def jaxrl(kind: str, directory: pathlib.Path):
    """Updates of DrQ from pixels or SAC from states, with sampling from arrays of noise."""
    import flax
    import jax

    jax.tree_multimap = jax.tree.map  # the clone uses a name that JAX has dropped
    flax.config.update("flax_return_frozendict", True)
    _import_from(
        directory, "gym", "d4rl", "gdown", "dm_control", "dm_env",
        "jaxrl.networks.autoregressive_policy",
    )  # fmt: skip
    learner_module = importlib.import_module(f"jaxrl.agents.{kind}.{kind}_learner")
    from jaxrl.datasets import Batch

    random = np.random.default_rng(0)
    if kind == "drq":
        pixels = (2, CONTROL_FILLED, 84, 84, 9)
        observations = random.integers(0, 256, pixels, np.uint8)
        make = learner_module.DrQLearner
    else:
        states = (2, CONTROL_FILLED, CONTROL_STATE)
        observations = random.normal(size=states).astype(np.float32)
        make = learner_module.SACLearner
    actions = random.uniform(-1, 1, (CONTROL_FILLED, CONTROL_ACTIONS)).astype(np.float32)
    rewards = random.random(CONTROL_FILLED).astype(np.float32)
    masks = np.ones(CONTROL_FILLED, np.float32)
    learner = make(0, observations[0, :1], actions[:1])

    def sample():
        rows = random.integers(0, CONTROL_FILLED, CONTROL_BATCHES[kind])
        return Batch(
            observations[0, rows], actions[rows], rewards[rows], masks[rows],
            observations[1, rows],
        )  # fmt: skip

    def advance(count):
        for _ in range(count):
            learner.update(sample())
        jax.block_until_ready((learner.actor.params, learner.critic.params))

    def program():
        update = learner_module._update_jit
        with mock.patch.object(learner_module, "_update_jit", wraps=update) as called:
            learner.update(sample())
        return _program(update, called.call_args.args)

    advance(WARM_UPDATES)
    return jax.__version__, advance, program


def flashbax(runs: int, directory: pathlib.Path):
    """Turns of a full prioritised replay of Atari's frames: add, sample, set priorities.

    A sample is a sequence that holds the stacks of an n-step transition. Several runs are one
    buffer with a run axis.
    """
    _import_from(directory)
    import flashbax as fbx
    import jax
    import jax.numpy as jnp

    buffer = fbx.make_prioritised_trajectory_buffer(
        add_batch_size=1, sample_batch_size=BATCH, sample_sequence_length=SEQUENCE, period=1,
        min_length_time_axis=SEQUENCE, max_length_time_axis=REPLAY_CAPACITY, priority_exponent=0.5,
        device="cpu",
    )  # fmt: skip
    item = {
        "frame": jnp.zeros((84, 84), jnp.uint8), "action": jnp.int32(0),
        "reward": jnp.float32(0), "done": jnp.array(False),
    }  # fmt: skip
    over_runs, lead = (jax.vmap, (runs,)) if runs > 1 else (lambda function: function, ())
    state = over_runs(lambda _: buffer.init(item))(np.arange(runs))
    add = jax.jit(over_runs(buffer.add), donate_argnums=0)
    draw = jax.jit(over_runs(buffer.sample))
    set_priorities = jax.jit(over_runs(buffer.set_priorities), donate_argnums=0)
    random = np.random.default_rng(0)

    def items(number):
        return {
            "frame": random.integers(0, 256, (*lead, 1, number, 84, 84), np.uint8),
            "action": np.zeros((*lead, 1, number), np.int32),
            "reward": np.zeros((*lead, 1, number), np.float32),
            "done": random.random((*lead, 1, number)) < 1 / 300,
        }

    part = items(100)
    for _ in range(REPLAY_CAPACITY // 100 + 1):
        state = add(state, part)
    one, key = items(1), jax.random.key(0)
    loss = random.exponential(size=(*lead, BATCH)).astype(np.float32)

    def advance(count):
        nonlocal state, key
        for _ in range(count):
            key, own = jax.random.split(key)
            state = add(state, one)
            drawn = draw(state, jax.random.split(own, runs) if lead else own)
            state = set_priorities(state, drawn.indices, loss)
            jax.block_until_ready((state, drawn))

    advance(WARM_UPDATES)
    return jax.__version__, advance, lambda: None


START = {
    "dopamine_der": functools.partial(dopamine, "DER"),
    "dopamine_drq": functools.partial(dopamine, "DrQ_eps"),
    "cleanrl": cleanrl,
    "jaxrl_drq": functools.partial(jaxrl, "drq"),
    "jaxrl_sac": functools.partial(jaxrl, "sac"),
    "flashbax_1": functools.partial(flashbax, 1),
    "flashbax_26": functools.partial(flashbax, 26),
}
