"""SimPLe (Kaiser et al., 2020), as pure functions of a run.

As in its code, github.com/tensorflow/tensor2tensor of May 2019. One policy learns by PPO, in the
real game and in a learned one, which never ends:

    round        0              1                  2            ...
    real game    2 x 3200 steps 2 x 3200           2 x 3200
    updates      r  r m...m p..p  r  r m....m p..p   r  r m...

    r  PPO on the newest 3200 steps, as if 16 agents had played 200 each
    m  one step of the world model on windows of all rounds
    p  PPO on 16 rollouts of 50 steps in the model, which start at frames of the newest round

Updates of one kind in a row are a phase: Adam's count of steps and the means of metrics begin anew.

All updates come before the next action, so that r learns from the actions of one policy.
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
from rcrl_jax.agents.simple.config import TEMPERATURES, SimpleConfig
from rcrl_jax.agents.simple.settings import IN_MODEL, MODEL, REAL
from rcrl_jax.envs.protocol import EnvironmentProtocol, EnvironmentSpec
from rcrl_jax.observations import ObservationFormat
from rcrl_jax.ops import adafactor, adam, native
from rcrl_jax.replay.settings import ReplaySettings, SequenceRule
from rcrl_jax.return_contrast.rule import ContrastRule
from rcrl_jax.tasks import task


class SimpleParams(NamedTuple):
    """All parameters of the agent."""

    model: types.Params
    policy: types.Params


class OptimizerStates(NamedTuple):
    """States of the two optimisers."""

    model: optax.OptState
    policy: optax.OptState


class Progress(NamedTuple):
    """What an update keeps beside parameters."""

    model_updates: jax.Array  # [] int32
    kind: jax.Array  # [] int32, of the last update
    in_phase: jax.Array  # [] int32, updates of this kind since one of another kind
    metrics: dict[str, jax.Array]  # means over the last phase of each kind, so far


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
    stack, num_actions = config.frame_stack, spec.max_num_actions
    makers = {
        "deterministic": simple_model.make_deterministic,
        "stochastic": simple_model.make_stochastic,
    }
    world: simple_model.World = makers[config.model](config, num_actions)
    policy = networks.Policy(num_actions)
    model_optimizer = adafactor.make_adafactor(
        simple_model.model_rate(config), max_norm=config.model_gradient_norm
    )
    policy_optimizer = adam.make_tensorflow_adam(
        config.policy_learning_rate, eps=config.adam_epsilon, b1=config.adam_b1, b2=config.adam_b2,
        max_norm=config.policy_gradient_norm,
    )  # fmt: skip
    scored, *others = TEMPERATURES
    others = {f"temperature_{value}": value for value in others}
    temperatures = {agent.TRAINING: 1.0, agent.EVALUATION: scored, **others}
    rules = {
        MODEL: SequenceRule(stack + config.world.target_frames, "within", config.model_batch_size),
        REAL: SequenceRule(config.real_rollout + stack - 1, "newest", 1),
        IN_MODEL: SequenceRule(stack, "starts", config.model_agents),
    }

    def init(run: types.RunSpec, key: chex.PRNGKey) -> types.LearnerState:
        del run  # the networks do not depend on the run
        keys = jax.random.split(key, 3)
        frames = jnp.zeros((1, stack, *config.frame_shape))
        params = SimpleParams(world.init(keys[0]), policy.init(keys[1], frames))
        names = ("loss_pixels", "loss_reward", "loss_bits", "windows_with_reward")
        names += ("model_gradient_norm",)
        names += tuple(
            f"{name}_{where}"
            for where in ("real", "in_model")
            for name in ("loss_policy", "loss_value", "entropy", "reward")
        )
        return types.LearnerState(
            params=types.TrainableParams(params, {}),
            target_params=(),
            opt_state=OptimizerStates(
                model_optimizer.init(params.model), policy_optimizer.init(params.policy)
            ),
            key=jax.random.key_data(keys[2]),
            updates=jnp.zeros((), jnp.int32),
            task_state={
                "progress": Progress(
                    *[jnp.zeros((), jnp.int32)] * 3, {name: jnp.zeros(()) for name in names}
                )
            },
        )

    def evaluate_policy(params, run, stacks):
        """Log-probabilities `[N, A]` and values `[N]` of stacks `[N, C, H, W, 3]`."""
        logits, value, _ = policy.apply(params, stacks.astype(jnp.float32))
        valid = jnp.arange(num_actions)[None] < run.num_valid_actions
        return jax.nn.log_softmax(jnp.where(valid, logits, -jnp.inf)), value

    def act(run, params: SimpleParams, observation, memory, key, policy_name: str, step):
        del step
        log, _ = evaluate_policy(params.policy, run, observation)
        temperature = temperatures[policy_name]
        if temperature == 0.0:
            action = jnp.argmax(log, axis=-1)
        else:
            action = jax.random.categorical(key, log / temperature)
        return action.astype(jnp.int32), memory

    def learn_policy(run, state, rollout: ppo.Rollout, frames, places, key, where: str):
        """PPO on a rollout `[T, N]`.

        Args:
          run: the run.
          state: the learner's.
          rollout: what was done.
          frames: `[F, H, W, 3]`.
          places: `[T, N, C] int32`, of the stacks' frames.
          key: of the shuffles.
          where: names the metrics.

        Returns:
          Parameters and optimiser state of the policy, metrics.
        """
        steps = len(places) - 1
        taught = ppo.targets(rollout, config.discount, config.advantage_lambda)
        learned = jax.tree.map(lambda x: x[:-1], rollout)

        def minibatch_loss(params, at):
            chosen = places[at]
            stacks = frames[chosen].reshape(-1, *chosen.shape[2:], *frames.shape[1:])
            log, value = evaluate_policy(params, run, stacks)
            of_steps = jax.tree.map(lambda x: x[at].reshape(-1), (learned, taught))
            return ppo.loss(log, value, *of_steps, config.ratio_clip, config.entropy_weight)

        def step(carried, at):
            params, opt_state = carried
            gradients, parts = jax.grad(minibatch_loss, has_aux=True)(params, at)
            params, opt_state, _ = policy_optimizer.step(gradients, opt_state, params)
            return (params, opt_state), parts

        batches = ppo.minibatches(key, steps, config.passes, config.minibatch_steps)
        start = state.params.agent.policy, state.opt_state.policy
        (params, opt_state), parts = jax.lax.scan(step, start, batches)
        metrics = {f"{name}_{where}": values.mean() for name, values in parts.items()}
        metrics[f"reward_{where}"] = rollout.reward.mean()
        return params, opt_state, metrics

    def learn_model(run, state, windows, key):
        del run
        progress: Progress = state.task_state["progress"]
        params, opt_state = state.params.agent, state.opt_state
        gradients, metrics = jax.grad(world.loss, has_aux=True)(
            params.model, windows, progress.model_updates, key
        )
        model, model_state, metrics["model_gradient_norm"] = model_optimizer.step(
            gradients, opt_state.model, params.model
        )
        has_reward = jnp.any(windows.reward[:, stack - 1 : -1] != 0, axis=1)
        metrics["windows_with_reward"] = jnp.mean(has_reward)
        return params._replace(model=model), opt_state._replace(model=model_state), metrics

    def learn_in_real_game(run, state, windows, key):
        """The window has the frames before the rollout that its first stacks need."""
        frames, steps = windows.observation[0], config.real_rollout // config.real_agents
        newest = jnp.arange(stack - 1, len(frames))
        firsts = jax.lax.cummax(jnp.where(windows.is_first[0], jnp.arange(len(frames)), 0))[newest]
        back = jnp.arange(stack)[::-1]
        places = jnp.maximum(newest[:, None] - back[None], firsts[:, None])

        def by_agent(x):
            return x.reshape(config.real_agents, steps, *x.shape[1:]).swapaxes(0, 1)

        places = by_agent(places)
        action, reward, going_on = (
            by_agent(x[0, stack - 1 :]) for x in (windows.action, windows.reward, windows.discount)
        )
        params = state.params.agent.policy
        log, value = jax.lax.map(lambda at: evaluate_policy(params, run, frames[at]), places)
        chosen = jnp.take_along_axis(log, action[..., None], axis=-1)[..., 0]
        rollout = ppo.Rollout(action, reward, going_on == 0, chosen, value)
        return learn_policy(run, state, rollout, frames, places, key, "real")

    def learn_in_model(run, state, windows, key):
        params = state.params.agent
        stacks = windows.observation.astype(jnp.float32)
        rollout_key, learn_key = jax.random.split(key)

        def step(carried, key):
            stacks, model_state = carried
            action_key, model_key = jax.random.split(key)
            log, value = evaluate_policy(params.policy, run, stacks)
            action = jax.random.categorical(action_key, log).astype(jnp.int32)
            prediction, model_state = world.step(
                params.model, model_state, stacks, action, model_key
            )
            chosen = jnp.take_along_axis(log, action[:, None], axis=1)[:, 0]
            done = jnp.zeros(action.shape, bool)
            taken = ppo.Rollout(action, prediction.sign, done, chosen, value)
            newest = stacks[:, -1].astype(jnp.uint8)
            stacks = jnp.concatenate([stacks[:, 1:], prediction.frame[:, None]], axis=1)
            return (stacks, model_state), (taken, newest)

        start = stacks, world.start(params.model, stacks)
        keys = jax.random.split(rollout_key, config.model_rollout)
        _, (rollout, newest) = jax.lax.scan(step, start, keys)
        before = windows.observation[:, :-1].swapaxes(0, 1)
        frames = jnp.concatenate([before, newest])  # [T + C - 1, N, H, W, 3]
        steps, agents = rollout.action.shape
        time = jnp.arange(steps)[:, None] + jnp.arange(stack)[None]
        places = time[:, None] * agents + jnp.arange(agents)[None, :, None]
        frames = frames.reshape(-1, *frames.shape[2:])
        return learn_policy(run, state, rollout, frames, places, learn_key, "in_model")

    def update(run: types.RunSpec, state: types.LearnerState, batch: types.Batch, kind: int = 0):
        windows: types.SequenceBatch = batch.transitions
        key, own_key = jax.random.split(native.wrap_key(state.key))
        progress: Progress = state.task_state["progress"]
        in_phase = jnp.where(progress.kind == kind, progress.in_phase, 0) + 1
        if kind == MODEL:
            params, opt_state, metrics = learn_model(run, state, windows, own_key)
        else:
            # The source saves Adam's moments between phases, and not the powers of its decay rates.
            policy_state = adam.restart_count(state.opt_state.policy, in_phase == 1)
            state = state._replace(opt_state=state.opt_state._replace(policy=policy_state))
            learn = learn_in_real_game if kind == REAL else learn_in_model
            policy_params, policy_state, metrics = learn(run, state, windows, own_key)
            params = state.params.agent._replace(policy=policy_params)
            opt_state = state.opt_state._replace(policy=policy_state)
        model_updates = progress.model_updates + (kind == MODEL)
        means = {
            name: jnp.where(in_phase == 1, new, mean + (new - mean) / in_phase)
            for name, new in metrics.items()
            for mean in (progress.metrics[name],)
        }
        progress = Progress(model_updates, jnp.int32(kind), in_phase, progress.metrics | means)
        state = types.LearnerState(
            params=types.TrainableParams(params, {}),
            target_params=(),
            opt_state=opt_state,
            key=jax.random.key_data(key),
            updates=state.updates + 1,
            task_state={"progress": progress},
        )
        return state, types.UpdateResult(jnp.ones(len(windows.reward)), progress.metrics)

    def embed(params: SimpleParams, pairs: types.Pairs) -> jax.Array:
        """phi(s, a): the policy's last hidden layer and the action, one-hot."""
        context: types.Context = pairs.observation
        # Frames before the first of an episode are copies of it, as in acting.
        places = jnp.maximum(
            jnp.arange(stack)[None], jnp.argmax(context.exists, axis=1, keepdims=True)
        )
        stacks = jnp.take_along_axis(context.frames, places[..., None, None, None], axis=1)
        _, _, hidden = policy.apply(params.policy, stacks.astype(jnp.float32))
        return jnp.concatenate([hidden, jax.nn.one_hot(pairs.action, num_actions)], axis=-1)

    layout = observations.as_rendered(config.frame_shape, np.uint8)
    return agent.Agent(
        init=init,
        act=act,
        update=update,
        embed=embed,
        compare=agent.make_compare(embed, {}),
        run_constants=lambda game: {},
        action=jax.ShapeDtypeStruct((), np.int32),
        observations=ObservationFormat.uniform(stack, layout)._replace(with_actions=True),
        protocol=EnvironmentProtocol(
            frame_stack=stack,
            life_loss_ends_episode=False,
            clip_rewards=True,
            max_episode_steps=config.max_episode_steps,
            stack_start="first_frame",
            restart_period=config.round_steps,
        ),
        replay=ReplaySettings(
            # All data: of every round its steps and the final frames of games of 20 steps or more.
            capacity=(config.rounds + 1) * (config.round_steps * 21 // 20 + 1) + stack,
            discount=config.discount,
            batch_size=config.model_batch_size,
            contrast_rule=ContrastRule(),
            sequences=(rules[MODEL], rules[REAL], rules[IN_MODEL]),
            round_steps=config.round_steps,
            all_final_frames=True,
        ),
        schedule=training.Rounds(config),
        evaluation=agent.EvaluationSettings(
            config.evaluation_period,
            config.periodic_episodes,
            {
                "policy": f"sampled at temperature {scored}",
                "clip_rewards": False,
                "unfinished_episodes": "count with what they have at the frame limit",
            },
            tuple(others),
        ),
        resources=training.resources(config),
    )
