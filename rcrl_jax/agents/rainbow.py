"""Data-efficient C51 Rainbow with auxiliary tasks, as pure functions for one run."""

import functools

import chex
import jax
import jax.numpy as jnp
import optax

from rcrl_jax import observations, types
from rcrl_jax.agents import agent
from rcrl_jax.auxiliary import return_contrast, task
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
    )
    atoms = c51.support(config.v_max, config.num_atoms)
    tasks = _make_tasks(config, network)
    optimizer = optax.chain(
        optax.clip_by_global_norm(config.max_gradient_norm),
        optax.adam(config.learning_rate, eps=config.adam_eps),
    )

    def logits(run: types.RunSpec, params, observation, noise_key):
        """`[N, A, atoms]`; the mean weights when `noise_key` is None."""
        rngs = {} if noise_key is None else {"noise": noise_key}
        noisy = noise_key is not None
        return network.apply(params, observation, run.num_actions, noisy=noisy, rngs=rngs)

    def own_q(run: types.RunSpec, logits_t):
        """Action values `[N, A]`; -inf for actions that the run does not have."""
        return c51.mask_actions(c51.expected_return(logits_t, atoms), run.num_actions)

    def init(key: chex.PRNGKey) -> types.LearnerState:
        network_key, tasks_key, state_key = jax.random.split(key, 3)
        shape = observations.PATCHES.stack_shape(config.frame_stack)
        observation = jnp.zeros((1, *shape), jnp.uint8)
        agent_params = network.init(network_key, observation, spec.num_actions, noisy=False)
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
        )

    def act(run: types.RunSpec, params, observation, key, greedy: bool):
        chex.assert_rank(observation, 4)
        noise_key, epsilon_key, action_key = jax.random.split(key, 3)
        q = own_q(run, logits(run, params, observation, None if greedy else noise_key))
        action = jnp.argmax(q, axis=-1).astype(jnp.int32)
        if not greedy:
            return action
        explore = jax.random.uniform(epsilon_key, action.shape) < config.evaluation_epsilon
        random_action = jax.random.randint(action_key, action.shape, 0, run.num_actions)
        return jnp.where(explore, random_action, action)

    def loss(params: types.TrainableParams, target_params, run: types.RunSpec, batch, key):
        online_key, target_key, *task_keys = jax.random.split(key, 2 + len(tasks))
        t = batch.transitions
        # One sample of noise serves the online network in both of its roles, as in the source.
        logits_tm1 = logits(run, params.agent, t.observation, online_key)
        selector_logits_t = logits(
            run, jax.lax.stop_gradient(params.agent), t.next_observation, online_key
        )
        target_logits_t = logits(run, target_params, t.next_observation, target_key)
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
        for (name, auxiliary), task_key in zip(tasks.items(), task_keys, strict=True):
            value, task_metrics = auxiliary.loss(
                params.auxiliary[name], params.agent, batch, task_key
            )
            total += config.auxiliary_weight * value
            metrics |= {f"loss_{name}": value} | task_metrics
        return total, (cross_entropy, metrics)

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch):
        key, loss_key = jax.random.split(jax.random.wrap_key_data(state.key))
        gradients, (cross_entropy, metrics) = jax.grad(loss, has_aux=True)(
            state.params, state.target_params, run, batch, loss_key
        )
        deltas, opt_state = optimizer.update(gradients, state.opt_state, state.params)
        params = optax.apply_updates(state.params, deltas)
        updates = state.updates + 1
        target_params = optax.periodic_update(
            params.agent, state.target_params, updates, config.target_period
        )
        metrics["gradient_norm"] = optax.tree.norm(gradients)
        state = types.LearnerState(
            params, target_params, opt_state, jax.random.key_data(key), updates
        )
        return state, types.UpdateResult(cross_entropy, metrics)

    return agent.Agent(
        init,
        precision.at_precision(act, config.precision),
        precision.at_precision(update, config.precision),
    )


def _make_tasks(
    config: RainbowConfig, network: rainbow.RainbowNetwork
) -> dict[str, task.AuxiliaryTask]:
    makers = {
        "return_contrast": lambda: return_contrast.make_return_contrast(
            functools.partial(network.apply, method="embed"),
            rainbow.EMBEDDING_SIZE,
            config.discriminator_hidden,
        )
    }
    return {name: makers[name]() for name in config.auxiliary}
