r"""Scores the study's runs on one fixed set of episodes a title, and applies its rule.

    python -m experiments.returns.score --spec=campaigns/returns.toml

Needs every run of the list with its parameters.npz, in the directory that the list names. A title's
set is 20 games of random play and 20 of the title's run of `erainbow_sa`, which there takes 5 % of
its actions at random. Writes measure.json and table.md beside the runs, once.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags

from experiments import command_line, launch
from experiments.returns import arms, measure
from experiments.returns.measure import Drawn
from experiments.sweeps import work
from experiments.sweeps.spec import Spec, SweepError, Unit, read_spec
from rcrl_jax import files, types
from rcrl_jax.config import fields
from rcrl_jax.return_contrast import episodes, instruments
from rcrl_jax.runs import manifest, parameters, records
from rcrl_jax.runs.paths import RunId
from rcrl_jax.training import build, evaluation
from rcrl_jax.training.fleet import Fleet
from rcrl_jax.training.plan import Plan

POLICIES = {"random": 1.0, arms.PLAYER: 0.05}
"""The policies of the fixed games, by their share of random actions."""
MEASURE, TABLE = "measure.json", "table.md"

_FIRST_GAME = 100  # of an evaluation's numbered games; no run has played it
_SEED = 0  # of the draws of pairs
_CHANGED, _WEIGHT = "changed_labels", "contrast_weight"  # recorded by two of the arms
_LEAST_CHANGED = 0.8  # with a smaller share of changed labels, the control is none


class Title(NamedTuple):
    """The fixed games of one title, and the pairs that are drawn from them."""

    games: list[episodes.Episode]  # of all policies
    drawn: Drawn  # numbers of steps, counted through the games
    policy: np.ndarray  # [n] int64, the policy of each pair
    returns: dict[str, float]  # mean raw return by policy
    clock: float  # AUC of the distance in time alone


def score(spec: Spec, units: Sequence[Unit], games: int, pairs: int) -> dict[str, Any]:
    """Plays the fixed games, judges the runs, and applies the rule.

    Args:
      spec: the study's list.
      units: its runs, without those that diverged twice; these count as incomputable.
      games: of each policy, a multiple of ten.
      pairs: anchors of each policy.

    Raises:
      Damaged: a file does not hold what it should.
      OSError: a file cannot be read.
    """
    titles = {u.game: play(spec, u, games, pairs) for u in units if u.arm.name == arms.PLAYER}
    judged = [unit for unit in spec.units if unit.arm.name != arms.PLAYER]
    of = {unit: {"auc": measure.INCOMPUTABLE} for unit in judged}
    for arm in dict.fromkeys(unit.arm for unit in judged):
        own = [unit for unit in units if unit.arm == arm]
        for unit, values in zip(own, judge(spec, own, titles) if own else (), strict=True):
            of[unit] = values | _recorded(spec, unit)
    means: dict[str, dict[str, float]] = {}
    for arm in dict.fromkeys(unit.arm.name for unit in judged):
        means[arm] = {
            game: float(np.mean([of[u]["auc"] for u in of if (u.arm.name, u.game) == (arm, game)]))
            for game in titles
        }
    candidates = {arm: means[arm] for arm in arms.CANDIDATES}
    others = means[arms.TODAY], means[arms.CONTROL_ARM]
    return {
        "chosen": measure.decide(candidates, *others),
        "exceeds_all_in": {a: measure.exceeded(own, *others) for a, own in candidates.items()},
        "means": means,
        "runs": [
            {"arm": unit.arm.name, "game": unit.game, "seed": unit.seed, **values}
            for unit, values in of.items()
        ],
        "titles": {game: _describe(title) for game, title in titles.items()},
        **manifest.circumstances(),
    }


def play(spec: Spec, player: Unit, games: int, pairs: int) -> Title:
    """The fixed games of a title; `player` is the run whose agent plays those not at random."""
    played, returns, drawn, offset = [], {}, [], 0
    for number, (policy, epsilon) in enumerate(POLICIES.items()):
        config = fields.replace(spec.make_config(player), {"evaluation_epsilon": epsilon})
        plan, fleet, params = _restore(spec, [player], config)
        agent, own, raw = fleet.agent, [], []
        for start in range(_FIRST_GAME, _FIRST_GAME + games, evaluation.GAMES_AT_ONCE):
            recorder = episodes.Recorder(
                evaluation.GAMES_AT_ONCE,
                agent.replay.closes_segment,
                agent.protocol,
                instruments.MOST_BYTES,
            )
            numbers = range(start, start + evaluation.GAMES_AT_ONCE)
            result = evaluation.evaluate(
                params.agent,
                fleet,
                plan.make_environment,
                plan.total_steps,
                numbers,
                after_step=recorder,
            )
            own += recorder.episodes
            raw += list(result.returns[0])
        steps = instruments.as_played(own)
        rng = np.random.default_rng((_SEED, number))
        tolerance = agent.replay.contrast.tolerance
        found = measure.draw(steps, pairs, tolerance, rng)
        drawn.append(Drawn(*(x + offset for x in found)))
        offset += len(steps.time)
        played += own
        returns[policy] = float(np.mean(raw))
    joined = Drawn(*(np.concatenate(x) for x in zip(*drawn, strict=True)))
    policy_of = np.repeat(np.arange(len(drawn)), [len(x.anchor) for x in drawn])
    time = episodes.all_steps(played).time
    clock = [np.abs(time[joined.anchor] - time[x]) for x in (joined.same, joined.different)]
    return Title(played, joined, policy_of, returns, measure.auc(*clock))


def judge(spec: Spec, units: Sequence[Unit], titles: Mapping[str, Title]) -> list[dict[str, float]]:
    """The AUCs of an arm's runs on the pairs of their titles: of all, and by policy."""
    _, fleet, params = _restore(spec, units, spec.make_config(units[0]))
    own = [titles[unit.game] for unit in units]
    # One call needs equally many pairs of every run; a title with fewer repeats its step 0.
    most = max(1, *(len(title.policy) for title in own))
    steps = np.zeros((3, len(units), most), np.int64)
    for run, title in enumerate(own):
        steps[:, run, : len(title.policy)] = title.drawn
    anchor, same, different = steps
    compared = instruments.compare(
        fleet,
        params,
        [title.games for title in own],
        np.concatenate([anchor, anchor], axis=1),
        np.concatenate([same, different], axis=1),
    )
    logits = compared.logit.reshape(len(units), 2, most)
    values = []
    for title, both in zip(own, logits, strict=True):
        both = both[:, : len(title.policy)]
        by_policy = {
            f"auc_{policy}": measure.auc(*both[:, title.policy == number])
            for number, policy in enumerate(POLICIES)
        }
        values.append({"auc": measure.auc(*both), **by_policy})
    return values


def _restore(
    spec: Spec, units: Sequence[Unit], config: Any
) -> tuple[Plan, Fleet, types.TrainableParams]:
    """The fleet of finished runs of one arm, and their final parameters."""
    paths = [spec.result_paths(unit) for unit in units]
    runs = tuple(RunId(unit.game, unit.seed) for unit in units)
    backend = manifest.read(paths[0].manifest)["run"]["backend"]
    plan = Plan(
        preset=units[0].arm.preset,
        config=config,
        runs=runs,
        total_steps=spec.agent_steps(units[0].game),
        workdir=spec.results,
        eval_episodes=spec.eval_episodes,
        make_environment=build.environment_maker(config, runs, backend),
    )
    environment, fleet = build.make_fleet(plan)
    environment.close()
    kept = [path.parameters for path in paths]
    return plan, fleet, parameters.read(kept, jax.eval_shape(fleet.init).params)


def _recorded(spec: Spec, unit: Unit) -> dict[str, float]:
    """Means over training of what the run recorded of its samples."""
    lines = records.read_metrics(spec.result_paths(unit).metrics)
    values = {name: [x[name] for x in lines if name in x] for name in (_CHANGED, _WEIGHT)}
    return {name: float(np.mean(own)) for name, own in values.items() if own}


def _describe(title: Title) -> dict[str, Any]:
    """What a title's set is, for the record; its digest tells two sets apart."""
    digest = hashlib.sha256()
    for array in (*(game.action for game in title.games), *title.drawn):
        digest.update(np.ascontiguousarray(array).tobytes())
    return {
        "games": len(title.games),
        "pairs_of_each_label": {
            policy: int(np.sum(title.policy == number)) for number, policy in enumerate(POLICIES)
        },
        "mean_return": title.returns,
        "auc_clock": title.clock,
        "sha256": digest.hexdigest(),
    }


def table(found: Mapping[str, Any]) -> str:
    """Markdown: the outcome, means by arm and title with the clock, and every run."""
    titles = list(found["titles"])
    chosen = found["chosen"]
    text = [
        "# What the readings learn of returns",
        "",
        "Written by `python -m experiments.returns.score`. Areas under the ROC curve on the fixed "
        "pairs, means over seeds; rule and measure: docs/preregistration.md.",
        "",
        f"**{f'`{chosen}` becomes `rcrl_returns`' if chosen else 'No arm qualifies'}.** "
        + "; ".join(
            f"`{arm}` exceeds 0.5, `{arms.TODAY}` and `{arms.CONTROL_ARM}` by 0.1 in "
            f"{', '.join(won) or 'no title'}"
            for arm, won in found["exceeds_all_in"].items()
        )
        + ".",
        "",
        f"| arm | {' | '.join(titles)} | mean |",
        f"| --- |{' --- |' * (len(titles) + 1)}",
    ]
    for arm, own in found["means"].items():
        cells = [*(own[title] for title in titles), np.mean(list(own.values()))]
        text.append(f"| `{arm}` | {' | '.join(f'{x:.3f}' for x in cells)} |")
    clocks = [found["titles"][title]["auc_clock"] for title in titles]
    text.append(f"| a clock | {' | '.join(f'{x:.3f}' for x in clocks)} | {np.mean(clocks):.3f} |")
    shares = {}
    for run in found["runs"]:
        if _CHANGED in run:
            shares.setdefault(run["game"], []).append(run[_CHANGED])
    text += [
        "",
        "Labels that the control's permutation changed: "
        + ", ".join(
            f"{title} {100 * np.mean(own):.0f} %"
            + " (no control)" * bool(np.mean(own) < _LEAST_CHANGED)
            for title, own in shares.items()
        )
        + ".",
    ]
    policies = [f"auc_{policy}" for policy in POLICIES]
    names = ["auc", *policies, _CHANGED, _WEIGHT]
    heads = ["arm", "title", "seed", "AUC", *(f"on {policy}" for policy in POLICIES)]
    heads += ["changed labels", "samples with both partners"]
    text += ["", f"| {' | '.join(heads)} |", f"|{' --- |' * len(heads)}"]
    for run in found["runs"]:
        values = [f"{run[name]:.3f}" if name in run else "–" for name in names]
        cells = [f"`{run['arm']}`", run["game"], str(run["seed"]), *values]
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def _check_finished(spec: Spec, diverged: Collection[str]) -> list[Unit]:
    """The runs of the list that did not diverge, all of them finished.

    Raises:
      SweepError: one is not finished, or has no parameters, or `diverged` names no run.
    """
    unknown = set(diverged) - {unit.name for unit in spec.units}
    if unknown:
        raise SweepError(f"--diverged: {min(unknown)} is no run of the list")
    units = [unit for unit in spec.units if unit.name not in diverged]
    missing = [
        unit
        for unit in units
        if not work.is_finished(spec, unit) or not spec.result_paths(unit).parameters.exists()
    ]
    if missing:
        raise SweepError(
            f"{len(missing)} of {len(units)} runs are not finished or lack their parameters.npz, "
            f"for example {missing[0].name}: nothing is scored before"
        )
    return units


def define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("spec", "campaigns/returns.toml", "the study's list of runs")
    flags.DEFINE_list(
        "diverged", [], "runs that diverged twice, such as equal_return-Alien-0; each counts as 0.5"
    )
    flags.DEFINE_integer(
        "episodes", 20, "games of each policy, a multiple of 10; 20 are registered", lower_bound=10
    )
    flags.DEFINE_integer("pairs", 512, "anchors of each policy; 512 are registered", lower_bound=1)


def main(argv: list[str]) -> None:
    """Writes measure.json and table.md."""
    del argv
    given = flags.FLAGS
    try:
        spec = read_spec(given.spec)
        paths = [spec.results / name for name in (MEASURE, TABLE)]
        if there := [path for path in paths if path.exists()]:
            raise SweepError(f"{there[0]} is there already: the runs are scored once")
        if given.episodes % evaluation.GAMES_AT_ONCE:
            raise SweepError(f"--episodes: {given.episodes} is no multiple of 10")
        units = _check_finished(spec, given.diverged)
        files.make_writable(spec.results)
    except (SweepError, files.Damaged, OSError) as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        found = score(spec, units, given.episodes, given.pairs)
        text = table(found)
        files.write_json_atomically(paths[0], files.to_json_value(found))
        with files.replacing(paths[1]) as partial:
            partial.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=command_line.parse)
