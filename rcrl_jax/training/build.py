"""Builds the parts of an experiment from its plan."""

import functools
from collections.abc import Sequence

import jax
import numpy as np

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import Config
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.envs.protocol import EnvironmentSpec
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.runs import checkpoints, parameters
from rcrl_jax.runs.paths import RunId
from rcrl_jax.runs.workdir import Unusable
from rcrl_jax.training import evaluation
from rcrl_jax.training.environments import Cast, environment_of
from rcrl_jax.training.evaluation import EnvironmentMaker
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan


def environment_maker(
    config: Config, runs: Sequence[RunId], backend: str, fleet: Sequence[RunId] = ()
) -> EnvironmentMaker:
    """The maker of the environments of runs, sorted by game; each game has equally many runs.

    Args:
      config: of the runs.
      runs: the runs.
      backend: the simulator.
      fleet: all runs that trained together, if `runs` is only a part of them. Frames have the shape
        that they have in that fleet.

    Raises:
      Unusable: unknown game or backend, or a backend without this observation.
    """
    games = tuple(dict.fromkeys(run.game for run in runs))
    played = environment_of(config, games[0])
    try:
        for game in games:
            played.check(config, game, backend)
    except ValueError as error:
        raise Unusable(str(error)) from error
    together = tuple(dict.fromkeys(run.game for run in (*runs, *fleet)))
    cast = Cast(games, len(runs) // len(games), together)
    return functools.partial(played.make, config, cast, backend)


def make_fleet(plan: Plan, rows: Sequence[int] | None = None) -> tuple[AgentEnvironment, Fleet]:
    """The training environments of all runs, as their agents see them, and the fleet of agents.

    Args:
      plan: the experiment.
      rows: which runs are in the fleet, by their place in `plan.runs`; None means all. The agents
        have the same shapes as in the fleet of all runs.
    """
    environment = plan.make_environment(evaluation.training_seeds(plan.seeds))
    try:
        fleet = assemble_fleet(plan, environment.spec, environment.num_valid_actions, rows)
        return AgentEnvironment(environment, fleet.agent.protocol), fleet
    except BaseException:
        environment.close()
        raise


def assemble_fleet(
    plan: Plan,
    spec: EnvironmentSpec,
    num_valid_actions: Sequence[int],
    rows: Sequence[int] | None = None,
) -> Fleet:
    """The fleet of agents for environments that need not exist yet.

    Args:
      plan: the experiment.
      spec: of the environments.
      num_valid_actions: `[R]`, of the environments of all runs.
      rows: see `make_fleet`.
    """
    agent = make_agent(plan.config, spec)
    constants = [agent.run_constants(run.game) for run in plan.runs]
    runs = types.RunSpec(
        np.asarray(num_valid_actions, np.int32),
        jax.tree.map(lambda *by_run: np.stack(by_run), *constants),
    )
    seeds = plan.seeds
    if rows is not None:
        runs = jax.tree.map(lambda x: x[np.asarray(rows)], runs)
        seeds = tuple(seeds[row] for row in rows)
    devices = jax.devices()[: plan.num_devices]
    return Fleet(agent, seeds, runs, batching=plan.batching, devices=devices)


def choose_frame_store(choice: str, *, pixels: bool) -> str:
    """Where the replay stores frames: 'host' or 'device'.

    State vectors stay on the host: a batch of them is only 100 KB, and a TPU would copy the whole
    store in every update to gather this batch.

    Args:
      choice: 'host', 'device' or 'auto', which is the device for pixels on an accelerator.
      pixels: whether frames are images.

    Raises:
      ValueError: states would be stored on the device.
    """
    if choice == "device" and not pixels:
        raise ValueError("frame_store=device: only pixels are stored on the device, not states")
    if choice == "auto":
        return "device" if pixels and jax.default_backend() != "cpu" else "host"
    return choice


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
        zeros = fleet.zeros((capacity + 2, frames.device_frame_size(layout)), layout.dtype)
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
    directory = plan.paths[0].checkpoints
    steps = checkpoints.kept_steps(directory)
    if not steps:
        raise FileNotFoundError(f"{directory} holds no checkpoint")
    arrays = checkpoints.read_agents(checkpoints.path_of(directory, steps[-1]), fleet.num_runs)
    shapes = jax.eval_shape(fleet.init).params.agent
    return fleet, fleet.to_devices(parameters.fit(arrays, range(fleet.num_runs), shapes))
