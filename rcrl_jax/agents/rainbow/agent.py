"""Data-efficient C51 Rainbow with auxiliary tasks, as pure functions for one run."""

import functools
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import augmentation, types
from rcrl_jax.agents import agent
from rcrl_jax.agents.rainbow import loss as c51
from rcrl_jax.agents.rainbow import network as rainbow
from rcrl_jax.agents.rainbow import settings as rainbow_training
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.observations import ObservationFormat, leading_patches
from rcrl_jax.ops import adam, native
from rcrl_jax.return_contrast.rule import make_rule
from rcrl_jax.tasks import task


def make_agent(
    config: RainbowConfig, spec: EnvironmentSpec, makers: Mapping[str, task.TaskMaker]
) -> agent.Agent:
    """Makes the agent of a configuration for an environment.

    Args:
      config: the configuration.
      spec: shape of a frame and the largest action set of the fleet.
      makers: of the auxiliary tasks, by name.

    Raises:
      Incompatible: the environment's frames do not fit, or two tasks exclude each other.
    """
    explores_by_noise = config.exploration == "noise"
    network = rainbow.RainbowNetwork(
        max_num_actions=spec.max_num_actions,
        num_atoms=config.num_atoms,
        hidden_size=config.hidden_size,
        noisy_sigma=config.noisy_sigma if explores_by_noise else None,
        head=config.head,
        encoder_name=config.encoder,
        embedding_init=config.embedding_init,
    )
    atoms = c51.support(config.v_max, config.num_atoms)
    optimizer = adam.make_adam(
        config.learning_rate, eps=config.adam_eps, max_norm=config.max_gradient_norm
    )

    def encode(params, observation):
        return network.apply(params, observation, method="encode")

    def join(params, psi, action):
        return network.apply(params, psi, action, method="join")

    def embed(params, pairs: types.Pairs):
        return join(params, encode(params, pairs.observation), pairs.action)

    def logits_of(run: types.RunSpec, params, psi, noise_key):
        """Logits `[N, A, atoms]`; computed with the mean weights if `noise_key` is None."""
        noise = None if noise_key is None else network.draw_noise(noise_key)
        return network.apply(params, psi, run.num_valid_actions, noise, method="logits_of")

    def action_values(run: types.RunSpec, logits_t):
        """Q values `[N, A]`; -inf for invalid actions."""
        return c51.mask_actions(c51.expected_return(logits_t, atoms), run.num_valid_actions)

    def augment(key, observation):
        """CURL's shift of sampled observations, which are whole frames where a task needs them."""
        # `observations` follows below: it depends on what the tasks need.
        stacks = observations.observation.unstack(observation)
        return observations.network.stack(augmentation.random_shift(key, stacks, "crop_pad_crop"))

    parts = task.AgentParts(
        encode,
        encode,
        join,
        augment,
        psi_size=network.embedding_size,
        phi_size=network.embedding_size,
        # Segments end at rewards.
        contrast_rule=make_rule(config.return_contrast, tolerance=0.0),
        batch_size=config.batch_size,
    )
    tasks = {name: make(parts, config) for name, make in makers.items()}
    needs = task.needs_of(tasks, parts)
    observations = rainbow_training.observation_format(config, spec.frame, needs.whole_frames)

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        network_key, tasks_key, state_key = jax.random.split(key, 3)
        observation = jnp.zeros((1, *observations.network_shape), observations.network.dtype)
        agent_params = network.init(network_key, observation, run.num_valid_actions)
        params = types.TrainableParams(
            agent=agent_params, auxiliary=task.init_params(tasks, tasks_key)
        )
        return types.LearnerState(
            params=params,
            target_params=agent_params,
            opt_state=optimizer.init(params),
            key=jax.random.key_data(state_key),
            updates=jnp.zeros((), jnp.int32),
            task_state=task.init_states(tasks, params.auxiliary, agent_params),
        )

    def act(run: types.RunSpec, params, observation, memory, key, policy_name: str, step):
        chex.assert_shape(observation, (None, *observations.network_shape))
        noise_key, epsilon_key, action_key = jax.random.split(key, 3)
        evaluated = policy_name == agent.EVALUATION
        noisy = explores_by_noise and not evaluated
        psi = encode(params, observation)
        q = action_values(run, logits_of(run, params, psi, noise_key if noisy else None))
        action = best_action(q, jax.random.fold_in(key, _TIES))
        warms_up = config.warmup == "uniform" and not evaluated
        if noisy and not warms_up:
            return action, memory
        random_action = jax.random.randint(action_key, action.shape, 0, run.num_valid_actions)
        if noisy:
            return jnp.where(step < config.learn_start, random_action, action), memory
        epsilon = config.evaluation_epsilon if evaluated else exploration_epsilon(config, step)
        explore = jax.random.uniform(epsilon_key, action.shape) < epsilon
        return jnp.where(explore, random_action, action), memory

    def loss(params: types.TrainableParams, state: types.LearnerState, run, sampled, key):
        online_key, target_key, *task_keys = jax.random.split(key, 2 + len(tasks))
        online_key, target_key = (
            k if explores_by_noise else None for k in (online_key, target_key)
        )
        t = _read_transitions(config, observations, sampled.transitions, key)
        batch = sampled._replace(transitions=t)
        images = task.images_of(tasks, batch, sampled, task_keys)
        psi_tm1, *psi_of_images = network.apply(
            params.agent, (t.observation, *jax.tree.leaves(images)), method="encode_each"
        )
        images = jax.tree.unflatten(jax.tree.structure(images), psi_of_images)
        # The online network predicts and selects actions with the same noise, as in the source.
        logits_tm1 = logits_of(run, params.agent, psi_tm1, online_key)
        fixed = jax.lax.stop_gradient(params.agent)
        selector_logits_t = logits_of(run, fixed, encode(fixed, t.next_observation), online_key)
        target_psi_t = encode(state.target_params, t.next_observation)
        target_logits_t = logits_of(run, state.target_params, target_psi_t, target_key)
        cross_entropy = c51.double_q_cross_entropy(
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
            tasks, params.auxiliary, view, images, state.task_state, run.constants, task_keys
        )
        metrics = {
            "loss_c51": loss_c51,
            "q_mean": jnp.mean(jnp.max(action_values(run, logits_tm1), axis=-1)),
        }
        transition_loss = cross_entropy + auxiliary.in_priorities
        return loss_c51 + auxiliary.total, (transition_loss, metrics | auxiliary.metrics)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0):
        del kind  # there is one
        key, loss_key = jax.random.split(native.wrap_key(state.key))
        gradients, (transition_loss, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state, run, batch, loss_key
        )
        params, opt_state, metrics["gradient_norm"] = optimizer.step(
            gradients, state.opt_state, state.params
        )
        updates = state.updates + 1
        target_params = optax.periodic_update(
            params.agent, state.target_params, updates, config.target_period
        )
        task_state = task.next_states(tasks, state.task_state, params)
        state = types.LearnerState(
            params, target_params, opt_state, jax.random.key_data(key), updates, task_state
        )
        return state, types.UpdateResult(transition_loss, metrics)

    return agent.Agent(
        init=init,
        act=act,
        update=update,
        embed=embed,
        compare=agent.make_compare(embed, tasks),
        run_constants=functools.partial(task.run_constants, tasks),
        action=jax.ShapeDtypeStruct((), jnp.int32),
        observations=observations,
        protocol=rainbow_training.environment_protocol(config),
        replay=rainbow_training.replay_settings(config, needs.contrast_rule),
        schedule=agent.Schedule(config.learn_start, config.update_period),
        evaluation=rainbow_training.evaluation_settings(config),
        resources=rainbow_training.resources(config, needs),
    )


def best_action(q: jax.Array, key: chex.PRNGKey) -> jax.Array:
    """The action of largest value, `[N, A] -> [N] int32`; ties are broken uniformly at random.

    With equal action embeddings all actions tie until the first update. One random number is drawn
    per observation, so the draw does not depend on A.
    """
    # Reads each value once. A compiler may compute the values again for a comparison with their
    # maximum, and round them differently: then none would equal it.
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


def _read_transitions(
    config: RainbowConfig,
    observations: ObservationFormat,
    transitions: types.TransitionBatch,
    key: chex.PRNGKey,
) -> types.TransitionBatch:
    """The transitions with observations as the network reads them, shifted if so configured."""

    def read(observation, layout, shift_key):
        if config.augmentation != "none":
            stacks = layout.unstack(observation)
            shifted = augmentation.random_shift(shift_key, stacks, config.augmentation)
            return observations.network.stack(shifted)
        return observation if layout is observations.network else leading_patches(observation)

    # Folded in, so that enabling the shift leaves all other draws unchanged.
    first_key, last_key = jax.random.split(jax.random.fold_in(key, _SHIFT))
    t, layouts = transitions, observations
    return t._replace(
        observation=read(t.observation, layouts.observation, first_key),
        next_observation=read(t.next_observation, layouts.next_observation, last_key),
    )


# Folded into a key that is also split, to derive further keys from it.
_SHIFT = 1 << 16
_TIES = 1 << 17
