"""Our runs of `curl` among the published ones: ranks, both tests, the page."""

import itertools

import numpy as np
import pytest

from benchmarks import base
from rcrl_jax import reference
from rcrl_jax.tables import published, registered
from tests.benchmarks.test_claim import finish
from tests.programs import programs
from tests.programs.test_command_line import ROOT, assert_refused
from tests.tables.synthetic import edit


def finish_games(results, games) -> None:
    for number, game in enumerate(games):
        finish(results, "curl", game, 0, 1000.0 + number)


def read(results):
    return registered.read_runs(results, ("curl",))


def test_ranks_and_statistics_by_hand():
    rng = np.random.default_rng(0)
    others = np.array([1.0, 2.0, 4.0])
    places = [int(base.place(score, others, rng)) for score in (0.0, 1.5, 3.0, 9.0)]
    assert places == [0, 1, 2, 3]
    ranks = base.rank([0, 1, 3], 3)
    assert ranks.tolist() == [0.125, 0.375, 0.875]
    mean, squared = base.statistics_of(ranks)
    assert mean == pytest.approx(1.375 / 3)
    assert squared == pytest.approx((0.375**2 + 0.125**2 + 0.375**2) / 3)


@pytest.mark.parametrize("others", [3, 4])
def test_p_values_equal_the_enumeration_of_all_places(others):
    every = np.array([*itertools.product(range(others + 1), repeat=4)])
    null = base.statistics_of(base.rank(every, others))
    found = base.p_values(every, others)
    for n in range(len(every)):
        as_far = np.abs(null.mean - 0.5) >= abs(null.mean[n] - 0.5) - 1e-12
        assert found.mean[n] == pytest.approx(as_far.mean())
        assert found.squared[n] == pytest.approx((null.squared >= null.squared[n] - 1e-12).mean())


def test_places_are_uniform_with_ties():
    rng = np.random.default_rng(1)
    scores = np.array([5.0] * 6 + [1.0, 2.0, 7.0, 8.0])
    own = rng.integers(10, size=20_000)
    others = np.stack([np.delete(scores, n) for n in range(10)])[own]
    counts = np.bincount(base.place(scores[own], others, rng), minlength=10)
    assert np.sum((counts - 2000) ** 2 / 2000) < 27.9  # chi-squared, 9 degrees, p = 0.001


def test_a_tie_is_broken_alike_whatever_else_is_finished(tmp_path):
    finish(tmp_path, "curl", "PrivateEye", 0, 100.0)
    alone = base.our_places(read(tmp_path), 0)
    finish_games(tmp_path, ["Alien", "Hero"])
    together = base.our_places(read(tmp_path), 0)
    assert together["PrivateEye"] == alone["PrivateEye"]
    scores = published.curl_runs()["PrivateEye"]
    below = np.sum(scores < 100)
    drawn = np.random.default_rng([0, reference.games().index("PrivateEye")]).integers(0, 75)
    assert alone["PrivateEye"] == below + drawn
    finish(tmp_path, "curl", "PrivateEye", 1, 100.0)
    drawn = np.random.default_rng([1, reference.games().index("PrivateEye")]).integers(0, 75)
    assert base.our_places(read(tmp_path), 1)["PrivateEye"] == below + drawn


def test_the_committed_page_is_that_of_the_committed_runs_of_curl():
    results = ROOT / "results" / "base"
    frame = read(results)
    assert (results / "README.md").read_text().endswith(f"\n\n{base.page(frame)}\n")


def test_no_p_value_before_the_last_game(tmp_path, monkeypatch):
    finish_games(tmp_path, reference.games()[:25])

    def forbidden(*_):
        raise AssertionError("a p value was computed")

    monkeypatch.setattr(base, "p_values", forbidden)
    monkeypatch.setattr(base, "statistics_of", forbidden)
    text = base.page(read(tmp_path))
    assert text.startswith("Seed 0: undecided: 25 of 26 games finished.\n") and "p =" not in text
    finish(tmp_path, "curl", reference.games()[25], 1, 5.0)
    text = base.page(read(tmp_path))
    assert text.startswith("Seed 0: undecided: 25 of 26") and "Seed 1: undecided: 1 of" in text
    finish(tmp_path, "curl", reference.games()[25], 2, 5.0)
    assert "1 runs of other seeds take no part" in base.page(read(tmp_path))
    finish(tmp_path, "curl", reference.games()[25], 0, 6.0)
    with pytest.raises(AssertionError, match="p value"):
        base.page(read(tmp_path))


def test_each_look_has_its_own_conditions(tmp_path):
    finish_games(tmp_path, ["Alien", "Hero"])
    edit(finish(tmp_path, "curl", "Alien", 1, 5.0) / "manifest.json", "device", platform="gpu")
    text = base.page(read(tmp_path))
    assert "Seed 0: undecided: 2 of 26" in text and "Seed 1: undecided: 1 of 26" in text
    assert "left out" not in text


@pytest.mark.parametrize(
    ("places", "verdict"),
    [
        ([50] * 26, "the base is not rejected"),
        ([85] * 26, "the base is rejected"),
        ([0, 100] * 13, "the base is rejected"),
    ],
)
def test_verdict_after_all_games(places, verdict):
    text = base.sentence(dict(zip(reference.games(), places, strict=True)))
    assert text.startswith(verdict) and text.count("p = ") == 2


def test_the_command_writes_what_it_prints_and_no_other_page(tmp_path):
    finish_games(tmp_path, ["Hero"])
    path = tmp_path / "README.md"
    path.write_text("mine\n")
    assert_refused(programs.call("benchmarks.base", f"--results={tmp_path}"))
    assert path.read_text() == "mine\n"
    path.unlink()
    for _ in range(2):
        result = programs.call("benchmarks.base", f"--results={tmp_path}")
        assert result.returncode == 0, result.stderr
        assert path.read_text().endswith(f"\n\n{result.stdout}")


def test_the_preregistration_names_the_test():
    registered_text = (ROOT / "docs" / "preregistration.md").read_text()
    assert 100 * base.LEVEL == 0.5
    for text in ("0.5 % each", *(f"`numpy.random.default_rng([{n}, g])`" for n in base.LOOKS)):
        assert text in registered_text
