"""The verdict on the claim, on synthetic results: decided both ways, undecided, refused."""

import pathlib
import re
import shutil

import numpy as np
import pytest

from benchmarks import claim
from rcrl_jax import reference
from rcrl_jax.tables import registered, statistics
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_refused
from tests.tables.synthetic import edit, score_at, write_run

FIRST, SECOND = registered.PRESETS


def finish(results, preset, game, seed, score) -> pathlib.Path:
    """Writes the files of a finished run of the list's length, whose mean is `score`."""
    return write_run(results, preset, game, seed, score, steps=100_000, episodes=100)


def read(results):
    return registered.read_runs(results, registered.PRESETS)


def text(results) -> str:
    return claim.page(read(results))


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    """Every run of the list, finished; both presets score alike."""
    results, rng = tmp_path_factory.mktemp("complete"), np.random.default_rng(0)
    for game in registered.CLAIM.games:
        for preset in registered.PRESETS:
            for seed in registered.CLAIM.seeds:
                finish(results, preset, game, seed, score_at(game, rng.normal(0.2, 0.05)))
    return results


@pytest.fixture(scope="module")
def frame(complete):
    """These runs as they are read."""
    return read(complete)


def lifted(frame, lift):
    """The runs if `rcrl` scored higher by `lift`, human-normalised."""
    more = frame.game.map(lambda game: score_at(game, lift) - score_at(game, 0.0))
    return frame.assign(score=frame.score + more.where(frame.preset == FIRST, 0.0))


def test_a_pair_counts_once_both_of_its_runs_are_finished(tmp_path):
    finish(tmp_path, FIRST, "Hero", 0, 5000.0)
    finish(tmp_path, SECOND, "Hero", 1, 4000.0)
    finish(tmp_path, FIRST, "Asterix", 8, 700.0)
    finish(tmp_path, SECOND, "Asterix", 8, 600.0)
    finish(tmp_path, FIRST, "UpNDown", 2, 1.0).joinpath("scores.json").unlink()
    assert text(tmp_path).splitlines() == [
        "undecided: 1 of 36 pairs finished.",
        "",
        "| game | `rcrl`, seeds | mean | `erainbow_sa`, seeds | mean |",
        "| --- | --- | --- | --- | --- |",
        "| Hero | 1 | 5000.0 | 1 | 4000.0 |",
        "| UpNDown | 0 |  | 0 |  |",
        "| Asterix | 1 | 700.0 | 1 | 600.0 |",
        "| MsPacman | 0 |  | 0 |  |",
    ]


def test_the_verdict_is_computed_as_registered(frame):
    close = lifted(frame, 0.02)
    raw = registered.CLAIM.paired_scores(close)
    test = statistics.stratified_rank_test(*raw, np.random.default_rng(0), permutations=100_000)
    normalised = [
        [reference.human_normalised(*one) for one in zip(registered.CLAIM.games, arm, strict=True)]
        for arm in raw
    ]
    found = statistics.bootstrap_intervals(
        {
            "iqm": statistics.difference(statistics.interquartile_mean),
            "improvement": statistics.probability_of_improvement,
        },
        normalised, np.random.default_rng(0), resamples=50_000, paired=False,
    )  # fmt: skip
    decided = claim.page(close).splitlines()[0]
    assert f"p = {test.p_value:.5f})" in decided
    for one, digits in ((found["iqm"], "+.4f"), (found["improvement"], ".3f")):
        assert f"{one.estimate:{digits}} [{one.low:{digits}}, {one.high:{digits}}]" in decided


@pytest.mark.parametrize("p, verdict", [(0.05, "contradicted"), (0.0501, "undecided")])
def test_the_estimates_take_no_part_in_the_verdict(frame, monkeypatch, p, verdict):
    outcome = statistics.RankTest(np.float64(-1.0), np.float64(p))
    monkeypatch.setattr(statistics, "stratified_rank_test", lambda *_, **__: outcome)
    monkeypatch.setattr(claim, "RESAMPLES", 99)
    assert claim.page(lifted(frame, 0.05)).startswith(verdict)  # the estimates say the opposite


def test_the_committed_page_is_that_of_the_committed_runs():
    results = ROOT / "results" / "claim"
    found = read(results)
    assert (results / "README.md").read_text().endswith(f"\n\n{claim.page(found)}\n")


def test_no_p_value_is_computed_before_the_last_run(frame, monkeypatch):
    decided = []
    monkeypatch.setattr(claim, "decide", lambda *arms: decided.append(arms) or "a verdict")
    assert claim.page(frame[:-1]).startswith("undecided: 35 of 36 pairs finished.\n")
    assert not decided
    assert claim.page(frame).startswith("a verdict\n")


@pytest.mark.parametrize(
    "lift, verdict",
    [
        (0.05, "supported: `rcrl` scores higher than `erainbow_sa`"),
        (-0.05, "contradicted: `rcrl` scores lower than `erainbow_sa`"),
        (0.0, "undecided: the test finds no difference between `rcrl` and `erainbow_sa`"),
    ],
)
def test_verdict_of_the_complete_list(frame, lift, verdict):
    decided = claim.page(lifted(frame, lift)).splitlines()[0]
    assert decided.startswith(verdict + " (36 of 36 pairs finished;")
    p = float(re.search(r"p = (\d\.\d+)", decided)[1])
    assert (p <= 0.05) == (lift != 0)
    iqm, improvement = (
        [float(number) for number in found]
        for found in re.findall(r"([-+\d.]+) \[([-+\d.]+), ([-+\d.]+)\]", decided)
    )
    assert iqm[0] == pytest.approx(lift, abs=0.02)
    for (estimate, low, high), even in ((iqm, 0.0), (improvement, 0.5)):
        assert low < estimate < high
        assert (low > even) == (lift > 0) and (high < even) == (lift < 0)


def test_runs_outside_the_list_do_not_change_the_verdict(complete, frame, tmp_path, monkeypatch):
    """It is computed twice, so its draws do not change either."""
    monkeypatch.setattr(claim, "PERMUTATIONS", 999)
    monkeypatch.setattr(claim, "RESAMPLES", 999)
    before = claim.page(frame)
    results = shutil.copytree(complete, tmp_path / "results")
    for seed in range(9, 30):
        finish(results, SECOND, "Hero", seed, 1e6)
    finish(results, SECOND, "Pong", 0, 20.0)
    after = text(results)
    assert after.startswith(before)
    assert "Exploratory" in after.removeprefix(before)
    assert after.splitlines()[-2:] == [
        "| Hero | 0 |  | 21 | 1000000.0 |",
        "| Pong | 0 |  | 1 | 20.0 |",
    ]


def test_the_larger_experiment_is_judged_apart_from_the_list(tmp_path):
    for preset in registered.PRESETS:
        finish(tmp_path, preset, "Hero", 0, 5000.0)
    before = text(tmp_path)
    for preset in registered.PRESETS:
        for game in ("Hero", "Pong"):
            directory = finish(tmp_path, preset, game, 125, 7.0)
            edit(directory / "manifest.json", "device", platform="gpu")
    finish(tmp_path, FIRST, "Hero", 126, 8.0)  # of neither
    after = text(tmp_path)
    assert after.startswith(before)
    lines = after.removeprefix(before).splitlines()
    sentence = "undecided: 2 of 676 pairs finished."
    assert f"The larger experiment, 26 games, seeds 100 to 125: {sentence}" in lines
    assert "| Hero | 1 | 7.0 | 1 | 7.0 |" in lines and "| Pong | 1 | 7.0 | 1 | 7.0 |" in lines
    assert lines[-1] == "| Hero | 1 | 8.0 | 0 |  |"


@pytest.mark.parametrize("lift, verdict", [(0.0, "undecided"), (0.05, "supported")])
def test_verdict_of_the_larger_experiment(frame, lift, verdict, monkeypatch):
    monkeypatch.setattr(claim, "PERMUTATIONS", 999)
    monkeypatch.setattr(claim, "RESAMPLES", 99)
    rng, larger = np.random.default_rng(1), registered.LARGER
    units = [(p, g, s) for g in larger.games for p in registered.PRESETS for s in larger.seeds]
    rows = frame.iloc[[0] * len(units)].assign(
        **{name: [preset for preset, _, _ in units] for name in ("arm", "preset", "settings")},
        game=[game for _, game, _ in units],
        seed=[seed for _, _, seed in units],
        score=[score_at(game, rng.normal(0.2, 0.05)) for _, game, _ in units],
    )
    found = claim.page(lifted(rows, lift))
    assert found.startswith("undecided: 0 of 36 pairs finished.\n")
    (line,) = (line for line in found.splitlines() if line.startswith("The larger experiment"))
    start = f"The larger experiment, 26 games, seeds 100 to 125: {verdict}: "
    assert line.startswith(start) and "(676 of 676 pairs finished;" in line
    almost = claim.page(lifted(rows, lift)[:-1])
    assert "seeds 100 to 125: undecided: 675 of 676 pairs finished." in almost


def test_more_runs_outside_the_list_on_another_device_hide_no_pair(tmp_path):
    for preset in registered.PRESETS:
        finish(tmp_path, preset, "Hero", 0, 5000.0)
    for seed in range(9, 12):
        directory = finish(tmp_path, SECOND, "Hero", seed, 4000.0)
        edit(directory / "manifest.json", "device", platform="gpu")
    found = text(tmp_path)
    assert found.startswith("undecided: 1 of 36 pairs finished.")
    assert "3 runs left out: device.platform is gpu, not cpu as in the 2 runs kept" in found


def test_a_run_that_diverged_twice_counts_as_random_play(tmp_path):
    finish(tmp_path, SECOND, "Hero", 3, 5000.0)
    directory = finish(tmp_path, FIRST, "Hero", 3, 5000.0)
    (directory / "scores.json").unlink()
    (directory / "diverged.json").write_text('{"attempts": 2}')
    frame = read(tmp_path)
    assert frame.score[frame.diverged].item() == reference.published("Hero", "Random")
    found = claim.page(frame)
    assert found.startswith("undecided: 1 of 36 pairs finished.\n")
    assert "Diverged 2 times, counted as random play: rcrl/Hero/seed_3." in found


def change(name, section=None, **changes):
    return lambda directory: edit(directory / name, section, **changes)


@pytest.mark.parametrize(
    "spoil, says",
    [
        (change("scores.json", episodes=10), ["episodes is 10", "100"]),
        (change("manifest.json", "run", algorithm=None), ["algorithm is None"]),
        (change("manifest.json", "run", config={"auxiliary": []}), ["agent is 'erainbow_sa'"]),
        (change("manifest.json", "run", algorithm=1), ["algorithm is 1, but 2", "Hero/seed_0"]),
        (
            change("manifest.json", "run", config={"evaluation_period": 5}),
            ["evaluation_period is 5, but "],
        ),
        (change("manifest.json", "run", backend="ale"), ["backend is ale, but envpool"]),
        (change("manifest.json", "protocol", noise="on"), ["protocol.noise is on, but not stated"]),
    ],
)
def test_damaged_or_differing_results_are_refused(tmp_path, spoil, says):
    finish(tmp_path, FIRST, "UpNDown", 1, 300.0)
    finish(tmp_path, SECOND, "Hero", 0, 4000.0)
    read(tmp_path)
    spoil(finish(tmp_path, FIRST, "Hero", 0, 5000.0))
    with pytest.raises(ValueError) as refused:
        read(tmp_path)
    for words in says:
        assert words in str(refused.value)


def test_runs_on_another_device_have_a_table_of_their_own(tmp_path):
    """They are not refused, and have no part in the verdict."""
    for seed in (0, 1):
        for preset in registered.PRESETS:
            directory = finish(tmp_path, preset, "Hero", seed, 5000.0 + seed)
    edit(directory / "manifest.json", "device", platform="gpu")
    first, *rest = text(tmp_path).splitlines()
    assert first == "undecided: 1 of 36 pairs finished."
    assert "| Hero | 2 | 5000.5 | 1 | 5000.0 |" in rest
    assert "not part of the claim" in rest[-5] and "platform" in rest[-5]
    assert rest[-1] == "| Hero | 0 |  | 1 | 5001.0 |"


@pytest.mark.parametrize("commit", ["abc-dirty", None])
def test_a_run_whose_code_is_unknown_is_named(tmp_path, commit):
    assert "commit" not in text(tmp_path)
    edit(finish(tmp_path, FIRST, "Hero", 1, 5.0) / "manifest.json", "versions", git_commit=commit)
    (line,) = (line for line in text(tmp_path).splitlines() if "commit" in line)
    assert f"rcrl/Hero/seed_1 ({commit or 'unknown'})" in line


def test_the_command_writes_what_it_prints_and_refuses_in_one_line(complete, tmp_path):
    results = shutil.copytree(complete, tmp_path / "results")
    result = programs.call("benchmarks.claim", f"--results={results}")
    assert result.returncode == 0, result.stderr
    written = (results / "README.md").read_text()
    assert result.stdout.startswith("undecided: the test finds") and result.stdout in written

    edit(results / FIRST / "Hero" / "seed_0" / "manifest.json", "run", steps=7)
    assert_refused(programs.call("benchmarks.claim", f"--results={results}"))
    assert (results / "README.md").read_text() == written


def test_the_command_follows_the_preregistration():
    text = (ROOT / "docs" / "preregistration.md").read_text()
    for row in (
        f"| presets | {', '.join(f'`{preset}`' for preset in registered.PRESETS)} |",
        f"| games | {', '.join(registered.CLAIM.games)} |",
        f"| seeds | {registered.CLAIM.seeds[0]} to {registered.CLAIM.seeds[-1]} |",
        f"| length | {registered.STEPS:,} agent steps |",
        f"{registered.LARGER.num_pairs} pairs: {len(registered.LARGER.games)} games, seeds "
        f"{registered.LARGER.seeds[0]} to {registered.LARGER.seeds[-1]}, the same test",
        f"{registered.EPISODES} episodes of the final evaluation",
        f"{claim.PERMUTATIONS:,} permutations",
        f"{claim.RESAMPLES:,} bootstrap resamples",
        f"default_rng({claim.SEED})",
        f"p ≤ {claim.LEVEL}",
    ):
        assert row in text
