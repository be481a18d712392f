"""The fixed games of a title, and the pairs that every run of the title is judged on.

20 games are of random play, 20 of the title's run of `erainbow_sa`, which there takes 5 % of its
actions at random. They are played once. `games.npz` beside that run keeps their actions, from which
they are played again, so every run is judged on the same games, whenever and wherever.
"""

import hashlib
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from experiments.returns import arms, measure
from experiments.returns.measure import Drawn
from experiments.sweeps.spec import Spec, Unit
from rcrl_jax import files, types
from rcrl_jax.config import fields
from rcrl_jax.config.presets import Config
from rcrl_jax.envs.agent_view import AgentEnvironment
from rcrl_jax.return_contrast import episodes, instruments
from rcrl_jax.runs import manifest, parameters
from rcrl_jax.runs.paths import RunId
from rcrl_jax.training import build, evaluation
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan

POLICIES = {"random": 1.0, arms.PLAYER: 0.05}
"""The policies of the fixed games, by their share of random actions."""
GAMES, PAIRS = 20, 512
"""Games and anchors of each policy."""

_FIRST_GAME = 100  # of an evaluation's numbered games; no run has played it
_AT_ONCE = evaluation.GAMES_AT_ONCE
_SEED = 0  # of the draws of pairs


class Title(NamedTuple):
    """The fixed games of one title, and the pairs that are drawn from them."""

    games: list[episodes.Episode]  # of all policies
    drawn: Drawn  # numbers of steps, counted through the games
    policy: np.ndarray  # [n] int64, the policy of each pair
    returns: dict[str, float]  # mean raw return by policy
    clock: float  # AUC of the distance in time alone
    sha256: str  # of frames, actions, and pairs


def path_of(spec: Spec, player: Unit) -> pathlib.Path:
    """Where the actions of a title's games are kept: beside its run of `erainbow_sa`."""
    return spec.result_paths(player).directory / "games.npz"


def title_of(spec: Spec, player: Unit) -> Title:
    """The fixed games of a title; those of a new title are recorded first.

    Args:
      spec: the study's list.
      player: the title's run of `erainbow_sa`.

    Raises:
      Damaged: the actions are not those of these games, or the parameters not those of this agent.
      OSError: a file cannot be read or written.
    """
    path = path_of(spec, player)
    if not path.exists():
        _record(spec, player, path)
    plan, fleet = make_fleet(spec, [player], spec.make_config(player))
    agent = fleet.agent
    protocol = agent.protocol.for_evaluation()
    seeds = evaluation.evaluation_seeds(fleet.seeds, plan.total_steps, _FIRST_GAME + GAMES)
    tolerance = agent.replay.contrast.tolerance
    games, returns, drawn, offset = [], {}, [], 0
    with files.reading(path), np.load(path) as actions:
        for number, policy in enumerate(POLICIES):
            own, raw = [], []
            for start in _starts():
                recorder = episodes.Recorder(
                    _AT_ONCE, agent.replay.closes_segment, agent.protocol, instruments.MOST_BYTES
                )
                environment = AgentEnvironment(
                    plan.make_environment(seeds[:, start : start + _AT_ONCE]), protocol
                )
                raw.append(_play_again(environment, actions[_key(policy, start)], recorder))
                own += recorder.episodes
            steps = instruments.as_played(own)
            rng = np.random.default_rng((_SEED, number))
            drawn.append(Drawn(*(x + offset for x in measure.draw(steps, PAIRS, tolerance, rng))))
            offset += len(steps.time)
            games += own
            returns[policy] = float(np.mean(raw))
    joined = Drawn(*(np.concatenate(x) for x in zip(*drawn, strict=True)))
    policy_of = np.repeat(np.arange(len(drawn)), [len(x.anchor) for x in drawn])
    time = episodes.all_steps(games).time
    clock = [np.abs(time[joined.anchor] - time[x]) for x in (joined.same, joined.different)]
    digest = hashlib.sha256()
    for array in (*(x for game in games for x in (game.frames, game.action)), *joined):
        digest.update(np.ascontiguousarray(array).tobytes())
    return Title(games, joined, policy_of, returns, measure.auc(*clock), digest.hexdigest())


def make_fleet(spec: Spec, units: Sequence[Unit], config: Config) -> tuple[Plan, Fleet]:
    """The fleet of runs of one arm, without their parameters, on the emulator they trained on."""
    runs = tuple(RunId(unit.game, unit.seed) for unit in units)
    backend = manifest.read(spec.result_paths(units[0]).manifest)["run"]["backend"]
    plan = Plan(
        preset=units[0].arm.preset,
        config=config,
        runs=runs,
        total_steps=spec.agent_steps(units[0]),
        workdir=spec.results,
        eval_episodes=spec.eval_episodes,
        make_environment=build.environment_maker(config, runs, backend),
    )
    environment, fleet = build.make_fleet(plan)
    environment.close()
    return plan, fleet


def read_parameters(spec: Spec, units: Sequence[Unit], fleet: Fleet) -> types.TrainableParams:
    """The final parameters of a fleet's runs, leading axis R.

    Raises:
      Damaged: a file holds other parameters.
      OSError: it cannot be read.
    """
    kept = [spec.result_paths(unit).parameters for unit in units]
    return parameters.read(kept, jax.eval_shape(fleet.init).params)


def _starts() -> range:
    """The first of each ten games that are played at once."""
    return range(_FIRST_GAME, _FIRST_GAME + GAMES, _AT_ONCE)


def _key(policy: str, start: int) -> str:
    return f"{policy}_{start}"


def _record(spec: Spec, player: Unit, path: pathlib.Path) -> None:
    """Plays the games and writes their actions, each `[T, 10] uint8`, also those after a game."""
    actions = {}
    for policy, epsilon in POLICIES.items():
        config = fields.replace(spec.make_config(player), {"evaluation_epsilon": epsilon})
        plan, fleet = make_fleet(spec, [player], config)
        params = read_parameters(spec, [player], fleet).agent
        for start in _starts():
            taken: list[np.ndarray] = []
            evaluation.evaluate(
                params,
                fleet,
                plan.make_environment,
                plan.total_steps,
                range(start, start + _AT_ONCE),
                after_step=lambda observation, action, outcome, taken=taken: taken.append(action),
            )
            actions[_key(policy, start)] = np.stack(taken).astype(np.uint8)
    with files.replacing(path) as partial:
        np.savez_compressed(partial, **actions)


def _play_again(
    environment: AgentEnvironment, actions: np.ndarray, recorder: episodes.Recorder
) -> np.ndarray:
    """Plays logged actions `[T, G]`; the raw returns of the first games, `[G]`.

    Raises:
      ValueError: a game does not end.
    """
    returns = np.full(environment.num_envs, np.nan)
    try:
        observation = environment.reset()
        for step in actions.astype(np.int32):
            outcome = environment.step(step)
            recorder(observation, step, outcome)
            ends = np.isnan(returns) & outcome.finished
            returns = np.where(ends, outcome.episode_return, returns)
            observation = outcome.observation
    finally:
        environment.close()
    if np.isnan(returns).any():
        raise ValueError("its actions do not end the games of this emulator")
    return returns
