"""SimPLe (Kaiser et al., 2020), as pure functions of a run.

As in SimPLe's code, github.com/tensorflow/tensor2tensor of May 2019. One policy learns by PPO, in
the real game and in a learned game, which never ends:

    round        0              1                  2            ...
    real game    2 x 3200 steps 2 x 3200           2 x 3200
    updates      r  r m...m p..p  r  r m....m p..p   r  r m...

    r  PPO on the newest 3200 steps, as if 16 agents had played 200 each
    m  one step of the world model on windows of all rounds
    p  PPO on 16 rollouts of 50 steps in the model, which start at frames of the newest round

Consecutive updates of one kind are a phase. Adam's count of steps and the means of metrics restart
with each phase.

All updates come before the next action, so that r learns from the actions of a single policy.
"""

from collections.abc import Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rcrl_jax import observations, types
from rcrl_jax.agents import agent
from rcrl_jax.agents.simple import model as simple_model
from rcrl_jax.agents.simple import network as networks
from rcrl_jax.agents.simple import ppo
from rcrl_jax.agents.simple import settings as training
from rcrl_jax.agents.simple.config import SimpleConfig
from rcrl_jax.agents.simple.settings import MODEL, REAL
from rcrl_jax.envs.protocol import EnvironmentProtocol, EnvironmentSpec
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.ops import adafactor, adam, native
from rcrl_jax.tasks import task


class SimpleParams(NamedTuple):
    """All parameters of the agent."""

    model: types.Params
    policy: types.Params


class Progress(NamedTuple):
    """Where learning stands in its phases."""

    model_updates: jax.Array  # [] int32
    kind: jax.Array  # [] int32, of the last update
    in_phase: jax.Array  # [] int32, updates of the current phase so far
    metrics: dict[str, jax.Array]  # means over the last phase of each kind, so far


class OptimizerStates(NamedTuple):
    """States of the two optimisers, and the progress that sets rates and counts of steps."""

    model: optax.OptState
    policy: optax.OptState
    progress: Progress


_METRICS = (
    "loss_pixels", "loss_reward", "loss_bits", "windows_with_reward", "model_gradient_norm",
    "loss_policy_real", "loss_value_real", "entropy_real", "reward_real",
    "loss_policy_in_model", "loss_value_in_model", "entropy_in_model", "reward_in_model",
)  # fmt: skip


class Parts(NamedTuple):
    """What all functions of the agent read; none of it is an array."""

    config: SimpleConfig
    num_actions: int  # A, of the fleet's largest action set
    world: simple_model.World
    policy: networks.Policy
    model_optimizer: adam.Optimizer
    policy_optimizer: adam.Optimizer

    @property
    def stack(self) -> int:
        """C, frames that policy and model read."""
        return self.config.frame_stack


def make_parts(config: SimpleConfig, spec: EnvironmentSpec) -> Parts:
    """Makes networks and optimisers; see `make_agent`."""
    make_world = (
        simple_model.make_stochastic
        if config.model == "stochastic"
        else simple_model.make_deterministic
    )
    return Parts(
        config=config,
        num_actions=spec.max_num_actions,
        world=make_world(config, spec.max_num_actions),
        policy=networks.Policy(spec.max_num_actions),
        model_optimizer=adafactor.make_adafactor(
            simple_model.model_rate(config), max_norm=config.model_gradient_norm
        ),
        policy_optimizer=adam.make_tensorflow_adam(
            config.policy_learning_rate, eps=config.adam_epsilon, b1=config.adam_b1,
            b2=config.adam_b2, max_norm=config.policy_gradient_norm,
        ),
    )  # fmt: skip


def init(
    parts: Parts,
    run: types.RunSpec,
    key: chex.PRNGKey,
    initial: Mapping[str, jax.Array] | None = None,
) -> types.LearnerState:
    """See `Agent.init`."""
    del run  # the networks do not depend on the run
    keys = jax.random.split(key, 3)
    frames = jnp.zeros((1, parts.stack, *parts.config.frame_shape))
    drawn = SimpleParams(parts.world.init(keys[0]), parts.policy.init(keys[1], frames))
    params = agent.begin_with(drawn, initial)
    none_yet = jnp.zeros((), jnp.int32)
    opt_state = OptimizerStates(
        parts.model_optimizer.init(params.model),
        parts.policy_optimizer.init(params.policy),
        Progress(none_yet, none_yet, none_yet, {name: jnp.zeros(()) for name in _METRICS}),
    )
    return agent.first_state({}, types.TrainableParams(params, {}), (), opt_state, keys[2])


def act(parts: Parts, run, params: SimpleParams, observation, memory, key, policy_name, step):
    """See `Agent.act`; the observation is `[N, C, H, W, 3] uint8`."""
    del step
    log, _ = evaluate_policy(parts, params.policy, run, observation)
    temperature = training.POLICIES[policy_name]
    if temperature == 0.0:
        action = jnp.argmax(log, axis=-1)
    else:
        action = jax.random.categorical(key, log / temperature)
    return action.astype(jnp.int32), memory


def evaluate_policy(
    parts: Parts, params: types.Params, run: types.RunSpec, stacks: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Log-probabilities `[N, A]` and values `[N]` of stacks `[N, C, H, W, 3]`."""
    logits, value, _ = parts.policy.apply(params, stacks.astype(jnp.float32))
    valid = jnp.arange(parts.num_actions)[None] < run.num_valid_actions
    return jax.nn.log_softmax(jnp.where(valid, logits, -jnp.inf)), value


def update(parts: Parts, run, state: types.LearnerState, batch: types.Batch, kind: int = MODEL):
    """See `Agent.update`."""
    windows: types.SequenceBatch = batch.transitions
    key, learn_key = jax.random.split(native.wrap_key(state.key))
    params, opt_state = state.params.agent, state.opt_state
    progress: Progress = opt_state.progress
    in_phase = jnp.where(progress.kind == kind, progress.in_phase, 0) + 1
    if kind == MODEL:
        model, model_state, metrics = learn_model(
            parts, params.model, opt_state.model, progress.model_updates, windows, learn_key
        )
        params, opt_state = params._replace(model=model), opt_state._replace(model=model_state)
    else:
        # Between phases, the source saves Adam's moments, but not the powers of the decay rates.
        policy_state = adam.restart_count(opt_state.policy, in_phase == 1)
        learn = learn_in_real_game if kind == REAL else learn_in_model
        policy, policy_state, metrics = learn(parts, run, params, policy_state, windows, learn_key)
        params, opt_state = params._replace(policy=policy), opt_state._replace(policy=policy_state)
    model_updates = progress.model_updates + (kind == MODEL)
    means = {
        name: jnp.where(in_phase == 1, new, mean + (new - mean) / in_phase)
        for name, new in metrics.items()
        for mean in (progress.metrics[name],)
    }
    progress = Progress(model_updates, jnp.int32(kind), in_phase, progress.metrics | means)
    opt_state = opt_state._replace(progress=progress)
    state = agent.next_state({}, state, types.TrainableParams(params, {}), opt_state, key)
    unread = jnp.ones(len(windows.reward))  # windows are drawn without priorities
    return state, types.UpdateResult(unread, progress.metrics)


def learn_model(
    parts: Parts,
    params: types.Params,
    opt_state: optax.OptState,
    updates: jax.Array,
    windows: types.SequenceBatch,
    key: chex.PRNGKey,
):
    """One step of the world model on windows `[B, L, ...]`, after `updates []` earlier ones.

    Returns:
      Parameters and optimiser state of the model, metrics.
    """
    gradients, metrics = jax.grad(parts.world.loss, has_aux=True)(params, windows, updates, key)
    params, opt_state, metrics["model_gradient_norm"] = parts.model_optimizer.step(
        gradients, opt_state, params
    )
    has_reward = jnp.any(windows.reward[:, parts.stack - 1 : -1] != 0, axis=1)
    metrics["windows_with_reward"] = jnp.mean(has_reward)
    return params, opt_state, metrics


def learn_in_real_game(
    parts: Parts, run, params: SimpleParams, opt_state, windows: types.SequenceBatch, key
):
    """PPO on the newest steps; the window starts with older frames that the stacks need.

    Returns:
      Parameters and optimiser state of the policy, metrics.
    """
    config, stack = parts.config, parts.stack
    frames, steps = windows.observation[0], config.real_rollout // config.real_agents
    newest = jnp.arange(stack - 1, len(frames))
    firsts = jax.lax.cummax(jnp.where(windows.is_first[0], jnp.arange(len(frames)), 0))[newest]
    back = jnp.arange(stack)[::-1]
    places = jnp.maximum(newest[:, None] - back[None], firsts[:, None])

    def by_agent(x):
        return x.reshape(config.real_agents, steps, *x.shape[1:]).swapaxes(0, 1)

    places = by_agent(places)
    action, reward, discount = (
        by_agent(x[0, stack - 1 :]) for x in (windows.action, windows.reward, windows.discount)
    )
    log, value = jax.lax.map(
        lambda at: evaluate_policy(parts, params.policy, run, frames[at]), places
    )
    chosen = jnp.take_along_axis(log, action[..., None], axis=-1)[..., 0]
    rollout = ppo.Rollout(action, reward, discount == 0, chosen, value)
    return learn_policy(parts, run, params.policy, opt_state, rollout, frames, places, key, "real")


def learn_in_model(
    parts: Parts, run, params: SimpleParams, opt_state, windows: types.SequenceBatch, key
):
    """PPO on rollouts in the model, which start at the stacks `[N, C, ...]` of the windows.

    Returns:
      Parameters and optimiser state of the policy, metrics.
    """
    world, stack = parts.world, parts.stack
    stacks = windows.observation.astype(jnp.float32)
    rollout_key, learn_key = jax.random.split(key)

    def step(carried, key):
        stacks, model_state = carried
        action_key, model_key = jax.random.split(key)
        log, value = evaluate_policy(parts, params.policy, run, stacks)
        action = jax.random.categorical(action_key, log).astype(jnp.int32)
        prediction, model_state = world.step(params.model, model_state, stacks, action, model_key)
        chosen = jnp.take_along_axis(log, action[:, None], axis=1)[:, 0]
        done = jnp.zeros(action.shape, bool)
        taken = ppo.Rollout(action, prediction.sign, done, chosen, value)
        newest = stacks[:, -1].astype(jnp.uint8)
        stacks = jnp.concatenate([stacks[:, 1:], prediction.frame[:, None]], axis=1)
        return (stacks, model_state), (taken, newest)

    start = stacks, world.start(params.model, stacks)
    keys = jax.random.split(rollout_key, parts.config.model_rollout)
    _, (rollout, newest) = jax.lax.scan(step, start, keys)
    before = windows.observation[:, :-1].swapaxes(0, 1)
    frames = jnp.concatenate([before, newest])  # [T + C - 1, N, H, W, 3]
    steps, agents = rollout.action.shape
    time = jnp.arange(steps)[:, None] + jnp.arange(stack)[None]
    places = time[:, None] * agents + jnp.arange(agents)[None, :, None]
    frames = frames.reshape(-1, *frames.shape[2:])
    return learn_policy(
        parts, run, params.policy, opt_state, rollout, frames, places, learn_key, "in_model"
    )


def learn_policy(
    parts: Parts,
    run: types.RunSpec,
    params: types.Params,
    opt_state: optax.OptState,
    rollout: ppo.Rollout,
    frames: jax.Array,
    places: jax.Array,
    key: chex.PRNGKey,
    where: str,
):
    """PPO on a rollout `[T, N]`.

    Args:
      parts: of the agent.
      run: the run.
      params: of the policy.
      opt_state: of the policy.
      rollout: what was done.
      frames: `[F, H, W, 3]`.
      places: `[T, N, C] int32`, of the stacks' frames.
      key: of the shuffles.
      where: names the metrics.

    Returns:
      Parameters and optimiser state of the policy, metrics.
    """
    config = parts.config
    targets = ppo.targets(rollout, config.discount, config.advantage_lambda)
    learned = jax.tree.map(lambda x: x[:-1], rollout)

    def minibatch_loss(params, at):
        chosen = places[at]
        stacks = frames[chosen].reshape(-1, *chosen.shape[2:], *frames.shape[1:])
        log, value = evaluate_policy(parts, params, run, stacks)
        steps = jax.tree.map(lambda x: x[at].reshape(-1), (learned, targets))
        return ppo.loss(log, value, *steps, config.ratio_clip, config.entropy_weight)

    def step(carried, at):
        params, opt_state = carried
        gradients, metrics = jax.grad(minibatch_loss, has_aux=True)(params, at)
        params, opt_state, _ = parts.policy_optimizer.step(gradients, opt_state, params)
        return (params, opt_state), metrics

    batches = ppo.minibatches(key, len(places) - 1, config.passes, config.minibatch_steps)
    (params, opt_state), metrics = jax.lax.scan(step, (params, opt_state), batches)
    metrics = {f"{name}_{where}": values.mean() for name, values in metrics.items()}
    metrics[f"reward_{where}"] = rollout.reward.mean()
    return params, opt_state, metrics


def embed(parts: Parts, params: SimpleParams, pairs: types.Pairs) -> jax.Array:
    """phi(s, a): the policy's last hidden layer and the action, one-hot."""
    context: types.Context = pairs.observation
    # Frames before the first frame of an episode are copies of that frame, as in acting.
    places = jnp.maximum(
        jnp.arange(parts.stack)[None], jnp.argmax(context.exists, axis=1, keepdims=True)
    )
    stacks = jnp.take_along_axis(context.frames, places[..., None, None, None], axis=1)
    _, _, hidden = parts.policy.apply(params.policy, stacks.astype(jnp.float32))
    return jnp.concatenate([hidden, jax.nn.one_hot(pairs.action, parts.num_actions)], axis=-1)


def make_agent(
    config: SimpleConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment.

    Args:
      config: the configuration.
      spec: shape of a frame, and the number A of actions of the fleet's largest action set.
      makers: none.

    Raises:
      Incompatible: the environment's frames do not fit, or there are auxiliary tasks.
    """
    if makers:
        raise types.Incompatible(f"SimPLe has no auxiliary tasks: {', '.join(makers)}")
    observations.check_frames(spec.frame, config.frame_shape)
    parts = make_parts(config, spec)
    layout = observations.as_rendered(config.frame_shape, np.uint8)
    return agent.Agent(
        **agent.bind(parts, {}, init=init, act=act, update=update, embed=embed),
        action=jax.ShapeDtypeStruct((), np.int32),
        observations=ObservationFormat.uniform(parts.stack, layout)._replace(with_actions=True),
        protocol=EnvironmentProtocol(
            frame_stack=parts.stack,
            life_loss_ends_episode=False,
            clip_rewards=True,
            max_episode_steps=config.max_episode_steps,
            stack_start="first_frame",
            restart_period=config.round_steps,
        ),
        replay=training.replay_settings(config),
        schedule=training.Rounds(config),
        evaluation=training.evaluation_settings(config),
        resources=training.resources(config),
    )
