r"""Scores the study's runs on one fixed set of games a title, and applies its rule.

    python -m experiments.returns.score --spec=campaigns/returns.toml

Needs every run of the list judged (`experiments.returns.judge`), in the directory that the list
names. Writes measure.json and table.md beside the runs, once.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from absl import app, flags

from experiments import command_line, launch, markdown
from experiments.returns import arms, games, judge, measure
from experiments.returns.games import Title
from experiments.sweeps import work
from experiments.sweeps.spec import Spec, SweepError, Unit, read_spec
from rcrl_jax import files
from rcrl_jax.runs import manifest, records

MEASURE, TABLE = "measure.json", "table.md"

_CHANGED, _WEIGHT = "changed_labels", "contrast_weight"  # recorded by two of the arms
_LEAST_CHANGED = 0.8  # with a smaller share of changed labels, the control is none


def score(spec: Spec, units: Sequence[Unit]) -> dict[str, Any]:
    """Scores the judged runs, and applies the rule.

    Args:
      spec: the study's list.
      units: its runs, without those that diverged twice; these count as incomputable.

    Raises:
      Damaged: a file does not hold what it should.
      OSError: a file cannot be read.
    """
    titles = {u.game: games.title_of(spec, u) for u in units if u.arm.name == arms.PLAYER}
    judged = [unit for unit in spec.units if unit.arm.name != arms.PLAYER]
    of = {
        unit: _areas(spec, unit, titles[unit.game]) | _recorded(spec, unit)
        if unit in units
        else {"auc": measure.INCOMPUTABLE}
        for unit in judged
    }
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


def _areas(spec: Spec, unit: Unit, title: Title) -> dict[str, float]:
    """The AUCs of a run on the pairs of its title: of all, and by policy.

    Raises:
      Damaged: the file holds no outputs on these pairs.
      OSError: it cannot be read.
    """
    path = judge.logits_path(spec, unit)
    with files.reading(path), np.load(path) as file:
        if str(file["games"]) != title.sha256:
            raise ValueError("it holds outputs on other games")
        same, different = file["same"], file["different"]
    by_policy = {
        f"auc_{policy}": measure.auc(*(x[title.policy == number] for x in (same, different)))
        for number, policy in enumerate(games.POLICIES)
    }
    return {"auc": measure.auc(same, different), **by_policy}


def _recorded(spec: Spec, unit: Unit) -> dict[str, float]:
    """Means over training of what the run recorded of its samples."""
    lines = records.read_metrics(spec.result_paths(unit).metrics)
    values = {name: [x[name] for x in lines if name in x] for name in (_CHANGED, _WEIGHT)}
    return {name: float(np.mean(own)) for name, own in values.items() if own}


def _describe(title: Title) -> dict[str, Any]:
    """What a title's set is, for the record."""
    return {
        "games": len(title.games),
        "pairs_of_each_label": {
            policy: int(np.sum(title.policy == n)) for n, policy in enumerate(games.POLICIES)
        },
        "mean_return": title.returns,
        "auc_clock": title.clock,
        "sha256": title.sha256,
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
    ]
    clock = {title: described["auc_clock"] for title, described in found["titles"].items()}
    rows = {**{f"`{arm}`": own for arm, own in found["means"].items()}, "a clock": clock}
    cells = [
        [name, *(f"{own[title]:.3f}" for title in titles), f"{np.mean(list(own.values())):.3f}"]
        for name, own in rows.items()
    ]
    text.append(markdown.table(["arm", *titles, "mean"], cells))
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
    policies = [f"auc_{policy}" for policy in games.POLICIES]
    names = ["auc", *policies, _CHANGED, _WEIGHT]
    heads = ["arm", "title", "seed", "AUC", *(f"on {policy}" for policy in games.POLICIES)]
    heads += ["changed labels", "samples with both partners"]
    cells = [
        [f"`{run['arm']}`", run["game"], str(run["seed"])]
        + [f"{run[name]:.3f}" if name in run else "–" for name in names]
        for run in found["runs"]
    ]
    text += ["", markdown.table(heads, cells)]
    return "\n".join(text) + "\n"


def _check_finished(spec: Spec, diverged: Collection[str]) -> list[Unit]:
    """The runs of the list that did not diverge, all of them finished and judged.

    Raises:
      SweepError: one is not finished or not judged, or `diverged` names no run.
    """
    unknown = set(diverged) - {unit.name for unit in spec.units}
    if unknown:
        raise SweepError(f"--diverged: {min(unknown)} is no run of the list")
    units = [unit for unit in spec.units if unit.name not in diverged]
    missing = [
        unit
        for unit in units
        if not work.is_finished(spec, unit)
        or not (unit.arm.name == arms.PLAYER or judge.logits_path(spec, unit).exists())
    ]
    if missing:
        raise SweepError(
            f"{len(missing)} of {len(units)} runs are not finished or not judged, for example "
            f"{missing[0].name}: nothing is scored before"
        )
    return units


def define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("spec", "campaigns/returns.toml", "the study's list of runs")
    flags.DEFINE_list(
        "diverged", [], "runs that diverged twice, such as equal_return-Alien-0; each counts as 0.5"
    )


def main(argv: list[str]) -> None:
    """Writes measure.json and table.md."""
    del argv
    given = flags.FLAGS
    try:
        spec = read_spec(given.spec)
        paths = [spec.results / name for name in (MEASURE, TABLE)]
        if there := [path for path in paths if path.exists()]:
            raise SweepError(f"{there[0]} is there already: the runs are scored once")
        units = _check_finished(spec, given.diverged)
        files.make_writable(spec.results)
    except (SweepError, files.Damaged, OSError) as error:
        command_line.refuse(str(error))
    with launch.ending_cleanly():
        found = score(spec, units)
        text = table(found)
        files.write_json_atomically(paths[0], files.to_json_value(found))
        with files.replacing(paths[1]) as partial:
            partial.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=command_line.parse)
