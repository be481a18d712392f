"""Evaluates the question on small games: does the return-contrastive loss raise the score?

    python -m benchmarks.minatar --results=results/minatar

Reads the runs below `<results>/question`, and writes `<results>/README.md` and
`<results>/curves.png`. docs/preregistration.md, "Small games", fixed list, values and tests
beforehand. A p value is computed only after all runs of both arms of a question are finished.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from benchmarks import minatar_instruments
from rcrl_jax import files, words
from rcrl_jax.config import fields
from rcrl_jax.programs import markdown
from rcrl_jax.runs import records
from rcrl_jax.tables import panels, pools, registered, statistics

LEVEL = 0.01
"""Level of each question, two-sided."""
PERMUTATIONS = 100_000
RESAMPLES = 50_000
SEED = 0
"""Seed of the permutations, and also of the resamples."""
BIN = 1000
"""Agent steps of a bin of the figure."""
STEPS = 30_000
"""Agent steps of a run."""
EPISODES = 20
"""Episodes of the final evaluation."""
GAMES = ("Breakout", "SpaceInvaders", "Seaquest")
"""Strata of the questions: the base does not learn Asterix."""
ALL_GAMES = (*GAMES, "Freeway")
"""Games of the list."""
BASE, RCRL = "minatar_erainbow_sa", "minatar_rcrl"
ARMS = {BASE: range(60), RCRL: range(60), "equal_return": range(30), "minatar_erainbow": range(30)}
"""Arm, named as its directory -> its seeds in each game; of `campaigns/minatar.toml`."""
_SETTINGS = {"learning_rate": 5e-4, "n_step": 5, "exploration": "noise", "target_period": 500}
"""The winner of the first list: results/minatar/settings/README.md."""
_WITHOUT = _SETTINGS | {
    "head": "state_action",
    "auxiliary": [],
    "return_contrast.positives": "segment",
    "return_contrast.negative_differs_in_return": False,
}
_WITH = _WITHOUT | {"auxiliary": ["return_contrast"]}
VALUES = {
    BASE: _WITHOUT,
    RCRL: _WITH,
    "equal_return": _WITH
    | {
        "return_contrast.positives": "equal_return",
        "return_contrast.negative_differs_in_return": True,
    },
    "minatar_erainbow": _WITHOUT | {"head": "state"},
}
"""Arm -> the values of its fields; other fields are equal in all runs."""
LEARNING = (RCRL, "equal_return")
"""Arms with the return-contrastive task."""
QUESTIONS = (
    (RCRL, BASE),
    ("equal_return", BASE),
    ("equal_return", RCRL),
    ("minatar_erainbow", BASE),
)
"""Pairs of arms; the first question is the primary one."""
COLORS = {
    BASE: "tab:gray", RCRL: "tab:red", "equal_return": "tab:cyan", "minatar_erainbow": "tab:purple",
}  # fmt: skip
"""Arm -> colour of its curve; the first two are those of docs/figures.py."""
FREEWAY_UP = (17.7, 1.3)
"""Mean return of always going up in Freeway and its standard error, 100 games, seeds 0 to 99."""


def read(results: pathlib.Path) -> pd.DataFrame:
    """Reads the finished runs of the list.

    Returns:
        One row for each run, as from `runs.read`, but `arm` is the name in the list and `score` the
        value that the list judges. `last` is the mean return of the final evaluation. `episodes`
        are the training episodes `[n, 2]`: agent step of the end, and return.

    Raises:
        ValueError: a run is damaged, contradicts another one or is not of the list; or two runs
            differ in a condition, or in a field that no arm sets. The message names a directory.
    """
    root = results / "question"
    frame = registered.read_finished(root)
    arms = [next(iter(run.directory.relative_to(root).parts), "") for run in frame.itertuples()]
    configs = [fields.flatten(run.manifest["run"]["config"]) for run in frame.itertuples()]
    for run, arm, config in zip(frame.itertuples(), arms, configs, strict=True):
        expected = {
            "arm": (arm in VALUES, arm),
            "game": (run.game in ALL_GAMES, run.game),
            "seed": (run.seed in ARMS.get(arm, ()), run.seed),
        }
        for name, value in VALUES.get(arm, {}).items():
            expected[name] = (config.get(name) == value, config.get(name))
        registered.refuse_unlisted(run, expected, STEPS, EPISODES)
    free = {name for values in VALUES.values() for name in values}
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


def question(frame: pd.DataFrame, first: str, second: str) -> str:
    """The verdict on "the first arm scores higher", with differences in games; as Markdown."""
    title = f"`{first}` against `{second}`"
    total = len(ALL_GAMES) * (len(ARMS[first]) + len(ARMS[second]))
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
    """Values of the runs as Markdown; for Freeway, also the value of its constant action."""
    head = ["game"]
    for arm in VALUES:
        head += [f"`{arm}`, mean (seeds)", "last agent"]
    rows = []
    for game in ALL_GAMES:
        cells = [game]
        for arm in VALUES:
            own = frame[(frame.arm == arm) & (frame.game == game)]
            last = own["last"]
            cells += [_mean_and_count(own.score), f"{last.mean():.2f}" if len(own) else ""]
        rows.append(cells)
    mean, error = FREEWAY_UP
    lines = [
        markdown.table(head, rows),
        "",
        f"Freeway is in no test: always going up scores {mean:g} ± {error:g} there "
        "(standard error over 100 games, seeds 0 to 99; raw not kept).",
        *_diverged(frame),
    ]
    return "\n".join(lines)


def page(frame: pd.DataFrame) -> str:
    """The finished runs of the list as Markdown."""
    asked = [question(frame, *pair) for pair in QUESTIONS]
    parts = [
        "The arms' settings, the games and the power are from a [first list](settings/README.md).",
        f"## Arms\n\n{arms_table(frame)}",
        f"## Primary question\n\n{asked[0]}",
        "## Secondary questions",
        *asked[1:],
        *pools.unclear_commits(frame),
    ]
    if frame.arm.isin(LEARNING).any():
        told = minatar_instruments.section(frame[~frame.diverged], LEARNING, GAMES)
        parts.append(f"## What the discriminator tells apart\n\n{told}")
    return "\n\n".join(parts)


def curve(runs_episodes: Sequence[np.ndarray]) -> pd.DataFrame:
    """Mean return of episodes in bins of `BIN` steps, over runs.

    Args:
        runs_episodes: `[n, 2]` of each run, as `read` has them.

    Returns:
        `mean` and its standard error `sem`, NaN if only one run has episodes there, for the middle
        of each bin with episodes.
    """
    returns = {
        run: pd.Series(episodes[:, 1]).groupby((episodes[:, 0] - 1) // BIN).mean()
        for run, episodes in enumerate(runs_episodes)
    }
    found = pd.DataFrame(returns).agg(["mean", "sem"], axis=1)
    return found.set_index((found.index + 0.5) * BIN)


def draw(frame: pd.DataFrame) -> Figure:
    """Training curves: a panel for each game; for each arm the mean ± one standard error."""
    figure = Figure(figsize=(3.2 * len(ALL_GAMES), 3.6), layout="constrained")
    axes = figure.subplots(1, len(ALL_GAMES), squeeze=False)[0]
    handles = {}
    for panel, game in zip(axes, ALL_GAMES, strict=True):
        panel.set_title(game)
        panel.set_xlabel("agent steps")
        panel.xaxis.set_major_formatter(EngFormatter(sep=""))
        for arm, color in COLORS.items():
            own = frame[(frame.arm == arm) & (frame.game == game)]
            if not len(own):
                continue
            shown = curve([*own.episodes])
            low, high = shown["mean"] - shown["sem"], shown["mean"] + shown["sem"]
            (handles[arm],) = panel.plot(shown["mean"], color=color)
            panel.fill_between(shown.index, low, high, color=color, alpha=0.2, linewidth=0)
    axes[0].set_ylabel(f"training return, bins of {BIN:,} steps")
    labels = [_label(arm, frame.game[frame.arm == arm]) for arm in handles]
    figure.legend(handles.values(), labels, loc="outside lower center", ncols=4)
    return figure


def judge(results: pathlib.Path) -> str:
    """Draws the figure beside the results and returns the page."""
    frame = read(results)
    text = page(frame)
    with panels.drawing(), files.replacing(results / "curves.png") as partial:
        draw(frame).savefig(partial, format="png", dpi=150, metadata={"Software": None})
    return f"{text}\n\n![mean ± standard error over seeds](curves.png)"


def _label(arm: str, games: pd.Series) -> str:
    """The arm, with its number of seeds if that is the same in all its games `[n]`."""
    counts = {*games.value_counts()}
    return f"{arm} ({words.count('seed', counts.pop())})" if len(counts) == 1 else arm


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
