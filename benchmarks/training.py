"""The training loop of a plan, for programs that step it and time it."""

from collections.abc import Iterator
from typing import NamedTuple

from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.replay.segment_replay import SegmentReplay
from rcrl_jax.training import build, loop
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.history import History
from rcrl_jax.training.plan import Plan


class Training(NamedTuple):
    """A fleet with all that its loop needs, and the loop."""

    environment: AgentEnvironment
    fleet: Fleet
    replay: SegmentReplay
    steps: Iterator[loop.Step]  # each takes a step of the loop


def start(plan: Plan) -> Training:
    """Makes environments, fleet and replay of a plan; nothing is written, no step is taken."""
    environment, fleet = build.make_fleet(plan)
    replay = build.make_replay(fleet, plan.frame_store)
    steps = loop.train(
        loop.start(fleet, environment),
        fleet=fleet,
        environment=environment,
        replay=replay,
        history=History(len(plan.runs), plan.total_steps, fleet.agent.action.shape),
        total_steps=plan.total_steps,
    )
    return Training(environment, fleet, replay, steps)
