"""Builds the parts of an experiment from its plan."""

import jax
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.training import checkpoint, evaluation
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan


def make_fleet(plan: Plan) -> tuple[AgentEnvironment, Fleet]:
    """The training environments of all runs, as their agents see them, and the fleet of agents."""
    environment = plan.make_environment(evaluation.training_seeds(plan.seeds))
    try:
        agent = make_agent(plan.config, environment.spec)
        constants = [agent.run_constants(run.game) for run in plan.runs]
        runs = types.RunSpec(
            np.asarray(environment.num_valid_actions, np.int32),
            jax.tree.map(lambda *of_runs: np.stack(of_runs), *constants),
        )
        devices = jax.devices()[: plan.num_devices]
        fleet = Fleet(agent, plan.seeds, runs, batching=plan.batching, devices=devices)
        return AgentEnvironment(environment, agent.protocol), fleet
    except BaseException:
        environment.close()
        raise


def make_replay(fleet: Fleet, frame_store: str) -> SegmentReplay:
    """An empty replay for the runs of a fleet.

    Args:
      fleet: its agent reads the replay; its devices hold the frames if `frame_store` is 'device'.
      frame_store: 'host' or 'device', where frames are stored.
    """
    agent, runs = fleet.agent, fleet.num_runs
    layout, capacity = agent.observations.stored, agent.replay.capacity
    if frame_store == "host":
        store = frames.HostFrameStore(runs, capacity, layout)
    else:
        zeros = fleet.zeros((capacity + 2, *layout.stored_shape), layout.dtype)
        store = frames.DeviceFrameStore(runs, zeros, fleet.place, layout)
    seeds = np.asarray(fleet.seeds)
    return SegmentReplay(store, seeds, agent.replay, agent.observations, agent.action)


def restore_agents(plan: Plan) -> tuple[Fleet, types.Params]:
    """The fleet of a finished plan, and the final parameters of its agents, leading axis R.

    Raises:
      FileNotFoundError: the work directory holds no checkpoint.
    """
    environment, fleet = make_fleet(plan)
    environment.close()
    store = checkpoint.CheckpointStore(plan.paths[0].checkpoints)
    try:
        learner = store.restore_learner(fleet.to_host(fleet.init()))
    finally:
        store.close()
    return fleet, fleet.place(learner.params.agent)
