r"""Simulates how often 95 % bootstrap intervals contain the truth.

    python -m benchmarks.coverage

A table has two arms, 26 games and n runs a game. Two models of scores:

* `normal`: each game has its own centre and spread; the first arm is better by a tenth of the
  spread. Paired arms share 0.64 of their variance.
* `curl`: human-normalised scores drawn with replacement from the 20 that CURL's authors published
  for each game, for both arms alike.

With 1,000 tables, the standard error of a coverage of 95 % is 0.7 points.
"""

import importlib.metadata
import pathlib

import numpy as np
from absl import app, flags
from scipy import stats

from benchmarks.tables import published, statistics
from experiments import command_line
from rcrl_jax import files, reference
from rcrl_jax.runs import manifest

SEED = 0
RUNS = (5, 10, 20)
MODELS = ("normal", "curl")
AGGREGATES = {
    "mean": statistics.mean_of_game_means,
    "median": statistics.median_of_game_means,
    "IQM": statistics.interquartile_mean,
    "IQM of game means": statistics.interquartile_mean_of_game_means,
    "optimality gap": statistics.optimality_gap,
}
"""Estimators of one arm; two arms are compared by their differences."""
COMPARISONS = {
    f"difference, {name}": statistics.difference(estimator)
    for name, estimator in AGGREGATES.items()
} | {"probability of improvement": statistics.probability_of_improvement}

_SHIFT = 0.1  # of the first arm [standard deviations]
_SHARED = 0.8  # standard deviation that paired normal arms share; 0.6 is each arm's own
_QUANTILES = 4000  # of each game's distribution; the truth is computed from them
_TABLES = 1000  # simulated, of each row
_RESAMPLES = 400  # of each interval


class Simulation:
    """Draws tables of one model and computes the intervals of every statistic."""

    def __init__(self, model: str, runs: int, *, paired: bool, seed: int = SEED):
        """Draws the games' centres and spreads, if the model has them.

        Args:
            model: one of `MODELS`.
            runs: of each arm on each game.
            paired: whether run k of both arms shares its seed.
            seed: of everything that is drawn.
        """
        self._model, self._runs, self._paired = model, runs, paired
        self._rng = np.random.default_rng(seed)
        if model == "curl":
            scores = [
                reference.human_normalised(
                    game,
                    published.curl_seeds().query("game == @game").score.to_numpy(),
                )
                for game in reference.games()
            ]
            self._population = [scores, scores]
        else:
            self._centre = self._rng.gamma(1.0, 0.5, len(reference.games()))
            self._spread = 0.1 + 0.3 * self._centre
            grid = stats.norm.ppf((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
            self._population = [
                list(mean[:, None] + self._spread[:, None] * grid)
                for mean in (self._centre + _SHIFT * self._spread, self._centre)
            ]

    def truth(self) -> dict[str, float]:
        """The value of every statistic, by name."""
        first, second = self._population
        truth = {name: float(own(first)) for name, own in AGGREGATES.items()}
        for name, own in COMPARISONS.items():
            if name != "probability of improvement":
                truth[name] = float(own(first, second))
        is_equal = self._model == "curl"
        improvement = 0.5 if is_equal else stats.norm.cdf(_SHIFT / np.sqrt(2))
        return truth | {"probability of improvement": float(improvement)}

    def coverage(self, tables: int, resamples: int) -> dict[str, float]:
        """Share of tables whose 95 % interval contains the truth, by statistic.

        Args:
            tables: how many are drawn.
            resamples: of each interval.
        """
        truth = self.truth()
        covered = dict.fromkeys(truth, 0)
        for _ in range(tables):
            first, second = self._draw()
            options = {"rng": self._rng, "resamples": resamples}
            found = statistics.bootstrap_intervals(AGGREGATES, [first], **options)
            found |= statistics.bootstrap_intervals(
                COMPARISONS, [first, second], paired=self._paired, **options
            )
            for name, interval in found.items():
                covered[name] += interval.low <= truth[name] <= interval.high
        return {name: float(count / tables) for name, count in covered.items()}

    def _draw(self) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Two arms of a table, one array `[n]` a game."""
        if self._model == "curl":
            return tuple(
                [self._rng.choice(game, self._runs) for game in arm] for arm in self._population
            )
        shape = (len(self._centre), self._runs)
        shared, own = (_SHARED, np.sqrt(1 - _SHARED**2)) if self._paired else (0.0, 1.0)
        noise = shared * self._rng.normal(size=shape) + own * self._rng.normal(size=(2, *shape))
        noise[0] += _SHIFT
        return tuple(list(self._centre[:, None] + self._spread[:, None] * arm) for arm in noise)


def define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("output", "results/coverage", "directory of coverage.json")


def main(argv: list[str]) -> None:
    """Prints the table and writes coverage.json."""
    del argv
    output = pathlib.Path(flags.FLAGS.output)
    try:
        files.make_writable(output)
    except OSError as error:
        command_line.refuse(f"--output: {error}")
    rows = []
    for model in MODELS:
        for paired in (False, True) if model == "normal" else (False,):
            for runs in RUNS:
                simulation = Simulation(model, runs, paired=paired)
                found = simulation.coverage(_TABLES, _RESAMPLES)
                rows.append({"model": model, "paired": paired, "runs": runs, "coverage": found})
    heads = [f"{r['model']}{', paired' * r['paired']}, {r['runs']} runs" for r in rows]
    print("| statistic | " + " | ".join(heads) + " |\n| --- |" + " --- |" * len(heads))
    for name in rows[0]["coverage"]:
        cells = [f"{100 * row['coverage'][name]:.1f}" for row in rows]
        print(f"| {name} | " + " | ".join(cells) + " |")
    files.write_json_atomically(
        output / "coverage.json",
        {
            "level": 0.95,
            "games": len(reference.games()),
            "seed": SEED,
            "tables": _TABLES,
            "resamples": _RESAMPLES,
            "rows": rows,
            "versions": manifest.circumstances()["versions"]
            | {"scipy": importlib.metadata.version("scipy")},
        },
    )


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=command_line.parse)
