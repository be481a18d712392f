"""Data-efficient C51 Rainbow with auxiliary tasks, as pure functions for one run."""

import functools

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import augmentation, observations, types
from rcrl_jax.agents import agent
from rcrl_jax.auxiliary import curl, return_contrast, task
from rcrl_jax.config import RainbowConfig
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.losses import c51
from rcrl_jax.networks import precision, rainbow


def make_agent(config: RainbowConfig, spec: EnvironmentSpec) -> agent.Agent:
    """Makes the agent of a preset for an environment.

    Args:
      config: the preset.
      spec: frame shape and number of actions, the largest of the fleet.
    """
    network = rainbow.RainbowNetwork(
        num_actions=spec.num_actions,
        num_atoms=config.num_atoms,
        hidden_size=config.hidden_size,
        noisy_sigma=config.noisy_sigma,
        head=config.head,
        encoder_name=config.encoder,
        embedding_init=config.embedding_init,
    )
    layouts = observations.layouts_of(config)
    explores_by_noise = config.exploration == "noise"
    atoms = c51.support(config.v_max, config.num_atoms)
    tasks = _make_tasks(config, network, layouts)
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(config.learning_rate, eps=config.adam_eps),
    )

    def logits(run: types.RunSpec, params, observation, noise_key):
        """`[N, A, atoms]`; the mean weights when `noise_key` is None."""
        noise = None if noise_key is None else network.draw_noise(noise_key)
        return network.apply(params, observation, run.num_actions, noise)

    def own_q(run: types.RunSpec, logits_t):
        """Action values `[N, A]`; -inf for actions that the run does not have."""
        return c51.mask_actions(c51.expected_return(logits_t, atoms), run.num_actions)

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        network_key, tasks_key, state_key = jax.random.split(key, 3)
        shape = layouts.network.stack_shape(config.frame_stack)
        observation = jnp.zeros((1, *shape), jnp.uint8)
        agent_params = network.init(network_key, observation, run.num_actions)
        task_keys = jax.random.split(tasks_key, max(len(tasks), 1))
        params = types.TrainableParams(
            agent=agent_params,
            auxiliary={n: t.init(k) for (n, t), k in zip(tasks.items(), task_keys, strict=False)},
        )
        return types.LearnerState(
            params=params,
            target_params=agent_params,
            opt_state=optimizer.init(params),
            key=jax.random.key_data(state_key),
            updates=jnp.zeros((), jnp.int32),
            task_state={
                n: t.init_state(params.auxiliary[n], agent_params) for n, t in tasks.items()
            },
        )

    def act(run: types.RunSpec, params, observation, key, greedy: bool, step):
        chex.assert_rank(observation, 4)
        noise_key, epsilon_key, action_key = jax.random.split(key, 3)
        noisy = explores_by_noise and not greedy
        q = own_q(run, logits(run, params, observation, noise_key if noisy else None))
        action = best_action(q, jax.random.fold_in(key, _TIES))
        if noisy:
            return action
        epsilon = config.evaluation_epsilon if greedy else exploration_epsilon(config, step)
        explore = jax.random.uniform(epsilon_key, action.shape) < epsilon
        random_action = jax.random.randint(action_key, action.shape, 0, run.num_actions)
        return jnp.where(explore, random_action, action)

    def embed(params, pairs: types.Pairs):
        return network.apply(params, *pairs, method="embed")

    def loss(params: types.TrainableParams, state: types.LearnerState, run, batch, key):
        online_key, target_key, *task_keys = jax.random.split(key, 2 + len(tasks))
        online_key, target_key = (
            k if explores_by_noise else None for k in (online_key, target_key)
        )
        t = _read_transitions(config, batch.transitions, key)
        # One sample of noise serves the online network in both of its roles, as in the source.
        logits_tm1 = logits(run, params.agent, t.observation, online_key)
        selector_logits_t = logits(
            run, jax.lax.stop_gradient(params.agent), t.next_observation, online_key
        )
        target_logits_t = logits(run, state.target_params, t.next_observation, target_key)
        cross_entropy = c51.double_q_cross_entropy(
            logits_tm1,
            t.action,
            t.reward,
            t.discount,
            target_logits_t,
            selector_logits_t,
            atoms,
            run.num_actions,
        )
        total = loss_c51 = jnp.mean(t.weight * cross_entropy)
        metrics = {
            "loss_c51": loss_c51,
            "q_mean": jnp.mean(jnp.max(own_q(run, logits_tm1), axis=-1)),
        }
        priority_loss = cross_entropy
        for (name, auxiliary), task_key in zip(tasks.items(), task_keys, strict=True):
            value, task_metrics = auxiliary.loss(
                params.auxiliary[name], params.agent, state.task_state[name], batch, task_key
            )
            weighted = auxiliary.weight(run) * value
            if auxiliary.in_priorities:
                priority_loss = priority_loss + jax.lax.stop_gradient(weighted)
            if auxiliary.importance_weighted:
                weighted *= jnp.mean(t.weight)
            total += weighted
            metrics |= {f"loss_{name}": value} | task_metrics
        return total, (priority_loss, metrics)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch):
        key, loss_key = jax.random.split(jax.random.wrap_key_data(state.key))
        gradients, (priority_loss, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state, run, batch, loss_key
        )
        deltas, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, deltas)
        updates = state.updates + 1
        target_params = optax.periodic_update(
            params.agent, state.target_params, updates, config.target_period
        )
        metrics["gradient_norm"] = optax.tree.norm(gradients)
        task_state = {
            name: auxiliary.next_state(state.task_state[name], params.auxiliary[name], params.agent)
            for name, auxiliary in tasks.items()
        }
        state = types.LearnerState(
            params, target_params, opt_state, jax.random.key_data(key), updates, task_state
        )
        return state, types.UpdateResult(priority_loss, metrics)

    return agent.Agent(
        init,
        precision.at_precision(act, config.precision),
        precision.at_precision(update, config.precision),
        precision.at_precision(embed, config.precision),
        precision.at_precision(agent.make_compare(embed, tasks), config.precision),
    )


def best_action(q: jax.Array, key: chex.PRNGKey) -> jax.Array:
    """The action of largest value, `[N, A] -> [N] int32`; ties are broken uniformly at random.

    Equal action vectors make all actions tie until the first update. The draw has one number an
    observation, so it does not depend on A.
    """
    best = q == jnp.max(q, axis=-1, keepdims=True)
    rank = jnp.cumsum(best, axis=-1)  # 1 at the first of the best actions
    number = jax.random.uniform(key, rank.shape[:-1]) * rank[:, -1]
    chosen = best & (rank == 1 + number.astype(rank.dtype)[:, None])
    return jnp.argmax(chosen, axis=-1).astype(jnp.int32)


def exploration_epsilon(config: RainbowConfig, step: jax.Array) -> jax.Array:
    """Share of random actions in training: 1 until learning starts, then falling linearly."""
    progress = (step - config.learn_start) / config.epsilon_decay
    return 1.0 - (1.0 - config.epsilon) * jnp.clip(progress, 0.0, 1.0)


def _read_transitions(
    config: RainbowConfig, transitions: types.TransitionBatch, key: chex.PRNGKey
) -> types.TransitionBatch:
    """The transitions with observations as the network reads them, shifted if so configured."""
    layouts = observations.layouts_of(config)

    def read(observation, layout, shift_key):
        if config.augmentation != "none":
            stacks = layout.unstack(observation)
            shifted = augmentation.random_shift(shift_key, stacks, config.augmentation)
            return layouts.network.stack(shifted)
        return (
            observation if layout is layouts.network else observations.leading_patches(observation)
        )

    # Not among the keys that the losses split off: presets without a shift draw as they did.
    first_key, last_key = jax.random.split(jax.random.fold_in(key, _SHIFT))
    return transitions._replace(
        observation=read(transitions.observation, layouts.observation, first_key),
        next_observation=read(transitions.next_observation, layouts.next_observation, last_key),
    )


# Folded into a key beside the counters that it is split by.
_SHIFT = 1 << 16
_TIES = 1 << 17


def _make_tasks(
    config: RainbowConfig, network: rainbow.RainbowNetwork, layouts: observations.Layouts
) -> dict[str, task.AuxiliaryTask]:
    def encode(encoder_params, stacks):
        encoder = rainbow.ENCODERS[config.encoder]()
        return encoder.apply({"params": encoder_params}, layouts.network.stack(stacks))

    makers = {
        "return_contrast": lambda: return_contrast.make_return_contrast(
            functools.partial(network.apply, method="embed"),
            network.embedding_size,
            config.discriminator_hidden,
            discriminator_input=config.discriminator_input,
            discriminator_layers=config.discriminator_layers,
            discriminator_norm=config.discriminator_norm,
            loss_form=config.contrast_loss,
            weight=config.auxiliary_weight,
        ),
        "curl": lambda: curl.make_curl(
            encode, network.embedding_size, layouts.observation.unstack, config
        ),
    }
    return {name: makers[name]() for name in config.tasks}
