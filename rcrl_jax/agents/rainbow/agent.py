"""Data-efficient C51 Rainbow with auxiliary tasks, as pure functions for one run."""

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import augmentation, types
from rcrl_jax.agents import agent
from rcrl_jax.agents.rainbow import settings
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.agents.rainbow.loss import (
    double_q_cross_entropy,
    expected_return,
    mask_actions,
    support,
)
from rcrl_jax.agents.rainbow.network import RainbowNetwork
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import ObservationFormat, leading_patches
from rcrl_jax.ops import adam, native
from rcrl_jax.replay.settings import make_rule
from rcrl_jax.tasks import task


class Parts(NamedTuple):
    """What the functions of an agent read, made once from its configuration."""

    config: RainbowConfig
    network: RainbowNetwork
    atoms: jax.Array  # [atoms], the support of the return distribution
    optimizer: adam.Optimizer
    tasks: Mapping[str, task.AuxiliaryTask]  # by name
    needs: task.Needs  # what the tasks need
    observations: ObservationFormat


def make_agent(
    config: RainbowConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment; arguments as in `make_parts`."""
    parts = make_parts(config, spec, makers)
    return agent.Agent(
        **agent.bind(parts, parts.tasks, init=init, act=act, update=update, embed=embed),
        action=jax.ShapeDtypeStruct((), jnp.int32),
        observations=parts.observations,
        protocol=settings.environment_protocol(config),
        replay=settings.replay_settings(config, parts.needs.contrast_rule),
        schedule=agent.Schedule(config.learn_start, config.update_period),
        evaluation=settings.evaluation_settings(config),
        resources=settings.resources(config, parts.needs),
        halves=agent.Halves(
            functools.partial(gradients, parts),
            functools.partial(step, parts),
            averages_targets=False,
        ),
    )


def make_parts(
    config: RainbowConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> Parts:
    """Makes network, optimiser and tasks.

    Args:
      config: the configuration.
      spec: shape of a frame and the largest action set of the fleet.
      makers: functions that make the auxiliary tasks, by name.

    Raises:
      Incompatible: the environment's frames do not fit, or two tasks exclude each other.
    """
    network = RainbowNetwork(
        max_num_actions=spec.max_num_actions,
        num_atoms=config.num_atoms,
        hidden_size=config.hidden_size,
        noisy_sigma=config.noisy_sigma if config.exploration == "noise" else None,
        head=config.head,
        encoder_name=config.encoder,
        embedding_init=config.embedding_init,
    )
    encode = functools.partial(network.apply, method="encode")
    for_tasks = task.AgentParts(
        encode,
        encode,
        functools.partial(network.apply, method="join"),
        # Only tasks that need whole frames shift them.
        functools.partial(
            shift, settings.observation_format(config, spec.frame, whole_frames=True)
        ),
        psi_size=network.embedding_size,
        phi_size=network.embedding_size,
        # Tolerance 0: every reward ends a segment.
        contrast_rule=make_rule(config.return_contrast, tolerance=0.0),
        batch_size=config.batch_size,
    )
    tasks = {name: make(for_tasks, config) for name, make in makers.items()}
    needs = task.needs_of(tasks, for_tasks)
    return Parts(
        config,
        network,
        support(config.v_max, config.num_atoms),
        adam.make_adam(
            config.learning_rate, eps=config.adam_eps, max_norm=config.max_gradient_norm
        ),
        tasks,
        needs,
        settings.observation_format(config, spec.frame, needs.whole_frames),
    )


def init(
    parts: Parts,
    run: types.RunSpec,
    key: chex.PRNGKey,
    initial: Mapping[str, jax.Array] | None = None,
) -> types.LearnerState:
    """The state before the first update; see `Agent.init`."""
    network_key, tasks_key, state_key = jax.random.split(key, 3)
    formats = parts.observations
    observation = jnp.zeros((1, *formats.network_shape), formats.network.dtype)
    drawn = parts.network.init(network_key, observation, run.num_valid_actions)
    agent_params = agent.begin_with(drawn, initial)
    params = types.TrainableParams(agent_params, task.init_params(parts.tasks, tasks_key))
    return agent.first_state(
        parts.tasks, params, agent_params, parts.optimizer.init(params), state_key
    )


def act(
    parts: Parts,
    run: types.RunSpec,
    params: types.Params,
    observation: jax.Array,
    memory: Any,
    key: chex.PRNGKey,
    policy_name: str,
    step: jax.Array,
) -> tuple[jax.Array, Any]:
    """Actions `[N] int32` for observations `[N, *obs]`, and the memory unchanged.

    Training explores by noise or random actions. Evaluation takes a few random actions. See
    `Agent.act`.
    """
    config = parts.config
    chex.assert_shape(observation, (None, *parts.observations.network_shape))
    noise_key, epsilon_key, action_key = jax.random.split(key, 3)
    evaluated = policy_name == agent.EVALUATION
    noisy = config.exploration == "noise" and not evaluated
    psi = parts.network.apply(params, observation, method="encode")
    logits = logits_of(parts, run, params, psi, noise_key if noisy else None)
    action = best_action(action_values(parts, run, logits), jax.random.fold_in(key, _TIES))
    if noisy and config.warmup == "agent":
        return action, memory
    random_action = jax.random.randint(action_key, action.shape, 0, run.num_valid_actions)
    if noisy:
        return jnp.where(step < config.learn_start, random_action, action), memory
    epsilon = config.evaluation_epsilon if evaluated else exploration_epsilon(config, step)
    explore = jax.random.uniform(epsilon_key, action.shape) < epsilon
    return jnp.where(explore, random_action, action), memory


def gradients(
    parts: Parts, run: types.RunSpec, state: types.LearnerState, batch: types.Batch
) -> tuple[types.TrainableParams, types.UpdateResult]:
    """Gradients of the joint loss of a batch as the replay returned it, and the update's result."""
    _, loss_key = jax.random.split(native.wrap_key(state.key))
    found, of_loss = jax.grad(loss, has_aux=True)(state.params, parts, run, state, batch, loss_key)
    return found, types.UpdateResult(*of_loss)


def step(
    parts: Parts,
    state: types.LearnerState,
    computed: tuple[types.TrainableParams, types.UpdateResult],
) -> tuple[types.LearnerState, types.UpdateResult]:
    """One step of Adam with what `gradients` returned."""
    found, result = computed
    key, _ = jax.random.split(native.wrap_key(state.key))
    params, opt_state, norm = parts.optimizer.step(found, state.opt_state, state.params)
    state = agent.next_state(parts.tasks, state, params, opt_state, key)
    target_params = optax.periodic_update(
        params.agent, state.target_params, state.updates, parts.config.target_period
    )
    metrics = result.metrics | {"gradient_norm": norm}
    return state._replace(target_params=target_params), result._replace(metrics=metrics)


def update(
    parts: Parts, run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0
) -> tuple[types.LearnerState, types.UpdateResult]:
    """One step of Adam on the joint loss of a batch as the replay returned it."""
    del kind  # there is only one
    return step(parts, state, gradients(parts, run, state, batch))


def loss(
    params: types.TrainableParams,
    parts: Parts,
    run: types.RunSpec,
    state: types.LearnerState,
    sampled: types.Batch,
    key: chex.PRNGKey,
) -> tuple[jax.Array, tuple[jax.Array, dict[str, jax.Array]]]:
    """The sum of the C51 loss and the losses of the auxiliary tasks.

    Args:
      params: the gradient is with respect to these.
      parts: of the agent.
      run: actions and constants of the run.
      state: target parameters, and the tasks' states.
      sampled: B transitions as the replay returned them.
      key: of noise, shifts and tasks.

    Returns:
      The loss `[]`; then, without a gradient, the loss of each transition for the priorities `[B]`
      and the metrics.
    """
    network, atoms, tasks = parts.network, parts.atoms, parts.tasks
    online_key, target_key, *task_keys = jax.random.split(key, 2 + len(tasks))
    if parts.config.exploration != "noise":
        online_key = target_key = None
    t = read_transitions(parts, sampled.transitions, key)
    batch = sampled._replace(transitions=t)
    images = task.images_of(tasks, batch, sampled, task_keys)
    psi_tm1, *psi_of_images = network.apply(
        params.agent, (t.observation, *jax.tree.leaves(images)), method="encode_each"
    )
    psi_of_images = jax.tree.unflatten(jax.tree.structure(images), psi_of_images)

    # The online network predicts and selects actions with the same noise, as in the source.
    logits_tm1 = logits_of(parts, run, params.agent, psi_tm1, online_key)
    fixed = jax.lax.stop_gradient(params.agent)
    selector_psi_t = network.apply(fixed, t.next_observation, method="encode")
    selector_logits_t = logits_of(parts, run, fixed, selector_psi_t, online_key)
    if parts.config.target_period == 1 and target_key is None:  # parameters and noise are equal
        target_logits_t = selector_logits_t
    else:
        target_psi_t = network.apply(state.target_params, t.next_observation, method="encode")
        target_logits_t = logits_of(parts, run, state.target_params, target_psi_t, target_key)
    cross_entropy = double_q_cross_entropy(
        logits_tm1,
        t.action,
        t.reward,
        t.discount,
        target_logits_t,
        selector_logits_t,
        atoms,
        run.num_valid_actions,
    )
    loss_c51 = jnp.mean(t.weight * cross_entropy)

    view = task.UpdateView(params.agent, state.target_params, psi_tm1, batch, sampled)
    auxiliary = task.total_loss(
        tasks, params.auxiliary, view, psi_of_images, state.task_state, run.constants, task_keys
    )
    q_tm1 = action_values(parts, run, logits_tm1)
    metrics = {"loss_c51": loss_c51, "q_mean": jnp.mean(jnp.max(q_tm1, axis=-1))}
    transition_loss = cross_entropy + auxiliary.in_priorities
    return loss_c51 + auxiliary.total, (transition_loss, metrics | auxiliary.metrics)


def embed(parts: Parts, params: types.Params, pairs: types.Pairs) -> jax.Array:
    """phi(s, a) `[N, d]`, which the head reads."""
    psi = parts.network.apply(params, pairs.observation, method="encode")
    return parts.network.apply(params, psi, pairs.action, method="join")


def logits_of(
    parts: Parts,
    run: types.RunSpec,
    params: types.Params,
    psi: jax.Array,
    noise_key: chex.PRNGKey | None,
) -> jax.Array:
    """Logits `[N, A, atoms]` of psi(s) `[N, d]`; without noise if `noise_key` is None."""
    noise = None if noise_key is None else parts.network.draw_noise(noise_key)
    return parts.network.apply(params, psi, run.num_valid_actions, noise, method="logits_of")


def action_values(parts: Parts, run: types.RunSpec, logits: jax.Array) -> jax.Array:
    """Q values `[N, A]` of logits `[N, A, atoms]`; -inf for invalid actions."""
    return mask_actions(expected_return(logits, parts.atoms), run.num_valid_actions)


def best_action(q: jax.Array, key: chex.PRNGKey) -> jax.Array:
    """The action of largest value, `[N, A] -> [N] int32`; ties are broken uniformly at random.

    With equal action embeddings all actions tie until the first update. One random number is drawn
    per observation, so the draw does not depend on A.
    """
    # Sorting reads each value once. If we compared the values with their maximum, XLA might compute
    # them twice with different rounding, and no value would equal the maximum.
    descending, actions = jax.lax.sort(
        (-q, jnp.broadcast_to(jnp.arange(q.shape[-1]), q.shape)), num_keys=1
    )
    number_of_best = jnp.sum(descending == descending[:, :1], axis=-1)
    number = jax.random.uniform(key, number_of_best.shape) * number_of_best
    chosen = jnp.take_along_axis(actions, number.astype(jnp.int32)[:, None], axis=-1)
    return chosen[:, 0].astype(jnp.int32)


def exploration_epsilon(config: RainbowConfig, step: jax.Array) -> jax.Array:
    """Share of random actions in training: 1 until learning starts, then falling linearly."""
    progress = (step - config.learn_start) / config.epsilon_decay
    return 1.0 - (1.0 - config.epsilon) * jnp.clip(progress, 0.0, 1.0)


def shift(formats: ObservationFormat, key: chex.PRNGKey, observation: jax.Array) -> jax.Array:
    """Applies CURL's shift to sampled whole frames; returns what the network reads."""
    if formats.observation.unstack is None:  # no images
        return observation
    stacks = formats.observation.unstack(observation)
    return formats.network.stack(augmentation.random_shift(key, stacks, "crop_pad_crop"))


def read_transitions(
    parts: Parts, transitions: types.TransitionBatch, key: chex.PRNGKey
) -> types.TransitionBatch:
    """The transitions with observations as the network reads them, shifted if so configured."""
    kind, formats = parts.config.augmentation, parts.observations

    def read(observation, layout, shift_key):
        if kind != "none":
            stacks = layout.unstack(observation)
            return formats.network.stack(augmentation.random_shift(shift_key, stacks, kind))
        return observation if layout is formats.network else leading_patches(observation)

    # Folded in, so that enabling the shift leaves all other draws unchanged.
    first_key, last_key = jax.random.split(jax.random.fold_in(key, _SHIFT))
    return transitions._replace(
        observation=read(transitions.observation, formats.observation, first_key),
        next_observation=read(transitions.next_observation, formats.next_observation, last_key),
    )


# Folded into a key that is also split, to derive further keys.
_SHIFT = 1 << 16
_TIES = 1 << 17
