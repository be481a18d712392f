"""PlaNet (Hafner et al., 2019), as pure functions of a run: a world model and a planner."""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import chex
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents import agent, control, world_models
from rcrl_jax.agents.recurrent import model as recurrent_model
from rcrl_jax.agents.recurrent.config import PlanetConfig
from rcrl_jax.agents.recurrent.model import Filtered, RecurrentModel
from rcrl_jax.agents.recurrent.network import Latent
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import quantise
from rcrl_jax.ops import adam, native
from rcrl_jax.replay.settings import SequenceRule
from rcrl_jax.tasks import task

_REWARD_LAYERS = 3


class Parts(NamedTuple):
    """What all functions of the agent read; none of it is an array."""

    config: PlanetConfig
    world: RecurrentModel
    optimizer: adam.Optimizer
    schedule: agent.Schedule


def make_parts(
    config: PlanetConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> Parts:
    """Makes networks, tasks, optimiser and schedule; see `make_agent`."""
    return Parts(
        config=config,
        world=recurrent_model.make_recurrent_model(
            config, spec, makers, activation=nn.relu, reward_layers=_REWARD_LAYERS,
            preprocess=quantise, reward_scale=config.reward_scale,
        ),
        optimizer=adam.make_tensorflow_adam(
            config.model_learning_rate, eps=config.adam_epsilon, max_norm=config.max_gradient_norm
        ),
        schedule=world_models.schedule(config, spec.action_repeat, config.first_updates),
    )  # fmt: skip


def init(
    parts: Parts,
    run: types.RunSpec,
    key: chex.PRNGKey,
    initial: Mapping[str, jax.Array] | None = None,
) -> types.LearnerState:
    """See `Agent.init`."""
    del run  # the networks do not depend on the run
    tasks = parts.world.tasks
    keys = jax.random.split(key, 3)
    model = agent.begin_with(recurrent_model.init_model(parts.world, keys[0]), initial)
    params = types.TrainableParams(model, task.init_params(tasks, keys[1]))
    opt_state = parts.optimizer.init((model, params.auxiliary))
    return agent.first_state(tasks, params, (), opt_state, keys[2])


def act(
    parts: Parts, run, params: types.Params, observation, memory: Filtered, key, policy_name, step
):
    """See `Agent.act`; the observation is `[N, C, 64, 64, 3] uint8`."""
    num_actions = parts.world.num_actions
    filter_key, plan_key, exploration_key = jax.random.split(key, 3)
    mask = control.action_mask(run, num_actions)
    latent = recurrent_model.filter_newest(parts.world, params, memory, observation, filter_key)
    keys = jax.random.split(plan_key, len(observation))

    def plan_each(latent: Latent) -> jax.Array:
        in_each = jax.vmap(functools.partial(plan, parts), (None, 0, None, 0))
        return in_each(params, latent, mask, keys)

    if policy_name == agent.EVALUATION:
        action = plan_each(latent)
    else:
        at_random = step < parts.schedule.first_step  # then there is no need to plan
        action = jax.lax.cond(
            at_random, lambda _: jnp.zeros((len(observation), num_actions)), plan_each, latent
        )
        action = recurrent_model.explore(
            action, mask, exploration_key, std=parts.config.exploration_std, at_random=at_random
        )
    return action, Filtered(latent, action)


def plan(
    parts: Parts, params: types.Params, latent: Latent, mask: jax.Array, key: chex.PRNGKey
) -> jax.Array:
    """The first action `[A]` of a planned sequence, from the latent of one environment."""
    config, network = parts.config, parts.world.network

    def predicted_return(actions: jax.Array, key) -> jax.Array:
        """`[K, H, A] -> [K]`."""
        candidates = len(actions)
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (candidates, *x.shape)), latent)
        noise = jax.random.normal(key, (config.horizon, candidates, config.stoch_size))

        def step(last, inputs):
            following = network.apply(params, last, *inputs, method="imagine")
            return following, following.feature

        _, features = jax.lax.scan(step, start, (actions.swapaxes(0, 1), noise))
        return network.apply(params, features, method="reward").sum(0)

    return cross_entropy_method(
        predicted_return, key, mask, horizon=config.horizon, iterations=config.iterations,
        candidates=config.candidates, best=config.best_candidates,
    )[0]  # fmt: skip


def cross_entropy_method(
    objective: Callable[[jax.Array, chex.PRNGKey], jax.Array],
    key: chex.PRNGKey,
    action_mask: jax.Array,
    *,
    horizon: int,
    iterations: int,
    candidates: int,
    best: int,
) -> jax.Array:
    """A sequence of actions with a high objective, for one environment (algorithm 2).

    Starts from a standard normal. Each iteration draws candidates, clips them to [-1, 1] and fits
    the next normal to the best ones.

    Args:
      objective: `(actions [K, H, A], key) -> [K]`, to be maximised; draws its noise from the key.
      key: of all draws.
      action_mask: `[A] bool`; other components stay zero.
      horizon: H.
      iterations: number of fits.
      candidates: K, sequences drawn in each iteration.
      best: how many of the candidates the next normal is fitted to.

    Returns:
      `[H, A]`, the mean of the last fit.
    """
    mask = jnp.broadcast_to(action_mask, (horizon, len(action_mask)))

    def iterate(fitted, key):
        mean, std = fitted
        noise_key, objective_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (candidates, *mean.shape))
        actions = jnp.clip(mean[None] + std[None] * noise, -1.0, 1.0)
        actions = jnp.where(mask[None], actions, 0.0)
        _, top = jax.lax.top_k(objective(actions, objective_key), best)
        chosen = actions[top]
        return (jnp.mean(chosen, axis=0), jnp.sqrt(jnp.var(chosen, axis=0) + 1e-6)), None

    start = jnp.zeros(mask.shape), jnp.ones(mask.shape)
    (mean, _), _ = jax.lax.scan(iterate, start, jax.random.split(key, iterations))
    return mean


def update(parts: Parts, run, state: types.LearnerState, batch: types.Batch, kind: int = 0):
    """See `Agent.update`."""
    del kind  # there is only one
    key, loss_key = jax.random.split(native.wrap_key(state.key))

    def loss(params: types.TrainableParams):
        model = recurrent_model.model_loss(
            parts.world, *params, state.task_state, run, batch, loss_key
        )
        return model.total, (model.window_loss, model.metrics)

    gradients, (window_loss, metrics) = jax.grad(loss, has_aux=True)(state.params)
    params, opt_state, metrics["gradient_norm"] = parts.optimizer.step(
        tuple(gradients), state.opt_state, tuple(state.params)
    )
    params = types.TrainableParams(*params)
    state = agent.next_state(parts.world.tasks, state, params, opt_state, key)
    return state, types.UpdateResult(window_loss, metrics)


def embed(parts: Parts, params: types.Params, pairs: types.Pairs) -> jax.Array:
    """See `Agent.embed`."""
    return recurrent_model.embed(parts.world, params, pairs)


def make_agent(
    config: PlanetConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment; see `dreamer.make_agent`."""
    observations = world_models.observation_format(config, spec, config.context)
    parts = make_parts(config, spec, makers)
    world = parts.world
    return agent.Agent(
        **agent.bind(parts, world.tasks, init=init, act=act, update=update, embed=embed),
        action=jax.ShapeDtypeStruct((world.num_actions,), np.float32),
        observations=observations,
        protocol=control.environment_protocol(config.context),
        replay=control.replay_settings(
            config, world.needs.contrast_rule, SequenceRule(config.sequence_length, "leads")
        ),
        schedule=parts.schedule,
        evaluation=control.evaluation_settings(config, "planned, without noise"),
        resources=recurrent_model.resources(world),
        init_memory=functools.partial(recurrent_model.init_memory, world),
    )
