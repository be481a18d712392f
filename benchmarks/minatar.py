r"""Evaluates two lists of runs on small games: settings of the base agent, then the question.

    python -m benchmarks.minatar --results=results/minatar

Reads the runs below `<results>/settings` and `<results>/question`, and writes `<results>/README.md`
and `<results>/curves.png`. docs/preregistration.md, "Small games", fixed lists, values, ranks and
tests beforehand. A winner is named only after all runs of the first list are finished, and a p
value is computed only after all runs of both arms of a question are finished.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter
from scipy import stats

from benchmarks import minatar_instruments
from rcrl_jax import files
from rcrl_jax.config import fields
from rcrl_jax.programs import markdown
from rcrl_jax.runs import records
from rcrl_jax.tables import panels, pools, registered, statistics
from rcrl_jax.training.nulls import PLAYS, plus_minus, with_error

LEVEL = 0.01
"""Level of each question, two-sided."""
PERMUTATIONS = 100_000
RESAMPLES = 50_000
SEED = 0
"""Seed of the permutations, and also of the resamples."""
BIN = 1000
"""Agent steps of a bin of the figure."""
EXPERIMENTS = 10_000
"""Simulated experiments for each cell of the table of power."""
EFFECTS = (0.0, 0.175, 0.35, 0.5)
"""True differences of the table of power, in standard deviations, equal in all games."""
NOT_STAYING = ("Asterix",)
"""Games that the winner does not learn, named in docs/preregistration.md before the question."""


class Listed(NamedTuple):
    """A pre-registered list of runs.

    Attributes:
        directory: of its runs, relative to the directory of all results.
        steps: agent steps of a run.
        games: all of them.
        seeds: arm -> its seeds in each game. An arm is named as its directory.
        values: arm -> the values of the fields in which arms differ; other fields are equal.
        episodes: of the final evaluation.
    """

    directory: str
    steps: int
    games: tuple[str, ...]
    seeds: Mapping[str, range]
    values: Mapping[str, Mapping[str, Any]]
    episodes: int = 20

    def count(self, arm: str) -> int:
        """Number of runs of an arm in the complete list."""
        return len(self.games) * len(self.seeds[arm])


BASE, RCRL = "minatar_erainbow_sa", "minatar_rcrl"
_CHOSEN = {
    "learning_rate": 2.5e-4, "n_step": 5, "exploration": "noise", "target_period": 2000,
}  # fmt: skip
_SETTINGS = {
    BASE: _CHOSEN,
    "rate_low": _CHOSEN | {"learning_rate": 1e-4},
    "rate_high": _CHOSEN | {"learning_rate": 5e-4},
    "n_3": _CHOSEN | {"n_step": 3},
    "n_10": _CHOSEN | {"n_step": 10},
    "epsilon": _CHOSEN | {"exploration": "epsilon_greedy"},
    "target_500": _CHOSEN | {"target_period": 500},
    "rate_high_target_500": _CHOSEN | {"learning_rate": 5e-4, "target_period": 500},
}
SETTINGS = Listed(
    "settings",
    20_000,
    ("Breakout", "SpaceInvaders", "Asterix", "Seaquest"),
    dict.fromkeys(_SETTINGS, range(100, 105)),
    _SETTINGS,
)
"""`campaigns/minatar_settings.toml` at `52104a7`; the order decides between equal mean ranks."""
ERRORS = 3.0
"""A game stays if the winner is this many standard errors over seeds above its best null."""

GAMES = tuple(game for game in SETTINGS.games if game not in NOT_STAYING)
"""Strata of the questions."""
_WITHOUT = {
    "head": "state_action",
    "auxiliary": [],
    "return_contrast.positives": "segment",
    "return_contrast.negative_differs_in_return": False,
}
_WITH = _WITHOUT | {"auxiliary": ["return_contrast"]}
QUESTION = Listed(
    "question",
    30_000,
    (*GAMES, "Freeway"),
    {
        BASE: range(60),
        RCRL: range(60),
        "equal_return": range(30),
        "minatar_erainbow": range(30),
    },
    {
        BASE: _WITHOUT,
        RCRL: _WITH,
        "equal_return": _WITH
        | {
            "return_contrast.positives": "equal_return",
            "return_contrast.negative_differs_in_return": True,
        },
        "minatar_erainbow": _WITHOUT | {"head": "state"},
    },
)
"""`campaigns/minatar.toml`."""
LEARNING = (RCRL, "equal_return")
"""Arms with the return-contrastive task."""
QUESTIONS = (
    (RCRL, BASE),
    ("equal_return", BASE),
    ("equal_return", RCRL),
    ("minatar_erainbow", BASE),
)
"""Pairs of arms; the first question is the primary one."""
FREEWAY_UP = (17.7, 1.3)
"""Mean return of always going up in Freeway and its standard error, 100 games, seeds 0 to 99."""


def read(results: pathlib.Path, listed: Listed) -> pd.DataFrame:
    """Reads the finished runs of a list.

    Returns:
        One row for each run, as from `runs.read`, but `arm` is the name in the list and `score` the
        value that the list judges. `last` is the mean return of the final evaluation. `episodes`
        are the training episodes `[n, 2]`: agent step of the end, and return.

    Raises:
        ValueError: a run is damaged, contradicts another one or is not of the list; or two runs
            differ in a condition, or in a field that no arm sets. The message names a directory.
    """
    root = results / listed.directory
    frame = registered.read_finished(root)
    arms = [run.directory.relative_to(root).parts[0] for run in frame.itertuples()]
    configs = [fields.flatten(run.manifest["run"]["config"]) for run in frame.itertuples()]
    for run, arm, config in zip(frame.itertuples(), arms, configs, strict=True):
        episodes = run.returns and len(run.returns)
        expected = {
            "arm": (arm in listed.values, arm),
            "game": (run.game in listed.games, run.game),
            "seed": (run.seed in listed.seeds.get(arm, ()), run.seed),
            "steps": (run.agent_steps == listed.steps, run.agent_steps),
            "episodes": (run.diverged or episodes == listed.episodes, episodes),
            "algorithm": (type(run.algorithm) is int, run.algorithm),
        }
        for name, value in listed.values.get(arm, {}).items():
            expected[name] = (config.get(name) == value, config.get(name))
        for name, (is_listed, value) in expected.items():
            if not is_listed:
                raise ValueError(f"{run.directory}: {name} is {value!r}, not that of the list")
    free = {name for values in listed.values.values() for name in values}
    equal = {name for config in configs for name in config} - free
    others = pd.DataFrame(
        [{name: repr(config.get(name)) for name in sorted(equal)} for config in configs],
        index=frame.index,
    )
    for name in pools.differing(frame):
        registered.refuse_differing(frame, name)
    for name in others:
        registered.refuse_differing(others.assign(directory=frame.directory), name)
    played = [_episodes(run) for run in frame.itertuples()]
    starts = [config["learn_start"] for config in configs]
    values = map(_value, frame.itertuples(), played, starts)
    return frame.assign(
        arm=arms, last=frame.score, score=[*values], episodes=pd.Series(played, frame.index, object)
    )


def _episodes(run: Any) -> np.ndarray:
    """The training episodes of a run, `[n, 2]`: the agent step of the end, and the return."""
    if run.diverged:
        return np.empty((0, 2))
    lines = records.read_metrics(run.directory / "metrics.jsonl")
    ended = [line for line in lines if "episode_return" in line]
    found = [(line["agent_steps"], line["episode_return"]) for line in ended]
    return np.array(found, np.float64).reshape(-1, 2)


def _value(run: Any, episodes: np.ndarray, learn_start: int) -> float:
    """Mean return of the training episodes that end after `learn_start`."""
    if run.diverged:
        return run.score
    counted = episodes[episodes[:, 0] > learn_start, 1]
    if not len(counted):
        raise ValueError(f"{run.directory}: no episode ends after agent step {learn_start}")
    return counted.mean()


def rank(means: np.ndarray) -> np.ndarray:
    """Ranks within games, 1 the best; equal values share their mean rank.

    Args:
        means: `[arms, games]`.
    """
    return stats.rankdata(-means, axis=0)


def is_complete(frame: pd.DataFrame) -> bool:
    """Whether all runs of the first list are finished."""
    return len(frame) == sum(map(SETTINGS.count, SETTINGS.values))


def rank_settings(frame: pd.DataFrame) -> pd.DataFrame:
    """Ranks of the complete first list: a row a setting, a column a game, and `mean`."""
    names, games = [*SETTINGS.values], SETTINGS.games
    means = [statistics.game_means(pools.scores(frame, arm, games)) for arm in names]
    ranks = pd.DataFrame(rank(np.stack(means)), names, games)
    return ranks.assign(mean=ranks.mean(axis=1))


def winner(frame: pd.DataFrame) -> str | None:
    """The setting with the best mean rank, on a tie the first; None if all have diverged."""
    ranks = rank_settings(frame)
    can_win = ranks[~ranks.index.isin(frame.arm[frame.diverged])]
    return can_win["mean"].idxmin() if len(can_win) else None


def going_on(frame: pd.DataFrame) -> Listed:
    """The list of longer runs of the complete first list's winner; they decide which games stay."""
    values = {BASE: SETTINGS.values[winner(frame) or BASE]}
    return Listed("winner", 30_000, SETTINGS.games, {BASE: range(100, 105)}, values, episodes=100)


def stays(last: np.ndarray, nulls: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Whether the winner learns a game.

    Args:
        last: `[R]`, mean return of a run's training episodes in the last fifth of its steps.
        nulls: kind of play without learning -> `[R]`, its mean return in the games of each run.

    Returns:
        `last` and `null`, each a mean over runs with its standard error; `best_null`, the kind with
        the largest mean; `errors`, the difference of both divided by its standard error over runs,
        None if that is 0; `stays`.
    """
    best = max(nulls, key=lambda kind: nulls[kind].mean())
    difference = with_error(last - nulls[best])
    above = difference["mean"] - ERRORS * difference["standard_error"]
    error = difference["standard_error"]
    return {
        "last": with_error(last),
        "null": with_error(nulls[best]),
        "best_null": best,
        "errors": difference["mean"] / error if error else None,
        "stays": above >= 0 < difference["mean"],
    }


def staying(frame: pd.DataFrame, listed: Listed) -> pd.DataFrame:
    """The result of `stays` for each game in which all runs of the winner are finished.

    Args:
        frame: runs of the winner. Training with `--nulls` wrote `gain.json` beside the runs of each
            game.
        listed: their list.

    Raises:
        ValueError: no episode of a run ends in the last fifth.
        Damaged: the nulls of a game are not those of its runs.
        OSError: they are not there.
    """
    rows = {}
    for game in listed.games:
        own = frame[frame.game == game]
        if len(own) < len(listed.seeds[BASE]):
            continue
        nulls = _read_nulls(own.directory.iloc[0].parent / "gain.json", own, listed.episodes)
        late = [episodes[episodes[:, 0] > 0.8 * listed.steps, 1] for episodes in own.episodes]
        if not all(map(len, late)):
            raise ValueError(f"{game}: no episode of a run ends in the last fifth")
        rows[game] = stays(np.array([*map(np.mean, late)]), nulls)
    return pd.DataFrame.from_dict(rows, orient="index")


def _read_nulls(path: pathlib.Path, runs: pd.DataFrame, episodes: int) -> dict[str, np.ndarray]:
    """Kind of play without learning -> `[R]`, its mean return in the games of each run."""

    def check(gained: dict[str, Any]) -> dict[str, np.ndarray]:
        of_runs = [gained["runs"][directory.name] for directory in runs.directory]
        if {one["episodes"] for one in of_runs} != {episodes}:
            raise ValueError(f"expected nulls over {episodes} episodes")
        return {kind: np.array([one[kind]["mean"] for one in of_runs]) for kind in PLAYS}

    return files.read_json(path, check)


def staying_table(learned: pd.DataFrame, listed: Listed) -> str:
    """The table of `staying`, as Markdown."""
    rows = [
        [
            game,
            plus_minus(row["last"], 2),
            f"{plus_minus(row['null'], 2)} ({PLAYS[row['best_null']]})",
            "" if row["errors"] is None else f"{row['errors']:.1f}",
            "yes" if row["stays"] else "no",
        ]
        for game, row in learned.iterrows()
    ]
    head = ["game", "last fifth of training", "best null", "standard errors above it", "stays"]
    count = len(listed.seeds[BASE])
    return (
        f"The winner, {count} runs of {listed.steps:,} agent steps a game, {len(learned)} of "
        f"{len(listed.games)} games finished. Mean ± standard error over seeds; each null over "
        f"{listed.episodes} episodes.\n\n{markdown.table(head, rows)}"
    )


def settings(frame: pd.DataFrame) -> str:
    """The table of settings and, once all runs are finished, the winner; as Markdown."""
    games = SETTINGS.games
    head = ["setting", *(f"{game}, mean (seeds)" for game in games)]
    rows = [
        [f"`{arm}`", *map(_mean_and_count, pools.scores(frame, arm, games))]
        for arm in SETTINGS.values
    ]
    total = sum(map(SETTINGS.count, SETTINGS.values))
    state = f"not finished: {len(frame)} of {total} runs."
    if is_complete(frame):
        best = winner(frame)
        state = f"The winner is `{best}` ({total} of {total} runs finished)."
        if best is None:
            state = "No setting can win: a run of each has diverged."
        head += ["ranks", "mean rank"]
        for row, (*own, mean) in zip(rows, rank_settings(frame).to_numpy(), strict=True):
            row += [", ".join(f"{value:g}" for value in own), f"{mean:g}"]
    return "\n".join([state, "", markdown.table(head, rows), *_diverged(frame)])


def check_values(first: pd.DataFrame, second: pd.DataFrame) -> None:
    """Raises ValueError unless all arms of the second list have the values of the first's winner.

    Args:
        first: complete runs of the settings.
        second: runs of the question.
    """
    values = SETTINGS.values[winner(first) or BASE]
    for run in second.itertuples():
        config = run.manifest["run"]["config"]
        for name, value in values.items():
            if config[name] != value:
                raise ValueError(f"{run.directory}: {name} is {config[name]!r}, not the winner's")


def residuals(frame: pd.DataFrame) -> np.ndarray:
    """Residuals of the complete first list, pooled over games: mean square 1 in each game.

    A residual is a run's value less the mean of its setting and game, divided by the game's
    standard deviation within settings.
    """
    pooled = []
    for _, own in frame.groupby("game", sort=False):
        left = (own.score - own.groupby("arm").score.transform("mean")).to_numpy()
        pooled.append(left / np.sqrt(np.mean(left**2)))
    return np.concatenate(pooled)


def power(pool: np.ndarray, effect: float, seeds: int, experiments: int = EXPERIMENTS) -> float:
    """Share of simulated experiments that find the first arm better at `LEVEL`.

    Args:
        pool: standardised residuals; runs are drawn from them with replacement.
        effect: added to every run of the first arm, in standard deviations.
        seeds: of each arm in each of `GAMES`.
        experiments: how many, a multiple of ten; each tenth draws new permutations.
    """
    rng, found = np.random.default_rng(SEED), 0
    pool = np.sort(pool)  # the order of runs is that of the file system
    for _ in range(10):
        first, second = rng.choice(pool, (2, len(GAMES), experiments // 10, seeds))
        test = statistics.stratified_rank_test(
            [*(first + effect)], [*second], rng, permutations=1999
        )
        found += np.sum((test.p_value <= LEVEL) & (test.statistic > 0))
    return float(found / experiments)


def power_table(frame: pd.DataFrame) -> str:
    """Simulated power of a question, from the complete first list; as Markdown."""
    pool = residuals(frame)
    sizes = sorted({len(seeds) for seeds in QUESTION.seeds.values()})
    rows = [
        [f"{effect:g} SD in every game", *(f"{power(pool, effect, size):.3f}" for size in sizes)]
        for effect in EFFECTS
    ]
    head = ["true difference", *(f"{size} seeds an arm" for size in sizes)]
    return (
        f"Power to find the first arm better, two-sided at {LEVEL:.0%}: {EXPERIMENTS:,} simulated "
        f"experiments a cell, runs drawn from the {len(pool)} residuals of the settings, 1,999 "
        f"permutations each.\n\n{markdown.table(head, rows)}"
    )


def question(frame: pd.DataFrame, first: str, second: str) -> str:
    """The verdict on "the first arm scores higher", with differences in games; as Markdown."""
    title = f"`{first}` against `{second}`"
    total = QUESTION.count(first) + QUESTION.count(second)
    finished = int(frame.arm.isin([first, second]).sum())
    if finished < total:
        return f"{title}: not yet asked, {finished} of {total} runs finished."
    arms = [pools.scores(frame, arm, GAMES) for arm in (first, second)]
    test = statistics.stratified_rank_test(
        *arms, np.random.default_rng(SEED), permutations=PERMUTATIONS
    )
    interval = statistics.bootstrap_intervals(
        {"difference": statistics.difference(statistics.game_means)},
        arms,
        np.random.default_rng(SEED),
        resamples=RESAMPLES,
    )["difference"]
    rows = [
        [game, f"{estimate:+.3f}", f"{low:+.3f} to {high:+.3f}"]
        for game, estimate, low, high in zip(GAMES, *interval, strict=True)
    ]
    return (
        f"{title}: {registered.verdict(test, LEVEL, first, second)} ({total} of {total} runs "
        f"finished; stratified rank test, two-sided p = {test.p_value:.5f}, judged at "
        f"{LEVEL:.0%}).\n\n{markdown.table(['game', 'difference', '95 % interval'], rows)}"
    )


def arms_table(frame: pd.DataFrame) -> str:
    """Values of the second list as Markdown; for Freeway, also the value of its constant action."""
    head = ["game"]
    for arm in QUESTION.values:
        head += [f"`{arm}`, mean (seeds)", "last agent"]
    rows = []
    for game in QUESTION.games:
        cells = [game]
        for arm in QUESTION.values:
            own = frame[(frame.arm == arm) & (frame.game == game)]
            last = own["last"]
            cells += [_mean_and_count(own.score), f"{last.mean():.2f}" if len(own) else ""]
        rows.append(cells)
    mean, error = FREEWAY_UP
    lines = [
        markdown.table(head, rows),
        "",
        f"Freeway is in no test: an agent that always goes up scores {mean:g} ± {error:g} there.",
        *_diverged(frame),
    ]
    return "\n".join(lines)


def page(first: pd.DataFrame, second: pd.DataFrame, winning: str = "") -> str:
    """Both lists as Markdown.

    Args:
        first: runs of the settings.
        second: runs of the question.
        winning: the table of the games that stay, if there is one.
    """
    parts = [f"## Settings of the base\n\n{settings(first)}"]
    if winning:
        parts.append(f"## Games that stay\n\n{winning}")
    parts.append(f"## Arms\n\n{arms_table(second)}")
    if is_complete(first):
        parts.append(f"## Power\n\n{power_table(first)}")
    asked = [question(second, *pair) for pair in QUESTIONS]
    parts.append("\n\n".join([f"## Primary question\n\n{asked[0]}", "## Secondary questions"]))
    parts += [*asked[1:], *pools.unclear_commits(pd.concat([first, second]))]
    return "\n\n".join(parts)


def curve(runs_episodes: Sequence[np.ndarray], steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Mean return of episodes in bins of `BIN` steps: mean and standard error over runs.

    Args:
        runs_episodes: `[n, 2]` of each run, as `read` has them.
        steps: agent steps of a run.

    Returns:
        Both `[bins]`; NaN where no episode ended, or for the error in fewer than two runs.
    """
    bins = -(-steps // BIN)
    means = np.full((len(runs_episodes), bins), np.nan)
    for own, episodes in zip(means, runs_episodes, strict=True):
        place = (episodes[:, 0].astype(int) - 1) // BIN
        counts = np.bincount(place, minlength=bins)
        sums = np.bincount(place, episodes[:, 1], minlength=bins)
        own[counts > 0] = sums[counts > 0] / counts[counts > 0]
    valid = ~np.isnan(means)
    count = np.where(valid.any(axis=0), valid.sum(axis=0), np.nan)
    mean = np.where(valid, means, 0.0).sum(axis=0) / count
    squares = np.where(valid, (means - mean) ** 2, 0.0).sum(axis=0)
    return mean, np.sqrt(squares / np.where(count > 1, count - 1, np.nan) / count)


def draw(frame: pd.DataFrame, listed: Listed) -> Figure:
    """Training curves: a panel for each game; for each arm the mean ± one standard error."""
    looks = panels.styles([*listed.values])
    middle = (np.arange(-(-listed.steps // BIN)) + 0.5) * BIN
    figure = Figure(figsize=(3.2 * len(listed.games), 3.6), layout="constrained")
    axes = figure.subplots(1, len(listed.games), squeeze=False)[0]
    for panel, game in zip(axes, listed.games, strict=True):
        panel.set_title(game)
        panel.set_xlabel("agent steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        for arm, look in looks.items():
            own = frame[(frame.arm == arm) & (frame.game == game)]
            mean, error = curve([*own.episodes], listed.steps)
            panel.plot(middle, mean, color=look.color, linestyle=look.dash, label=arm)
            panel.fill_between(
                middle, mean - error, mean + error, color=look.color, alpha=0.2, linewidth=0
            )
    axes[0].set_ylabel(f"return of training episodes, bins of {BIN:,} steps")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    return figure


def read_page(results: pathlib.Path) -> tuple[str, pd.DataFrame, pd.DataFrame]:
    """The page of all finished runs, and the runs of both lists.

    Raises:
        ValueError: as `read`; or a run of the question has other values than the winner, or its
            games are not those that stay.
    """
    first, second = (read(results, listed) for listed in (SETTINGS, QUESTION))
    winning = ""
    if is_complete(first):
        check_values(first, second)
        listed = going_on(first)
        learned = staying(read(results, listed), listed)
        if len(learned):
            winning = staying_table(learned, listed)
        left = {game for game, row in learned.iterrows() if not row["stays"]}
        if len(second) and (len(learned) < len(listed.games) or left != {*NOT_STAYING}):
            raise ValueError(f"{results}: games that do not stay: {left}, not {NOT_STAYING}")
    text = page(first, second, winning)
    if second.arm.isin(LEARNING).any():
        told = minatar_instruments.section(second, LEARNING, GAMES)
        text = f"{text}\n\n## What the discriminator tells apart\n\n{told}"
    return text, first, second


def judge(results: pathlib.Path) -> str:
    """Draws the figure beside the results and returns the page.

    The figure shows the settings until a run of the question is finished, then the question.
    """
    text, first, second = read_page(results)
    shown = (second, QUESTION) if len(second) else (first, SETTINGS)
    with panels.drawing(), files.replacing(results / "curves.png") as partial:
        draw(*shown).savefig(partial, format="png", dpi=150, metadata={"Software": None})
    return f"{text}\n\n![mean ± standard error over seeds](curves.png)"


def _mean_and_count(scores: Sequence[float]) -> str:
    return f"{np.mean(scores):.3f} ({len(scores)})" if len(scores) else "(0)"


def _diverged(frame: pd.DataFrame) -> list[str]:
    names = [str(directory) for directory in frame.directory[frame.diverged]]
    if not names:
        return []
    return ["", f"Diverged {records.ATTEMPTS} times, counted as uniform play: {', '.join(names)}."]


if __name__ == "__main__":
    registered.start(
        "minatar",
        judge,
        title="Small games: what thirty to sixty seeds say",
        note="lists and tests are those of docs/preregistration.md.",
    )
