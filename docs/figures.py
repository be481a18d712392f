r"""Draws the figures of results.md from `results/`.

    python -m docs.figures

writes `docs/figures/*.png`. `tests/test_results.py` compares the page with the numbers drawn.
"""

import functools
import json
import pathlib
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from benchmarks import base
from rcrl_jax import reference
from rcrl_jax.tables import published, runs

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "results"
GAMES = reference.games()
THIRTEEN = (
    "Alien", "Amidar", "Assault", "Asterix", "BankHeist", "BattleZone", "Boxing", "Breakout",
    "ChopperCommand", "CrazyClimber", "Hero", "MsPacman", "UpNDown",
)  # fmt: skip
"""The games that `erainbow_sa` and `rcrl` have."""
COLUMNS = ("13 last", "13 best", "26 last", "26 best")
AGAINST = (
    ("`curl`, ours", "1", "curl"),
    ("`erainbow_sa`, ours", "1 (Hero 2)", "erainbow_sa"),
    ("`rcrl`, ours", "1 (Hero 2)", "rcrl"),
    ("CURL, run again by rliable's authors", "100", "reruns"),
    ("CURL, its paper", "20", "CURL"),
    ("ERainbow-sa, RCRL's paper", "5", "ERainbow-sa"),
    ("RCRL, RCRL's paper", "5", "RCRL"),
)
"""Systems of the second question: name, runs of a game, key of `against`."""
LABELS = {"erainbow": "Kaixhin's", "curl": "CURL's", "rcrl": "CURL's", "curl_sac": "CURL's"}
"""Whose PyTorch code stands beside a preset."""
INK = {"curl": "tab:blue", "erainbow_sa": "tab:gray", "rcrl": "tab:red"}
"""Arm -> its colour."""


def hns(game: str, score: float) -> float:
    """Human-normalised score: 0 is random play, 1 a human."""
    return reference.human_normalised(game, score)


def mean_hns(score: Callable[[str], float], games: Sequence[str] = GAMES) -> float:
    """Mean over games [%]; NaN where a game has no score."""
    return 100 * np.mean([hns(game, score(game)) for game in games])


@functools.cache
def atari() -> pd.DataFrame:
    """Our runs of 100,000 steps: `curl`, `erainbow_sa`, `rcrl`."""
    return runs.read(RESULTS / "base", RESULTS / "claim").frame


@functools.cache
def against() -> dict[str, dict[str, float]]:
    """System -> column of `COLUMNS` -> mean HNS [%]; columns that a system lacks are missing."""
    frame, seeds = atari(), published.atari_runs()
    best = frame.assign(
        score=frame.evaluations.map(lambda lines: max(line["score"] for line in lines))
    )
    sources = {
        (arm, rule): own[own.arm == arm].groupby("game").score.mean()
        for arm in ("curl", "erainbow_sa", "rcrl")
        for rule, own in (("last", frame), ("best", best))
    }
    for rule, agent in (
        ("last", "CURL [rliable, final]"),
        ("best", "CURL [rliable, max of 10 evals]"),
    ):
        sources["reruns", rule] = seeds[seeds.agent == agent].groupby("game").score.mean()
    for agent, rule in (("CURL", "best"), ("ERainbow-sa", "last"), ("RCRL", "last")):
        scores = {game: reference.published(game, agent) for game in GAMES}
        sources[agent, rule] = pd.Series(scores)
    found: dict[str, dict[str, float]] = {}
    for (system, rule), scores in sources.items():
        for number, games in ((13, THIRTEEN), (26, GAMES)):
            if {*games} <= {*scores.index}:
                column = found.setdefault(system, {})
                column[f"{number} {rule}"] = mean_hns(scores.__getitem__, games)
    return found


@functools.cache
def peers(preset: str) -> tuple[float, float, tuple[float, ...]] | None:
    """Steps a second of ours and of the PyTorch code, medians, and the ratio in each round."""
    for path in ("avx512/x86_64-cpu.json", "x86_64-cpu-control.json"):
        found = json.loads((RESULTS / "peers" / path).read_text())
        for pair, ratios in found["ratios"].items():
            own, other = pair.split(" / ")
            if own == preset:
                speeds = found["steps_per_s"]
                return np.median(speeds[own]), np.median(speeds[other]), tuple(ratios)
    return None


def draw(folder: pathlib.Path) -> None:
    """Writes the figure of each question."""
    folder.mkdir(exist_ok=True)
    for question in (_high, _against, _sure, _fast):
        figure = question()
        figure.savefig(
            folder / f"{question.__name__[1:]}.png", dpi=110, metadata={"Software": None}
        )
        plt.close(figure)


def _high():
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    for row, game in enumerate(GAMES):
        spread = [100 * hns(game, score) for score in published.curl_runs()[game]]
        low, high = np.percentile(spread, (5, 95))
        axes.plot(
            [low, high], [row, row], color="0.8", linewidth=6, solid_capstyle="butt",
            label=None if row else "CURL, 90 % of 100 published runs",
        )  # fmt: skip
    for shift, (arm, color) in zip((-0.2, 0, 0.2), INK.items(), strict=True):
        own = atari()[atari().arm == arm].groupby("game").score.mean()
        axes.plot(
            [100 * hns(game, own[game]) for game in GAMES if game in own],
            [row + shift for row, game in enumerate(GAMES) if game in own],
            "o", markersize=5, color=color, label=f"{arm}, ours",
        )  # fmt: skip
    axes.set(xlabel="human-normalised score [%]; beyond ±10 logarithmic", yticks=range(len(GAMES)))
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xticks([-10, 0, 10, 100], ["-10", "0", "10", "100"])
    axes.set_yticklabels(GAMES, fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _against():
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained", sharey=True)
    for panel, number in zip(panels, (13, 26), strict=True):
        for row, (_, _, key) in enumerate(AGAINST):
            for rule, height, shade, place, ink in (
                ("best", 0.7, 0.35, {"padding": 3}, "black"),
                ("last", 0.4, 1.0, {"label_type": "center"}, "white"),
            ):
                value = against()[key].get(f"{number} {rule}")
                if value is not None:
                    color = "tab:red" if row < 3 else "tab:gray"
                    bar = panel.barh(row, value, height, color=color, alpha=shade)
                    panel.bar_label(bar, fmt="%.1f", fontsize=8, color=ink, **place)
        panel.set(title=f"{number} games", xlabel="mean human-normalised score [%]", xlim=(0, 45))
    panels[0].set_yticks(range(len(AGAINST)), [name.replace("`", "") for name, _, _ in AGAINST])
    panels[0].invert_yaxis()
    rules = "dark: last agent, or the rule is not known; pale: best of ten evaluations"
    figure.supxlabel(rules, fontsize=8)
    return figure


def _sure():
    figure, axes = plt.subplots(figsize=(5, 4), layout="constrained")
    frame = atari()
    places = base.our_places(frame[frame.arm == "curl"], 0)
    ranks = np.sort(base.rank(np.array([*places.values()]), 100))
    expected = (np.arange(len(ranks)) + 0.5) / len(ranks)
    axes.plot([0, 1], [0, 1], color="0.6", label="expected of the same agent")
    axes.plot(expected, ranks, "o", color="tab:blue", label="curl, 26 games")
    axes.set(xlabel="expected rank", ylabel="rank among 100 published runs")
    axes.legend()
    return figure


def _fast():
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    for row, preset in enumerate(LABELS):
        own, theirs, _ = peers(preset)
        axes.barh(row - 0.2, own, 0.38, color="tab:red", label=None if row else "ours")
        axes.barh(row + 0.2, theirs, 0.38, color="tab:gray", label=None if row else "PyTorch code")
        axes.text(own, row - 0.2, f" {own:.1f}", va="center", fontsize=8)
        axes.text(theirs, row + 0.2, f" {LABELS[preset]} {theirs:.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(LABELS)), LABELS)
    axes.set_xlabel("agent steps per second, one update per step (two cores, AVX-512)")
    axes.set_xscale("log")
    axes.set_xlim(0.5, 900)
    axes.invert_yaxis()
    axes.legend(loc="lower right", fontsize=8)
    return figure


if __name__ == "__main__":
    plt.switch_backend("Agg")
    draw(ROOT / "docs" / "figures")
