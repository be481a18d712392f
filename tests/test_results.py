"""Every number of docs/results.md is computed from `results/` or from published data."""

import functools
import json
import pathlib
import re

import numpy as np
import pandas as pd
import pytest

from benchmarks import base, minatar
from docs import figures
from docs.figures import GAMES, LABELS, THIRTEEN, hns, mean_hns, peers
from rcrl_jax import reference
from rcrl_jax.runs import records
from rcrl_jax.tables import published, registered, runs, scores
from rcrl_jax.training import nulls

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / "results"
PAGE = " ".join((ROOT / "docs" / "results.md").read_text().split())


def ours(arm: str, game: str) -> float:
    """Mean final score over the seeds of an arm; NaN where there is none."""
    frame = figures.atari()
    return frame.score[(frame.arm == arm) & (frame.game == game)].mean()


def atari_row(game: str) -> str:
    cells = [
        cell
        for arm in ("curl", "erainbow_sa", "rcrl")
        for cell in (ours(arm, game), reference.published(game, reference.PAPER_COLUMN[arm]))
    ]
    shown = ["–" if np.isnan(cell) else f"{cell:.1f}" for cell in cells]
    return f"| {game} | {' | '.join(shown)} |"


@functools.cache
def aggregates() -> dict[str, dict[str, float]]:
    """Aggregate -> column -> percent, as Table 1 computes them."""
    table = scores.table1(figures.atari())
    names = [column.name for column in table.columns]
    return {
        row.label: {
            name: 100 * cell.value
            for name, cell in zip(names, row.cells, strict=True)
            if cell.value is not None
        }
        for row in table.rows
        if row.label.endswith(" HNS")
    }


def columns_of_curl(column: str) -> list[float]:
    return [aggregates()[f"{name} HNS"][column] for name in ("median", "mean", "IQM")]


def best_notes(arm: str) -> tuple[float, float]:
    """Mean HNS [%] with the best evaluation of each run, and what its last agent has by luck."""
    (note,) = [note for note in scores.table1(figures.atari()).notes if "by chance" in note]
    found = re.search(rf"\b{arm} ([\d.]+) % \([^;]*; by chance ([\d.]+) %", note)
    return float(found[1]), float(found[2])


def against_row(name: str, number: str, key: str) -> str:
    cells = [figures.against()[key].get(column, np.nan) for column in figures.COLUMNS]
    shown = ["–" if np.isnan(cell) else f"{cell:.1f} %" for cell in cells]
    return f"| {name} | {number} | {' | '.join(shown)} |"


def draws_of_single_runs() -> tuple[float, ...]:
    """The middle 95 % of median and mean HNS [%] if one published run of CURL is drawn a game."""
    rng = np.random.default_rng(0)
    drawn = np.stack(
        [
            100 * reference.human_normalised(game, rng.choice(own, 50_000))
            for game, own in published.curl_runs().items()
        ]
    )
    return tuple(
        np.concatenate(
            [np.percentile(of(drawn, axis=0), (2.5, 97.5)) for of in (np.median, np.mean)]
        )
    )


def read_json(path: str) -> dict:
    return json.loads((RESULTS / path).read_text())


@functools.cache
def control() -> pd.DataFrame:
    """All runs on DMControl, unfinished ones too."""
    return runs.read(RESULTS / "dmc", unfinished=True).frame


def control_run(folder: str, seed: int = 0) -> pd.Series:
    is_it = control().directory.map(lambda path: path.is_relative_to(RESULTS / "dmc" / folder))
    (row,) = control()[is_it & (control().seed == seed)].itertuples()
    return row


def error(returns) -> float:
    """Standard error of the mean."""
    return np.std(returns, ddof=1) / np.sqrt(len(returns))


def null(path: str, *names: str) -> float:
    """The highest mean of play without learning, of the named kinds."""
    return max(read_json(path)["nulls"][name]["mean"] for name in names)


CARTPOLE = "dmc/nulls/cartpole_swingup.json"
WALKER = "dmc/nulls/walker_walk.json"
SLAC = "dmc/world_models/unfinished/slac/nulls.json"
WORLD = "world_models"
UNTRAINED = {
    preset: np.mean(read_json(f"dmc/{WORLD}/{folder}/untrained.json")["returns"])
    for preset, folder in (("dreamer", "dreamer_policy_rate"), ("planet", "planet"))
}


def printed(task: str, agent: str, steps: int) -> str:
    (row,) = [
        row
        for row in reference.dmc_scores()
        if (row.task, row.agent, row.env_steps) == (task, agent, steps)
    ]
    return f"{row.mean:.0f}" + (f" ± {row.std:.0f}" if row.std else "")


def control_rows() -> list[str]:
    swing, catch, walk = "cartpole_swingup", "ball_in_cup_catch", "walker_walk"
    pixels = f"{null(CARTPOLE, 'uniform', 'constant'):.1f}"

    def with_error(folder: str) -> str:
        returns = control_run(folder).returns
        return f"{np.mean(returns):.1f} ± {error(returns):.1f}"

    def score(folder: str, seed: int = 0) -> str:
        return f"{control_run(folder, seed).score:.1f}"

    two = {name: f"{score(f'100k/{name}_128')}, {score(f'100k/{name}_128', 1)}" for name in PAIR}
    slac = read_json(SLAC)
    slac_score = f"{slac['mean']:.1f} ± {error(slac['returns']):.1f}"
    dreamer = max(UNTRAINED["dreamer"], null(WALKER, "uniform", "constant"))
    planet = max(UNTRAINED["planet"], null(CARTPOLE, "uniform", "constant"))
    slac_null = null(SLAC, "uniform", "constant", "untrained")
    half, tenth = 500_000, 100_000
    return [
        *(
            f"| `state_sac` | {task} | 150,000 | {score(f'state_sac/{task}')} | State SAC at "
            f"500,000: {printed(task, 'State SAC', half)} | |"
            for task in (swing, catch)
        ),
        f"| `curl_sac` | {swing} | 100,000 | {score('100k/curl_sac_128')} | CURL: "
        f"{printed(swing, 'CURL', tenth)} | {pixels} |",
        f"| `rcrl_sac` | {swing} | 100,000 | {two['rcrl_sac']} | curves alone | {pixels} |",
        f"| `sac_aug` | {swing} | 100,000 | {two['sac_aug']} | RAD: "
        f"{printed(swing, 'RAD [rliable run data]', tenth)} | {pixels} |",
        f"| `pixel_sac` | {swing} | 100,000 | {score('100k/pixel_sac_128')} | pixel SAC: "
        f"{printed(swing, 'Pixel SAC', tenth)} | {pixels} |",
        f"| `dreamer` | {walk} | 100,000 | {with_error(f'{WORLD}/dreamer_policy_rate')} | curves, "
        f"below | {dreamer:.1f} |",
        f"| `planet` | {swing} | 100,000 | {with_error(f'{WORLD}/planet')} | PlaNet: "
        f"{printed(swing, 'PlaNet', tenth)} | {planet:.1f} |",
        f"| `slac` | {swing} | 55,000 | {slac_score} | curves, below | {slac_null:.1f} |",
    ]


PAIR = ("sac_aug", "rcrl_sac")


def differences_of_the_pair() -> tuple[float, float]:
    """How far apart the seeds of `sac_aug` are, and the means of the two presets."""
    (first, second), rcrl = (
        [control_run(f"100k/{name}_128", seed).score for seed in (0, 1)] for name in PAIR
    )
    return abs(first - second), abs(np.mean([first, second]) - np.mean(rcrl))


def curl_among_reruns() -> int:
    """The first logged step from which on `curl_sac` is in the range of published re-runs."""
    run = control_run("100k/curl_sac_128")
    ours = {line["env_steps"]: line["score"] for line in run.evaluations}
    curves = published.dmc_curves()
    own = curves[
        (curves.agent == "CURL [DreamerV3-repo baseline curves]")
        & (curves.task == "cartpole_swingup")
    ]
    inside = {
        step: at.min() <= ours[step] <= at.max()
        for step, at in own.groupby("env_steps").score
        if step in ours
    }
    outside = [step for step, is_inside in inside.items() if not is_inside]
    return min(step for step in inside if step > max(outside, default=0))


def errors_above_play_without_learning() -> float:
    """Of the world models' final scores, the least of their distances in standard errors."""
    found = []
    for folder, path in (("dreamer_policy_rate", WALKER), ("planet", CARTPOLE)):
        returns = control_run(f"{WORLD}/{folder}").returns
        untrained = read_json(f"dmc/{WORLD}/{folder}/untrained.json")["returns"]
        plays = [(np.mean(untrained), error(untrained))] + [
            (one["mean"], one["standard_error"])
            for one in (read_json(path)["nulls"][name] for name in ("uniform", "constant"))
        ]
        found += [
            (np.mean(returns) - mean) / np.hypot(error(returns), deviation)
            for mean, deviation in plays
        ]
    difference = read_json(SLAC)["nulls"]["difference"]  # in the same games as the best of them
    return min(*found, difference["mean"] / difference["standard_error"])


def simple(kind: str, seed: int) -> dict:
    return read_json(f"simple/{kind}_seed_{seed}.json")["play"]


def pairs_where_rcrl_is_higher() -> tuple[int, int]:
    frame = figures.atari().set_index(["arm", "game", "seed"]).score
    own, other = frame["rcrl"], frame["erainbow_sa"]
    both = own.index.intersection(other.index)
    return len(both), int((own[both] > other[both]).sum())


@functools.cache
def base_statistics() -> tuple[base.Statistics, base.Statistics]:
    frame = figures.atari()
    places = np.array([*base.our_places(frame[frame.arm == "curl"], 0).values()])
    return base.statistics_of(base.rank(places, 100)), base.p_values(places, 100)


@functools.cache
def small_games(folder: str, after: int) -> pd.DataFrame:
    """Mean return of each run's training episodes that end after a step."""
    root, rows = RESULTS / "minatar" / folder, []
    for run in root.glob("**/seed_*"):
        returns = [
            line["episode_return"]
            for line in records.read_metrics(run / "metrics.jsonl")
            if "episode_return" in line and line["agent_steps"] > after
        ]
        rows.append((run.relative_to(root).parts[0], run.parent.name, run.name, np.mean(returns)))
    return pd.DataFrame(rows, columns=["setting", "game", "seed", "value"])


def ranks_of_small_games() -> tuple[int, float, int]:
    found = small_games("settings", 1_000)
    ranks = found.pivot_table("value", "setting", "game").rank(ascending=False).mean(axis=1)
    assert ranks.idxmin() == "rate_high_target_500"
    return len(ranks), ranks.min(), len(found)


def errors_of_small_games(*games: str) -> list[float]:
    """Standard errors by which the base exceeds the best play without learning."""
    late = small_games("winner", 24_000).pivot(index="seed", columns="game", values="value")
    found = []
    for game in games:
        gained = read_json(f"minatar/winner/minatar_erainbow_sa/{game}/gain.json")["runs"]
        plays = [[gained[seed][kind]["mean"] for seed in late.index] for kind in nulls.PLAYS]
        difference = late[game] - max(plays, key=np.mean)
        found.append(difference.mean() / error(difference))
    return found


@functools.cache
def primary_question() -> tuple[str, str, dict[str, str]]:
    """The verdict on small games, its p value, and the row of each game."""
    frame = minatar.read(RESULTS / "minatar")
    text = minatar.question(frame, minatar.RCRL, minatar.BASE)
    means = frame.groupby(["arm", "game"]).score.mean()
    shown = ("minatar_erainbow", minatar.BASE, minatar.RCRL)
    rows = {
        game: f"| {game} | "
        + "".join(f"{means[arm, game]:.3f} | " for arm in shown)
        + re.search(rf"\| {game} \| (.*)", text)[1]
        for game in minatar.GAMES
    }
    verdict, p_value = re.search(r": (\w+: .*?) \(480.* p = ([\d.]+)", text).groups()
    return verdict, p_value, rows


def equal_return() -> list[str]:
    """P values of the two questions on equal returns, if both are undecided."""
    frame = minatar.read(RESULTS / "minatar")
    texts = [minatar.question(frame, "equal_return", arm) for arm in (minatar.BASE, minatar.RCRL)]
    return [re.search(r": undecided: .* p = ([\d.]+)", text)[1] for text in texts]


@functools.cache
def without_embedding() -> tuple[str, str]:
    """The verdict on the embedding, and its p value."""
    text = minatar.question(minatar.read(RESULTS / "minatar"), "minatar_erainbow", minatar.BASE)
    return re.search(r": (\w+: .*?) \(360.* p = ([\d.]+)", text).groups()


READINGS = (
    ("today's `rcrl`: same segment", "segment"),
    ("equal return", "equal_return"),
    ("a segment of another episode", "another_episode"),
    ("concatenated pair", "concatenation"),
    ("control: permuted labels", "permuted"),
    ("a clock", None),
)
"""Readings of the paper, and their arms in `results/returns`."""


def reading_row(label: str, arm: str | None) -> str:
    found = [
        read_json("returns/measure.json")["means"][arm][game] if arm else 0.5
        for game in ("Alien", "Qbert", "RoadRunner", "Seaquest")
    ]
    return f"| {label} | {' | '.join(f'{value:.3f}' for value in found)} |"


def most_that_a_reading_exceeds() -> int:
    """The most games in which one reading exceeds all three of its margins."""
    return max(map(len, read_json("returns/measure.json")["exceeds_all_in"].values()))


TIMED = ("erainbow", "curl", "rcrl", "rcrl_curl", "curl_sac")


@functools.cache
def throughput(folder: str) -> dict[tuple[str, int], dict[str, float]]:
    """(Preset, runs of the fleet) -> what `benchmarks.throughput` measured."""
    found = read_json(f"throughput/{folder}/x86_64-cpu.json")
    return {
        (preset, fleet["runs"]): fleet for preset, own in found.items() for fleet in own["fleets"]
    }


def per_flop(*pairs: str) -> list[float]:
    """How many times as fast ours are as code in JAX, per FLOP."""
    found = read_json("peers/jax/x86_64-cpu.json")["ratios_per_flop"]
    return [np.median(found[pair]) for pair in pairs]


def steps_per_s(preset: str) -> float:
    """With AVX-512; in turns with the code beside it, if there is one."""
    return (peers(preset) or [throughput("avx512")[preset, 1]["agent_steps_per_s"]])[0]


def fast_row(preset: str) -> str:
    narrow = throughput("avx2").get((preset, 1))
    _, theirs, ratios = peers(preset) or (None, None, ())
    cells = [
        f"{steps_per_s(preset):.1f}",
        f"{narrow['agent_steps_per_s']:.1f}" if narrow else "–",
        f"{LABELS[preset]}: {theirs:.1f}" if ratios else "–",
        f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})" if ratios else "–",
    ]
    return f"| `{preset}` | {' | '.join(cells)} |"


@functools.cache
def hours_of_runs() -> list[float]:
    """Of each run of `rcrl`, until its last training step."""
    files = sorted((RESULTS / "claim" / "rcrl").glob("*/seed_*/metrics.jsonl"))
    return [json.loads(path.read_text().splitlines()[-1])["wall_s"] / 3600 for path in files]


def seconds(preset: str) -> float:
    return throughput("avx512")[preset, 1]["update_ms"] / 1000


TABLE = [
    # What the page says, and how its numbers are computed; without any where the text is whole.
    *((atari_row(game),) for game in GAMES),
    ("median HNS of **{:.1f} %**, a mean of **{:.1f} %** and an interquartile mean of {:.1f} %",
     lambda: columns_of_curl("curl")),
    ("(published: {:.1f}, {:.1f} and {:.1f} %)", lambda: columns_of_curl("CURL")),
    *((row,) for row in control_rows()),
    ("of CURL from {:,} steps on", curl_among_reruns),
    ("`sac_aug` differ by {:.0f}, the means of the two presets by {:.0f}", differences_of_the_pair),
    ("above play without learning by at least {:.0f} standard errors",
     lambda: np.floor(errors_above_play_without_learning())),
    ("the policy is {:.1f}, {:.1f}, {:.1f} and {:.1f} above play without learning",
     lambda: [simple("catch", seed)["difference"]["mean"] for seed in range(4)]),
    ("three policies score {:.1f}, {:.1f} and {:.1f}",
     lambda: [simple("pong", seed)["policy"]["mean"] for seed in range(3)]),
    ("**{}** (p = {}, judged at 1 %)", lambda: primary_question()[:2]),
    ("undecided against the baseline (p = {}) and `minatar_rcrl` (p = {})", equal_return),
    ("**{}** (p = {})", without_embedding),
    ("of {}, `rate_high_target_500` has the best mean rank, {}, over {} runs",
     ranks_of_small_games),
    ("by {:.1f} standard errors in Breakout, {:.1f} in SpaceInvaders and {:.1f} in Seaquest",
     lambda: errors_of_small_games("Breakout", "SpaceInvaders", "Seaquest")),
    ("In Asterix it does so by {:.1f}", lambda: errors_of_small_games("Asterix")),
    *((against_row(*row),) for row in figures.AGAINST),
    ("best evaluation would have {:.1f} % instead of {:.1f} (`erainbow_sa`), {:.1f} instead of "
     "{:.1f} (`rcrl`) and {:.1f} instead of {:.1f} (`curl`)",
     lambda: [
         value
         for arm, games in (("erainbow_sa", THIRTEEN), ("rcrl", THIRTEEN), ("curl", GAMES))
         for value in (best_notes(arm)[1], mean_hns(lambda game, arm=arm: ours(arm, game), games))
     ]),
    ("**undecided, {} of 36 pairs finished**",
     lambda: registered.CLAIM.finished_pairs(runs.read(RESULTS / "claim").frame)),
    ("In the {} pairs of runs that exist, on 13 games, `rcrl` is higher in {}.",
     pairs_where_rcrl_is_higher),
    ("median HNS of {:.1f} to {:.1f} % and a mean of {:.1f} to {:.1f} %", draws_of_single_runs),
    ("| mean rank | {:.3f} | 0.5 | {:.3f}, two-sided |",
     lambda: [one.mean for one in base_statistics()]),
    ("| mean squared distance of the ranks from 1/2 | {:.3f} | 0.083 | {:.3f} |",
     lambda: [one.squared for one in base_statistics()]),
    *((reading_row(*row),) for row in READINGS),
    ("exceeds all three in {} of the four games", most_that_a_reading_exceeds),
    *((fast_row(preset),) for preset in TIMED),
    ("ours is {:.2f} times as fast as Dopamine's DER, {:.2f} times as its DrQ(ε), {:.2f} times as "
     "CleanRL's update; SAC is {:.1f} times as fast as jaxrl from pixels, {:.2f} times from states",
     lambda: per_flop("rainbow_der / dopamine_der", "rainbow_der / dopamine_drq",
                      "rainbow_der_update / cleanrl", "sac_aug / jaxrl_drq",
                      "state_sac / jaxrl_sac")),
    ("took {:.1f} to {:.1f} hours, median {:.1f}: {} runs",
     lambda: (min(hours_of_runs()), max(hours_of_runs()), np.median(hours_of_runs()),
              len(hours_of_runs()))),
    ("takes {:.1f} s (`slac`), {:.1f} s (`planet`) and {:.1f} s (`dreamer`)",
     lambda: [seconds(preset) for preset in ("slac", "planet", "dreamer")]),
]  # fmt: skip

SETTINGS = (
    "100,000 steps", "1.5 million steps", "500,000 steps", "10,000 steps",
    "26 games", "all 26", "13 games", "100 episodes", "100 published runs", "from 1/2", "128",
    "ε was 1e-7", "now, 1e-4", "batch 10 instead of 50", "seed 0", "seed 1", "above 0.005",
    "by 0.1 each", "60 seeds", "0.41 standard", "a probability of 0.9",
    "30,000 steps", "is 0 % for random play and 100 % for a human",
    "1 % of the model's updates", "90 % of the runs", "95 % of draws", "0.5 is chance", "AVX-512",
    "AVX2", "Table 1", "Table 2", "2 to 4 times",
    "13 games, last", "13 games, best", "26 games, last", "26 games, best",
)  # fmt: skip
"""What runs were told, and what was registered; the last is rounded from the table of speed."""


def said(row: tuple) -> str:
    template, *compute = row
    if not compute:
        return template
    values = compute[0]()
    return template.format(*(values if isinstance(values, list | tuple) else (values,)))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0][:60])
def test_the_page_says_what_is_computed(row):
    assert said(row) in PAGE


README_TABLE = [
    *(("{}", lambda game=game: primary_question()[2][game]) for game in minatar.GAMES),
    ("**{}** (p = {}, judged at 1 %)", lambda: primary_question()[:2]),
    ("**{}** (30 seeds, p = {})", without_embedding),
    ("{:.1f} % baseline (`erainbow_sa`), {:.1f} % `rcrl` | {:.1f} % | {:.1f} % baseline, {:.1f} % "
     "RCRL",
     lambda: [figures.against()[one]["13 last"]
              for one in ("erainbow_sa", "rcrl", "reruns", "ERainbow-sa", "RCRL")]),
    ("**undecided**: {} of 36 [pre-registered]",
     lambda: registered.CLAIM.finished_pairs(runs.read(RESULTS / "claim").frame)),
    ("CURL train {:.0f} times as fast as their PyTorch code, CURL's SAC {:.1f} times",
     lambda: [np.median(peers(one)[2]) for one in ("erainbow", "curl_sac")]),
    ("Per FLOP Rainbow is {:.2f} times as fast as Dopamine's DER in JAX; SAC is {:.1f} times as "
     "fast as jaxrl's DrQ from pixels, {:.2f} times from states",
     lambda: per_flop("rainbow_der / dopamine_der", "sac_aug / jaxrl_drq",
                      "state_sac / jaxrl_sac")),
    ("took {:.1f} to {:.1f} hours, median {:.1f},",
     lambda: (min(hours_of_runs()), max(hours_of_runs()), np.median(hours_of_runs()))),
]  # fmt: skip


@pytest.mark.parametrize("row", README_TABLE, ids=lambda row: row[0][:60])
def test_the_newcomer_s_page_says_what_is_computed(row):
    assert said(row) in " ".join((ROOT / "README.md").read_text().split())


def test_no_other_number_stands_on_the_page():
    text = re.sub(r"\]\([^)]*\)|`[^`]*`", "", PAGE)
    for row in sorted((re.sub(r"`[^`]*`", "", said(row)) for row in TABLE), key=len, reverse=True):
        text = text.replace(row, "")
    for words in SETTINGS:
        text = re.sub(rf"(?<![\d.,-]){re.escape(words)}(?!\d|[.,]\d)", "", text)
    assert not re.findall(r"\S*\d\S*", text)


def test_the_sentence_in_short_is_that_of_the_table_of_speed():
    ratios = [np.median(peers(one)[2]) for one in ("erainbow", "curl", "rcrl", "curl_sac")]
    assert round(min(ratios)) == 2 and round(max(ratios)) == 4
    reruns = figures.against()["reruns"]
    own = figures.against()["curl"]
    assert own["26 last"] == pytest.approx(reruns["26 last"], rel=0.2)
    for arm in ("erainbow_sa", "rcrl"):
        assert own_share(arm) == pytest.approx(0.5, abs=0.1)
        assert figures.against()[arm]["13 last"] == pytest.approx(reruns["13 last"], rel=0.1)


def test_the_guide_to_sweeps_says_how_long_table_1_takes():
    hours = [130 * 100_000 / steps_per_s(one) / 3600 for one in ("erainbow", "curl", "rcrl")]
    said = "take {:.0f} hours with `erainbow`, {:.0f} with `curl` and {:.0f} with `rcrl`"
    assert said.format(*hours) in " ".join((ROOT / "docs" / "sweeps.md").read_text().split())


def own_share(arm: str) -> float:
    """What part of the paper's mean ours have, on the games that both have."""
    column = figures.against()[reference.PAPER_COLUMN[arm]]["13 last"]
    return figures.against()[arm]["13 last"] / column


def test_both_presets_have_the_same_thirteen_games():
    frame = figures.atari()
    for arm in ("erainbow_sa", "rcrl"):
        assert {*frame.game[frame.arm == arm]} == {*THIRTEEN}
        assert hns("Pong", reference.published("Pong", "Human")) == 1


def test_the_figures_are_drawn(tmp_path):
    figures.draw(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in (ROOT / "docs" / "figures").iterdir()}
    assert all(f"figures/{name}" in PAGE for name in names)


def test_the_page_is_short():
    text = (ROOT / "docs" / "results.md").read_text()
    assert len(text.split()) <= 2500 and len(text.splitlines()) <= 250
