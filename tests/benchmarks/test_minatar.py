"""The list of small games: asked and refused as docs/preregistration.md says."""

import json
import re
import zlib

import numpy as np
import pandas as pd
import pytest

from benchmarks import minatar
from benchmarks.minatar import ALL_GAMES, ARMS, BASE, RCRL, STEPS, VALUES
from docs import figures
from rcrl_jax import reference
from rcrl_jax.config import fields
from rcrl_jax.config.presets import MINATAR_PRESETS
from rcrl_jax.envs.minatar import make_minatar
from rcrl_jax.programs.sweeps import spec as specs
from rcrl_jax.tables import statistics
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_refused
from tests.tables.synthetic import edit, write_lines, write_run


def finish(results, arm, game="Breakout", seed=0, value=1.0):
    """Writes a finished run whose value is `value`; returns its directory."""
    root = results / "question"
    preset = arm if arm in MINATAR_PRESETS else RCRL
    directory = write_run(
        root if arm == preset else root / arm, preset, game, seed, 7.0, steps=STEPS,
        episodes=minatar.EPISODES, backend="minatar",
        changes={
            name: tuple(x) if isinstance(x, list) else x for name, x in VALUES[arm].items()
        },
    )  # fmt: skip
    played = [(999, 50.0), (1000, 60.0), (1001, value - 1), (STEPS, value + 1)]
    unique = zlib.crc32(str(directory).encode())
    write_lines(
        directory / "metrics.jsonl",
        [{"agent_steps": step, "wall_s": unique, "episode_return": own} for step, own in played],
    )
    return directory


def frame_of(value):
    """The complete list as it is read; `value(arm, game, seed)` is that of a run."""
    rows = [
        {
            "arm": arm, "game": game, "seed": seed, "score": value(arm, game, seed), "last": 2.0,
            "diverged": False, "directory": f"{arm}/{game}/seed_{seed}", "commit": "0123456",
        }
        for arm, seeds in ARMS.items() for game in ALL_GAMES for seed in seeds
    ]  # fmt: skip
    return pd.DataFrame(rows)


def noise(seed=0):
    rng = np.random.default_rng(seed)
    return lambda *_: rng.normal()


def test_values_count_the_episodes_that_end_after_learn_start(tmp_path):
    finish(tmp_path, "equal_return", value=3.0)
    frame = minatar.read(tmp_path)
    assert frame[["arm", "game", "seed", "score", "last"]].to_numpy().tolist() == [
        ["equal_return", "Breakout", 0, 3.0, 7.0]
    ]
    assert frame.episodes[0].tolist() == [[999, 50], [1000, 60], [1001, 2], [30_000, 4]]


def change(section=None, name="manifest.json", **changes):
    return lambda directory: edit(directory / name, section, **changes)


def config(directory, **changes):
    path = directory / "manifest.json"
    described = json.loads(path.read_text())
    described["run"]["config"] |= changes
    path.write_text(json.dumps(described))


@pytest.mark.parametrize(
    "spoil, says",
    [
        (change("run", algorithm=None), "algorithm is None"),
        (change("run", algorithm=1), "algorithm is 1, but 2"),
        (change("protocol", noise="on"), "protocol.noise is on, but not stated"),
        (change("device", platform="gpu"), "device.platform is gpu, but cpu"),
        (lambda own: config(own, learning_rate=2e-4), "learning_rate is 0.0002, not that of"),
        (lambda own: config(own, batch_size=64), "batch_size is "),
        (lambda own: own.parents[2].rename(own.parents[3] / "mine"), "arm is 'mine', not that"),
        (lambda own: (own / "metrics.jsonl").write_text(""), "no episode ends after agent step"),
    ],
)
def test_foreign_and_differing_runs_are_refused(tmp_path, spoil, says):
    finish(tmp_path, "equal_return", "Breakout", 1)
    minatar.read(tmp_path)
    spoil(finish(tmp_path, "equal_return", "Seaquest", 2))
    with pytest.raises(ValueError, match=re.escape(says)):
        minatar.read(tmp_path)


@pytest.mark.parametrize(
    "run, says",
    [
        ({"seed": 60}, "seed is 60"),
        ({"game": "Asterix"}, "game is 'Asterix'"),
        ({"steps": 20_000}, "steps is 20000"),
        ({"episodes": 10}, "episodes is 10"),
    ],
)
def test_runs_that_are_not_on_the_list_are_refused(tmp_path, run, says):
    usual = {"preset": BASE, "game": "Breakout", "seed": 0, "steps": STEPS, "episodes": 20}
    write_run(tmp_path / "question", **usual | run, backend="minatar")
    with pytest.raises(ValueError, match=f"{says}, not that of the list"):
        minatar.read(tmp_path)


def test_a_run_that_diverged_twice_counts_as_uniform_play(tmp_path):
    directory = finish(tmp_path, "equal_return", "SpaceInvaders", 4)
    (directory / "scores.json").unlink()
    (directory / "diverged.json").write_text('{"attempts": 2}')
    frame = minatar.read(tmp_path)
    assert frame.diverged.all() and 3 < frame.score.item() < 5
    assert f"Diverged 2 times, counted as uniform play: {directory}." in minatar.arms_table(frame)


def test_no_question_is_asked_before_all_runs_of_its_arms(monkeypatch):
    asked = []
    monkeypatch.setattr(minatar, "RESAMPLES", 99)
    monkeypatch.setattr(
        statistics, "stratified_rank_test",
        lambda first, second, *_, **__: asked.append((len(first[0]), len(second[0])))
        or statistics.RankTest(np.float64(1.0), np.float64(0.5)),
    )  # fmt: skip
    monkeypatch.setattr(minatar.minatar_instruments, "section", lambda *_: "")
    frame = frame_of(noise())
    text = minatar.page(frame[frame.seed < 20])
    assert text.count("not yet asked") == 4 and not asked
    assert "`minatar_rcrl` against `minatar_erainbow_sa`: not yet asked, 160 of 480 runs" in text
    # Freeway is in no test, but its runs are on the list.
    lacks = (frame.arm == RCRL) & (frame.game == "Freeway") & (frame.seed == 59)
    text = minatar.page(frame[~lacks])
    assert text.count("not yet asked") == 2 and asked == [(30, 60), (30, 60)]
    assert "`equal_return` against `minatar_rcrl`: not yet asked, 359 of 360 runs" in text
    assert "p =" not in text.partition("## Secondary")[0]


@pytest.mark.parametrize(
    "lift, verdict",
    [
        (0.5, "supported: `minatar_rcrl` scores higher than `minatar_erainbow_sa`"),
        (-0.5, "contradicted: `minatar_rcrl` scores lower than `minatar_erainbow_sa`"),
        (0.0, "undecided: the test finds no difference between `minatar_rcrl` and"),
    ],
)
def test_a_planted_effect_is_found_and_none_is_undecided(monkeypatch, lift, verdict):
    monkeypatch.setattr(minatar, "PERMUTATIONS", 9_999)
    monkeypatch.setattr(minatar, "RESAMPLES", 999)
    draw = noise(1)
    frame = frame_of(lambda arm, *_: draw() + lift * (arm == RCRL))
    text = minatar.question(frame, RCRL, BASE)
    assert text.startswith(f"`minatar_rcrl` against `minatar_erainbow_sa`: {verdict}")
    # What Freeway has changes nothing.
    other = frame.assign(score=frame.score.where(frame.game != "Freeway", 99.0))
    assert minatar.question(other, RCRL, BASE) == text


def test_a_question_is_judged_as_registered():
    frame = frame_of(noise(2))
    arms = [
        [
            frame.score[(frame.arm == arm) & (frame.game == game)].to_numpy()
            for game in minatar.GAMES
        ]
        for arm in ("equal_return", RCRL)
    ]
    test = statistics.stratified_rank_test(*arms, np.random.default_rng(0), permutations=100_000)
    text = minatar.question(frame, "equal_return", RCRL)
    assert (
        f"(360 of 360 runs finished; stratified rank test, two-sided p = {test.p_value:.5f},"
        in text
    )
    rng = np.random.default_rng(0)
    drawn = [[x[rng.integers(len(x), size=(50_000, len(x)))] for x in arm] for arm in arms]
    for game, x, y, first, second in zip(minatar.GAMES, *arms, *drawn, strict=True):
        low, high = np.percentile(first.mean(axis=1) - second.mean(axis=1), (2.5, 97.5))
        assert f"| {game} | {x.mean() - y.mean():+.3f} | {low:+.3f} to {high:+.3f} |" in text


@pytest.mark.parametrize(
    "p, verdict", [(0.01, "contradicted"), (0.0101, "undecided")], ids=["level", "above"]
)
def test_questions_are_judged_at_one_percent(monkeypatch, p, verdict):
    outcome = statistics.RankTest(np.float64(-1.0), np.float64(p))
    monkeypatch.setattr(statistics, "stratified_rank_test", lambda *_, **__: outcome)
    monkeypatch.setattr(minatar, "RESAMPLES", 99)
    assert f": {verdict}: " in minatar.question(frame_of(noise()), RCRL, BASE)


def test_curves_are_means_of_runs_with_their_standard_error():
    runs = [
        np.array([[1.0, 2.0], [1000.0, 4.0], [2001.0, 7.0]]),
        np.array([[500.0, 5.0]]),
        np.empty((0, 2)),
    ]
    shown = minatar.curve(runs)
    assert shown.index.tolist() == [500.0, 2500.0]
    np.testing.assert_allclose(shown, [[4.0, 1.0], [7.0, np.nan]])
    assert minatar.curve(runs[2:]).empty


def test_the_figure_has_the_colours_of_the_results_and_counts_seeds():
    episodes = np.array([[1000.0, 2.0], [2000.0, 4.0]])
    frame = frame_of(noise())
    frame = frame[(frame.arm != RCRL) | (frame.game != "Seaquest") | (frame.seed > 0)]
    figure = minatar.draw(frame.assign(episodes=[episodes] * len(frame)))
    (legend,) = figure.legends
    drawn = {
        text.get_text(): line.get_color()
        for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)
    }
    assert drawn["minatar_rcrl"] == figures.INK["rcrl"]  # one seed is missing in one game
    assert drawn["minatar_erainbow_sa (60 seeds)"] == figures.INK["erainbow_sa"]
    assert "equal_return (30 seeds)" in drawn and len({*drawn.values()}) == len(ARMS)


def test_the_command_writes_a_page_and_a_figure_and_refuses_in_one_line(tmp_path):
    finish(tmp_path, RCRL, "Freeway", 59, 9.0)
    directory = finish(tmp_path, "equal_return", "Freeway", 29, 8.0)
    result = programs.call("benchmarks.minatar", f"--results={tmp_path}")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "README.md").read_text()
    assert result.stdout in page and "not yet asked, 1 of 480 runs finished." in page
    assert "| Freeway | (0) |  | 9.000 (1) | 7.00 | 8.000 (1) | 7.00 | (0) |  |" in page
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    edit(directory / "manifest.json", "run", steps=7)
    assert_refused(programs.call("benchmarks.minatar", f"--results={tmp_path}"))
    assert (tmp_path / "README.md").read_text() == page


def test_the_question_is_the_list_of_the_campaign():
    spec = specs.read_spec(ROOT / "campaigns" / "minatar.toml")
    assert (spec.steps, spec.eval_episodes) == (STEPS, minatar.EPISODES)
    assert spec.results.as_posix() == "results/minatar/question"
    assert sorted((unit.arm.name, unit.game, unit.seed) for unit in spec.units) == sorted(
        (arm, game, seed) for arm, seeds in ARMS.items() for game in ALL_GAMES for seed in seeds
    )
    for unit in spec.units:
        values = fields.values(spec.make_config(unit))
        for name, wanted in VALUES[unit.arm.name].items():
            assert values[name] == (tuple(wanted) if isinstance(wanted, list) else wanted)


def test_the_command_follows_the_preregistration():
    text = (ROOT / "docs" / "preregistration.md").read_text().partition("## Small games")[2]
    assert [*VALUES[BASE].values()][:4] == [5e-4, 5, "noise", 500]
    for words in (
        "| `rate_high_target_500` | 5e-4 | 5 | noise | 500 |",
        f"{STEPS:,} agent steps",
        f"{minatar.PERMUTATIONS:,} permutations",
        f"{minatar.RESAMPLES:,} resamples",
        f"default_rng({minatar.SEED})",
        "**One primary question: A against `minatar_erainbow_sa`.** Two-sided at 1 %",
    ):
        assert words in text


def returns_of(game, choose):
    """Returns of 100 first games, seeds 0 to 99, with the actions `choose(valid)` `[100]`."""
    games = make_minatar([game] * 100, range(100))
    games.reset()
    total, is_over = np.zeros(100), np.zeros(100, bool)
    while not is_over.all():
        games.send(choose(games.num_valid_actions[0]).astype(np.int32))
        step = games.recv()
        total += np.where(is_over, 0.0, step.reward)
        is_over |= step.terminated
        if step.terminated.any():
            games.reset(step.terminated)
    return total


def test_always_going_up_in_freeway_has_the_stated_mean():
    total = returns_of("Freeway", lambda _: np.ones(100))
    error = total.std(ddof=1) / 10
    assert (round(total.mean(), 1), round(error, 1)) == minatar.FREEWAY_UP


@pytest.mark.parametrize("game, preset", [(game, RCRL) for game in ALL_GAMES])
def test_uniform_play_has_the_stated_mean(game, preset):
    """Within three standard errors of two samples: the stated one is of another generator."""
    rng = np.random.default_rng(1)
    total = returns_of(game, lambda valid: rng.integers(0, valid, 100))
    error = max(total.std(ddof=1) / 10, 0.02)
    assert abs(total.mean() - reference.random_play(game, preset)) < 3 * np.sqrt(2) * error


def test_the_committed_page_is_that_of_the_committed_runs():
    results = ROOT / "results" / "minatar"
    if not results.exists():
        pytest.skip("no run is recorded yet")
    text = minatar.page(minatar.read(results))
    assert text in (results / "README.md").read_text()


def test_a_page_of_others_is_refused_before_anything_is_written(tmp_path):
    finish(tmp_path, RCRL, "Freeway", 59, 9.0)
    (tmp_path / "README.md").write_text("mine")
    refused = programs.call("benchmarks.minatar", f"--results={tmp_path}")
    assert_refused(refused)
    assert "was not written by this program" in refused.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"README.md", "question"}
