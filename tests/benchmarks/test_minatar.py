"""The lists of small games: ranked, asked and refused as docs/preregistration.md says."""

import json
import re
import zlib

import numpy as np
import pandas as pd
import pytest

from benchmarks import minatar
from benchmarks.minatar import BASE, QUESTION, RCRL, SETTINGS
from rcrl_jax import files, reference
from rcrl_jax.config import fields
from rcrl_jax.config.presets import MINATAR_PRESETS
from rcrl_jax.envs.minatar import make_minatar
from rcrl_jax.programs.sweeps import spec as specs
from rcrl_jax.tables import statistics
from rcrl_jax.training import nulls
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_refused
from tests.tables.synthetic import edit, write_lines, write_run


def finish(results, arm, game="Breakout", seed=100, value=1.0, listed=SETTINGS):
    """Writes a finished run of a list whose value is `value`; returns its directory."""
    root = results / listed.directory
    preset = arm if arm in MINATAR_PRESETS else RCRL if listed is QUESTION else BASE
    values = listed.values[arm].items()
    directory = write_run(
        root if arm == preset else root / arm, preset, game, seed, 7.0, steps=listed.steps,
        episodes=20, backend="minatar",
        changes={name: tuple(x) if isinstance(x, list) else x for name, x in values},
    )  # fmt: skip
    played = [(999, 50.0), (1000, 60.0), (1001, value - 1), (listed.steps, value + 1)]
    write_episodes(directory, played)
    return directory


def write_episodes(directory, played):
    """Writes the metrics of a run: `(agent step, return)` of each training episode."""
    unique = zlib.crc32(str(directory).encode())
    write_lines(
        directory / "metrics.jsonl",
        [{"agent_steps": step, "wall_s": unique, "episode_return": own} for step, own in played],
    )


def frame_of(listed, value):
    """A complete list as it is read; `value(arm, game, seed)` is that of a run."""
    rows = [
        {
            "arm": arm, "game": game, "seed": seed, "score": value(arm, game, seed), "last": 2.0,
            "diverged": False, "directory": f"{arm}/{game}/seed_{seed}", "commit": "0123456",
            "episodes": np.array([[500.0, 1.0]]),
            "manifest": {"run": {"config": dict(SETTINGS.values[BASE])}},
        }
        for arm in listed.values for game in listed.games for seed in listed.seeds[arm]
    ]  # fmt: skip
    return pd.DataFrame(rows)


def noise(seed=0):
    rng = np.random.default_rng(seed)
    return lambda *_: rng.normal()


def by_mean_rank(order):
    """Values by which the settings have the ranks of `order` in every game."""
    return lambda arm, _, seed: -order.index(arm) + 0.01 * seed


def test_values_count_the_episodes_that_end_after_learn_start(tmp_path):
    finish(tmp_path, "rate_low", value=3.0)
    frame = minatar.read(tmp_path, SETTINGS)
    assert frame[["arm", "game", "seed", "score", "last"]].to_numpy().tolist() == [
        ["rate_low", "Breakout", 100, 3.0, 7.0]
    ]
    assert frame.episodes[0].tolist() == [[999, 50], [1000, 60], [1001, 2], [20_000, 4]]


def test_ranks_within_games_with_mean_ranks_of_ties():
    means = np.array([[3.0, 1.0], [2.0, 1.0], [1.0, 5.0]])
    assert minatar.rank(means).tolist() == [[1.0, 2.5], [2.0, 2.5], [3.0, 1.0]]


def test_the_setting_with_the_best_mean_rank_wins():
    order = ["n_3", "epsilon", BASE, "rate_low", "rate_high", "n_10", "target_500",
             "rate_high_target_500"]  # fmt: skip
    frame = frame_of(SETTINGS, by_mean_rank(order))
    text = minatar.settings(frame)
    assert text.startswith("The winner is `n_3` (160 of 160 runs finished).")
    row = f"| `{BASE}` |{' -0.980 (5) |' * 4} 3, 3, 3, 3 | 3 |"
    assert row in text
    # A setting with a run that has diverged twice cannot win.
    frame.loc[frame.arm == "n_3", "diverged"] = True
    assert minatar.winner(frame) == "epsilon"
    assert minatar.winner(frame.assign(diverged=True)) is None


def test_of_equal_mean_ranks_the_first_in_the_table_wins():
    # Each is first in two games and second in two; "epsilon" stands after "rate_high".
    def value(arm, game, _):
        is_early = game in ("Breakout", "Asterix")
        return {"rate_high": 1 + is_early, "epsilon": 2 - is_early}.get(arm, 0)

    assert minatar.winner(frame_of(SETTINGS, value)) == "rate_high"


def test_an_incomplete_list_has_counts_and_means_but_no_winner():
    text = minatar.settings(frame_of(SETTINGS, lambda *_: 2.0)[:-1])
    assert text.startswith("not finished: 159 of 160 runs.")
    assert "| `rate_low` | 2.000 (5) | 2.000 (5) | 2.000 (5) | 2.000 (5) |" in text
    assert text.endswith("2.000 (4) |") and "winner" not in text and "rank" not in text


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
    finish(tmp_path, "rate_low", "Asterix", 102)
    minatar.read(tmp_path, SETTINGS)
    spoil(finish(tmp_path, "rate_low", "Breakout", 101))
    with pytest.raises(ValueError, match=re.escape(says)):
        minatar.read(tmp_path, SETTINGS)


@pytest.mark.parametrize(
    "run, says",
    [
        ({"seed": 105}, "seed is 105"),
        ({"game": "Freeway"}, "game is 'Freeway'"),
        ({"steps": 30_000}, "steps is 30000"),
        ({"episodes": 10}, "episodes is 10"),
        ({"preset": RCRL}, "arm is 'minatar_rcrl'"),
    ],
)
def test_runs_that_are_not_on_the_list_are_refused(tmp_path, run, says):
    usual = {"preset": BASE, "game": "Breakout", "seed": 100, "steps": 20_000, "episodes": 20}
    write_run(tmp_path / "settings", **usual | run, backend="minatar")
    with pytest.raises(ValueError, match=f"{says}, not that of the list"):
        minatar.read(tmp_path, SETTINGS)


def test_a_run_that_diverged_twice_counts_as_uniform_play(tmp_path):
    directory = finish(tmp_path, "n_10", "SpaceInvaders", 104)
    (directory / "scores.json").unlink()
    (directory / "diverged.json").write_text('{"attempts": 2}')
    frame = minatar.read(tmp_path, SETTINGS)
    assert frame.diverged.all() and 3 < frame.score.item() < 5
    assert f"Diverged 2 times, counted as uniform play: {directory}." in minatar.settings(frame)


def test_arms_of_the_question_have_the_values_of_the_winner():
    first, second = (
        frame_of(SETTINGS, by_mean_rank([*SETTINGS.values])),
        frame_of(QUESTION, noise()),
    )
    minatar.check_values(first, second)
    other = frame_of(SETTINGS, by_mean_rank([*SETTINGS.values][::-1]))
    with pytest.raises(ValueError, match=r"learning_rate is 0.00025, not the winner's"):
        minatar.check_values(other, second)


def test_a_game_stays_three_standard_errors_above_its_best_null():
    nulls = {"uniform": np.array([0.4, 0.4]), "constant": np.array([0.5, 0.7])}
    # Differences 2.5 and 3.3 to the constant action: 2.9 with a standard error of 0.4.
    found = minatar.stays(np.array([3.0, 4.0]), nulls)
    assert found["best_null"] == "constant" and found["stays"] and found["last"]["mean"] == 3.5
    assert found["errors"] == pytest.approx(2.9 / 0.4)
    # 0.5 and 1.1: 0.8 with a standard error of 0.3.
    assert not minatar.stays(np.array([1.0, 1.8]), nulls)["stays"]
    assert not minatar.stays(np.array([0.4, 0.6]), nulls)["stays"]


def finish_winner(results, game, gain):
    """Writes the five finished runs of the winner on a game, whose last fifth has 2, 3, ..., 6."""
    for seed in range(100, 105):
        directory = write_run(
            results / "winner", BASE, game, seed, 7.0, steps=30_000, episodes=100,
            changes=SETTINGS.values[BASE], backend="minatar",
        )  # fmt: skip
        played = [(24_000, 90.0), (24_001, seed - 98.0), (30_000, seed - 98.0)]
        write_episodes(directory, played)
    runs = {
        f"seed_{seed}": {"episodes": 100} | {kind: {"mean": gain} for kind in nulls.PLAYS}
        for seed in range(100, 105)
    }
    (results / "winner" / BASE / game / "gain.json").write_text(json.dumps({"runs": runs}))


def test_the_last_fifth_of_the_winner_is_compared_with_its_nulls(tmp_path):
    first = frame_of(SETTINGS, by_mean_rank([*SETTINGS.values]))
    listed = minatar.going_on(first)
    finish_winner(tmp_path, "Breakout", 1.0)
    finish_winner(tmp_path, "Seaquest", 3.0)
    learned = minatar.staying(minatar.read(tmp_path, listed), listed)
    # 2, ..., 6 less 1, and less 3: standard error sqrt(2.5 / 5).
    assert learned["errors"].to_dict() == {
        "Breakout": pytest.approx(3 / np.sqrt(0.5)), "Seaquest": pytest.approx(1 / np.sqrt(0.5))
    }  # fmt: skip
    assert learned["stays"].to_dict() == {"Breakout": True, "Seaquest": False}
    text = minatar.staying_table(learned, listed)
    assert "2 of 4 games finished" in text
    assert "| Seaquest | 4.00 ± 0.71 | 3.00 ± 0.00 (uniform actions) | 1.4 | no |" in text
    (tmp_path / "winner" / BASE / "Seaquest" / "gain.json").write_text('{"runs": {}}')
    with pytest.raises(files.Damaged, match="gain.json"):
        minatar.staying(minatar.read(tmp_path, listed), listed)


def test_the_question_begins_with_the_games_that_stay(tmp_path, monkeypatch):
    first = frame_of(SETTINGS, by_mean_rank([*SETTINGS.values]))
    second = frame_of(QUESTION, noise())
    monkeypatch.setattr(minatar, "is_complete", lambda _: True)
    monkeypatch.setattr(minatar, "power_table", lambda _: "")
    read = minatar.read
    lists = {"settings": first, "question": second[:0]}
    monkeypatch.setattr(
        minatar, "read", lambda results, listed: lists[listed.directory]
        if listed.directory in lists else read(results, listed),
    )  # fmt: skip
    for game in SETTINGS.games[:3]:
        finish_winner(tmp_path, game, 1.0)
    text, *_ = minatar.read_page(tmp_path)
    assert "## Games that stay" in text and "3 of 4 games finished" in text
    lists["question"] = second[:1]
    with pytest.raises(ValueError, match="games that do not stay"):
        minatar.read_page(tmp_path)
    finish_winner(tmp_path, SETTINGS.games[3], 1.0)
    with pytest.raises(ValueError, match=r"games that do not stay: set\(\), not \('Asterix',\)"):
        minatar.read_page(tmp_path)
    monkeypatch.setattr(minatar, "NOT_STAYING", ())
    minatar.read_page(tmp_path)
    monkeypatch.setattr(minatar, "NOT_STAYING", ("Seaquest",))
    with pytest.raises(ValueError, match="games that do not stay"):
        minatar.read_page(tmp_path)


def test_no_question_is_asked_before_all_runs_of_its_arms(monkeypatch):
    asked = []
    monkeypatch.setattr(minatar, "RESAMPLES", 99)
    monkeypatch.setattr(
        statistics, "stratified_rank_test",
        lambda first, second, *_, **__: asked.append((len(first[0]), len(second[0])))
        or statistics.RankTest(np.float64(1.0), np.float64(0.5)),
    )  # fmt: skip
    frame, first = frame_of(QUESTION, noise()), frame_of(SETTINGS, noise())[:-1]
    text = minatar.page(first, frame[frame.seed < 20])
    assert text.count("not yet asked") == 4 and not asked
    assert "`minatar_rcrl` against `minatar_erainbow_sa`: not yet asked, 160 of 480 runs" in text
    # Freeway is in no test, but its runs are on the list.
    lacks = (frame.arm == RCRL) & (frame.game == "Freeway") & (frame.seed == 59)
    text = minatar.page(first, frame[~lacks])
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
    frame = frame_of(QUESTION, lambda arm, *_: draw() + lift * (arm == RCRL))
    text = minatar.question(frame, RCRL, BASE)
    assert text.startswith(f"`minatar_rcrl` against `minatar_erainbow_sa`: {verdict}")
    # What Freeway has changes nothing.
    other = frame.assign(score=frame.score.where(frame.game != "Freeway", 99.0))
    assert minatar.question(other, RCRL, BASE) == text


def test_a_question_is_judged_as_registered():
    frame = frame_of(QUESTION, noise(2))
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
    assert f": {verdict}: " in minatar.question(frame_of(QUESTION, noise()), RCRL, BASE)


def test_residuals_are_standardised_within_games():
    # Two settings: differences of 1 and 3 within them; the second game has ten times these.
    rows = [("a", 1, 1.0), ("a", 1, 3.0), ("b", 1, 10.0), ("b", 1, 16.0)]
    rows += [(arm, 2, 10 * score) for arm, _, score in rows]
    frame = pd.DataFrame(rows, columns=["arm", "game", "score"])
    one = np.array([-1.0, 1.0, -3.0, 3.0]) / np.sqrt(5.0)
    np.testing.assert_allclose(minatar.residuals(frame), [*one, *one])


def test_power_is_that_of_the_normal_approximation_and_the_level_without_an_effect():
    pool = np.random.default_rng(3).normal(size=4000)
    pool = (pool - pool.mean()) / pool.std()
    assert minatar.power(pool, 0.0, 30, 4000) == pytest.approx(0.005, abs=0.004)
    # docs/preregistration.md: 0.9 for 0.58; a rank test of normal values has 3 / pi of the size.
    assert minatar.power(pool, 0.575, 30, 2000) == pytest.approx(0.885, abs=0.03)
    assert minatar.power(pool, -0.5, 30, 100) == 0.0


def test_power_stands_on_the_page_once_the_first_list_is_finished(monkeypatch):
    monkeypatch.setattr(minatar, "EXPERIMENTS", 20)
    monkeypatch.setattr(minatar, "power", lambda pool, effect, seeds: effect + seeds)
    first, none = frame_of(SETTINGS, noise()), frame_of(QUESTION, noise())[:0]
    assert "Power" not in minatar.page(first[:-1], none)
    text = minatar.page(first, none)
    assert "the 160 residuals of the settings" in text
    assert "| 0.175 SD in every game | 30.175 | 60.175 |" in text


def test_curves_are_means_of_runs_with_their_standard_error():
    runs = [
        np.array([[1.0, 2.0], [1000.0, 4.0], [1001.0, 7.0]]),
        np.array([[500.0, 5.0]]),
    ]
    mean, error = minatar.curve(runs, 2500)
    np.testing.assert_allclose(mean, [4.0, 7.0, np.nan])
    np.testing.assert_allclose(error, [1.0, np.nan, np.nan])
    assert np.isnan(minatar.curve([], 2500)[0]).all()


def test_the_command_writes_a_page_and_a_figure_and_refuses_in_one_line(tmp_path):
    directory = finish(tmp_path, "epsilon", "Seaquest", 103, 2.5)
    finish(tmp_path, RCRL, "Freeway", 59, 9.0, QUESTION)
    finish(tmp_path, "equal_return", "Freeway", 29, 8.0, QUESTION)
    result = programs.call("benchmarks.minatar", f"--results={tmp_path}")
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "README.md").read_text()
    assert result.stdout in page and "not finished: 1 of 160 runs." in page
    assert "| Freeway | (0) |  | 9.000 (1) | 7.00 | 8.000 (1) | 7.00 | (0) |  |" in page
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    edit(directory / "manifest.json", "run", steps=7)
    assert_refused(programs.call("benchmarks.minatar", f"--results={tmp_path}"))
    assert (tmp_path / "README.md").read_text() == page


def test_the_question_is_the_list_of_the_campaign():
    spec = specs.read_spec(ROOT / "campaigns" / "minatar.toml")
    assert (spec.steps, spec.eval_episodes) == (QUESTION.steps, QUESTION.episodes)
    assert spec.results.as_posix() == f"results/minatar/{QUESTION.directory}"
    assert sorted((unit.arm.name, unit.game, unit.seed) for unit in spec.units) == sorted(
        (arm, game, seed)
        for arm, seeds in QUESTION.seeds.items() for game in QUESTION.games for seed in seeds
    )  # fmt: skip
    for unit in spec.units:
        values = fields.values(spec.make_config(unit))
        for name, wanted in QUESTION.values[unit.arm.name].items():
            assert values[name] == (tuple(wanted) if isinstance(wanted, list) else wanted)


def test_presets_have_the_values_of_the_winner():
    first = minatar.read(ROOT / "results" / "minatar", SETTINGS)
    for preset in (BASE, RCRL, "minatar_erainbow"):
        values = fields.values(MINATAR_PRESETS[preset])
        wanted = SETTINGS.values[minatar.winner(first)]
        assert {name: values[name] for name in wanted} == wanted


def test_the_command_follows_the_preregistration():
    text = (ROOT / "docs" / "preregistration.md").read_text().partition("## Small games")[2]
    for arm, values in SETTINGS.values.items():
        exploration = "ε-greedy" if values["exploration"] == "epsilon_greedy" else "noise"
        rate = f"{values['learning_rate']:.1e}".replace("e-0", "e-").replace(".0e", "e")
        row = rf"\| `{arm}` \| {rate} \| {values['n_step']} \| {exploration}.* \| "
        assert re.search(rf"{row}{values['target_period']:,} \|", text)
    for words in (
        f"`minatar_erainbow_sa` on {', '.join(SETTINGS.games[:3])} and {SETTINGS.games[3]}",
        f"{SETTINGS.steps:,} agent steps, seeds 100\nto 104: 160 runs",
        f"{QUESTION.steps:,} agent steps",
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


@pytest.mark.parametrize("game, preset", [(game, RCRL) for game in QUESTION.games])
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
    text, *_ = minatar.read_page(results)
    assert text in (results / "README.md").read_text()
