r"""Simulates the power of the pre-registered test of `rcrl` against `erainbow_sa`.

    python -m benchmarks.power

docs/preregistration.md describes the test. The spread of scores is that of the 20 seeds that CURL's
authors published for each game, moved to the mean of the arm. Three models of that spread:

* `smoothed`, the main one: a published seed drawn with replacement, plus normal noise, scaled back
  to the standard deviation of the seeds. The noise has the width of Silverman's rule.
* `resampled`: the same without the noise. Equal scores are then common, within an arm and between
  arms that do not differ. The smallest shift of an arm breaks all ties in its favour, so power is
  overestimated for small effects.
* `normal`: normal scores of the same standard deviation, to show how much the shape matters.
"""

import importlib.metadata
import pathlib
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from benchmarks import claim
from benchmarks.tables import published, registered, statistics
from experiments import command_line
from rcrl_jax import files, reference
from rcrl_jax.runs import manifest

_SIMULATIONS = flags.DEFINE_integer(
    "simulations", 10_000, "simulated experiments of each row", 1, 100_000
)
_PERMUTATIONS = flags.DEFINE_integer(
    "permutations", 9_999, "permutations of each simulated test", 1, 1_000_000
)
_OUTPUT = flags.DEFINE_string("output", "results/power", "directory of power.json")

SEED = 0
MODELS = ("smoothed", "resampled", "normal")
COMMON_EFFECTS = (0.0, 0.175, 0.63, 1.0)
"""No effect; the mean published difference over the 26 games; the standard error of a published
difference, sqrt(2 / 5) for two means of five seeds; one that the test hardly misses. In standard
deviations of CURL's seeds."""
ALL_GAMES_SEEDS = (9, 18, 26)
"""Runs of each arm on each of the 26 games that could decide the mean published difference."""
ALL_GAMES_EFFECT = 0.175
ALL_GAMES_LIMITS = (2_000, 999)
"""Simulations and permutations of these rows at most: they hold many more runs."""


def curl_seeds(game: str) -> np.ndarray:
    """`[20]`, the published scores of CURL's seeds on `game`."""
    return published.curl_seeds().query("game == @game").score.to_numpy()


def published_effect(game: str) -> float:
    """RCRL's published mean minus ERainbow-sa's, in standard deviations of CURL's 20 seeds."""
    difference = reference.published(game, "RCRL") - reference.published(game, "ERainbow-sa")
    return difference / curl_seeds(game).std(ddof=1)


def draw(
    seeds: np.ndarray, effect: float, model: str, shape: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """Draws standardised scores of one arm on one game.

    Ranks within a game do not change when all its scores are moved or scaled, so the mean of
    `erainbow_sa` is 0 and the standard deviation of both arms is 1.

    Args:
        seeds: published scores whose distribution `smoothed` and `resampled` follow.
        effect: the arm's mean [standard deviations].
        model: one of `MODELS`.
        shape: simulations and runs.
        rng: draws the scores.

    Returns:
        `[simulations, runs]`.
    """
    if model == "normal":
        return effect + rng.standard_normal(shape)
    # Draws have the population's standard deviation (over n), not the sample's (over n - 1).
    standardised = (seeds - seeds.mean()) / seeds.std()
    drawn = rng.choice(standardised, shape)
    if model == "smoothed":
        quartiles = np.quantile(standardised, [0.25, 0.75])
        width = 0.9 * min(1.0, (quartiles[1] - quartiles[0]) / 1.34) * len(seeds) ** -0.2
        drawn = (drawn + width * rng.standard_normal(shape)) / np.hypot(1.0, width)
    return effect + drawn


def power(
    effects: list[float],
    model: str,
    simulations: int,
    permutations: int,
    runs: int = len(registered.SEEDS),
    games: Sequence[str] = registered.GAMES,
) -> float:
    """Share of simulated experiments in which the test finds `rcrl` better.

    Args:
        effects: of `rcrl` in each game [standard deviations].
        model: one of `MODELS`.
        simulations: number of simulated experiments.
        permutations: of each test; all simulations share them.
        runs: of each arm on each game.
        games: those of the claim, or others.
    """
    rng = np.random.default_rng(SEED)
    shape = (simulations, runs)
    seeds = [curl_seeds(game) for game in games]
    first = [draw(own, e, model, shape, rng) for own, e in zip(seeds, effects, strict=True)]
    second = [draw(own, 0.0, model, shape, rng) for own in seeds]
    test = statistics.stratified_rank_test(first, second, rng, permutations=permutations)
    return float(np.mean((test.p_value <= claim.LEVEL) & (test.statistic > 0)))


def main(argv: list[str]) -> None:
    """Prints the table and writes power.json."""
    del argv
    output = pathlib.Path(_OUTPUT.value)
    try:
        files.make_writable(output)
    except OSError as error:
        command_line.refuse(f"--output: {error}")
    published = [published_effect(game) for game in registered.GAMES]
    every_game = [published_effect(game) for game in reference.games()]
    cases = {"published differences": published} | {
        f"{effect:g} SD in every game": [effect] * len(registered.GAMES)
        for effect in COMMON_EFFECTS
    }
    rows = []
    print("| true difference | " + " | ".join(MODELS) + " |\n| --- |" + " --- |" * len(MODELS))
    for name, effects in cases.items():
        found = {m: power(effects, m, _SIMULATIONS.value, _PERMUTATIONS.value) for m in MODELS}
        rows.append({"difference": name, "effects": effects, "power": found})
        print(f"| {name} | " + " | ".join(f"{share:.3f}" for share in found.values()) + " |")
    limits = np.minimum((_SIMULATIONS.value, _PERMUTATIONS.value), ALL_GAMES_LIMITS).tolist()
    games = reference.games()
    larger = []
    heads = f"| {ALL_GAMES_EFFECT:g} SD in all 26 games | " + " | ".join(MODELS) + " |"
    print(f"\n{heads}\n| --- |" + " --- |" * len(MODELS))
    for runs in ALL_GAMES_SEEDS:
        effects = [ALL_GAMES_EFFECT] * len(games)
        found = {m: power(effects, m, *limits, runs, games) for m in MODELS}
        larger.append({"runs_per_arm_and_game": runs, "power": found})
        shares = " | ".join(f"{share:.3f}" for share in found.values())
        print(f"| {runs} seeds, {runs * len(games)} pairs | {shares} |")
    files.write_json_atomically(
        output / "power.json",
        {
            "games": registered.GAMES,
            "runs_per_arm_and_game": len(registered.SEEDS),
            "level": claim.LEVEL,
            "seed": SEED,
            "simulations": _SIMULATIONS.value,
            "permutations": _PERMUTATIONS.value,
            "published_effects_of_26_games": {
                "mean": float(np.mean(every_game)),
                "std": float(np.std(every_game, ddof=1)),
            },
            "rows": rows,
            "all_26_games": {
                "effect": ALL_GAMES_EFFECT,
                "simulations": limits[0],
                "permutations": limits[1],
                "rows": larger,
            },
            "versions": manifest.circumstances()["versions"]
            | {"scipy": importlib.metadata.version("scipy")},
        },
    )


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
