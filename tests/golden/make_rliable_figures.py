"""Makes rliable_figures.json for `tests/tables/test_statistics.py`.

rliable is archived and does not work with the newest pandas and arch, so it stays out of the
project's requirements. The file was made from the repository's root with Python 3.11 by

    python -m venv /tmp/rliable
    /tmp/rliable/bin/pip install rliable==1.2.0 arch==7.2.0 pandas==2.3.3 numpy==2.4.6 scipy==1.17.1
    /tmp/rliable/bin/python -m tests.golden.make_rliable_figures

rliable ignores the `random_state` of its functions and draws from NumPy's global generator, which
is seeded here. The tables of the two synthetic algorithms are part of the file.
"""

import importlib.metadata
import json
import pathlib
import re

import numpy as np

FILE = pathlib.Path(__file__).with_name("rliable_figures.json")
PAIRS = [("first_20", "second_20"), ("first_20", "second_5"), ("first_5", "second_5")]
RESAMPLES = {"aggregates": 50_000, "improvement": 5_000}


def synthetic_scores() -> dict[str, np.ndarray]:
    """Two algorithms, `[runs, 26]`: skewed, of different spread in each game, with ties."""
    rng = np.random.default_rng(0)
    scale = rng.gamma(1.0, 0.5, 26)
    first = np.round(scale * rng.gamma(2.0, 0.5, (20, 26)) - 0.05, 2)
    second = np.round(scale * rng.gamma(2.0, 0.4, (20, 26)) - 0.05, 2)
    return {
        "first_20": first,
        "first_5": first[:5],
        "second_20": second,
        "second_5": second[:5],
    }


def main() -> None:
    """Computes all figures with rliable and writes the file."""
    from rliable import library, metrics

    np.random.seed(0)
    tables = synthetic_scores()
    names = ["mean", "median", "iqm"]
    functions = [
        metrics.aggregate_mean,
        metrics.aggregate_median,
        metrics.aggregate_iqm,
    ]
    figures = {}
    estimates, intervals = library.get_interval_estimates(
        tables,
        lambda scores: np.array([function(scores) for function in functions]),
        reps=RESAMPLES["aggregates"],
    )
    for table in tables:
        figures[table] = {
            name: {"estimate": estimates[table][i], "interval": intervals[table][:, i].tolist()}
            for i, name in enumerate(names)
        }
    improvements, intervals = library.get_interval_estimates(
        {" ".join(pair): [tables[name] for name in pair] for pair in PAIRS},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=RESAMPLES["improvement"],
    )
    improvement = {
        pair: {"estimate": improvements[pair][0], "interval": intervals[pair][:, 0].tolist()}
        for pair in improvements
    }
    packages = ("rliable", "arch", "pandas", "numpy", "scipy")
    content = {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "resamples": RESAMPLES,
        # One row a game.
        "scores": {name: table.T.tolist() for name, table in tables.items() if "20" in name},
        "figures": figures,
        "improvement": improvement,
    }
    # One line a list of numbers.
    text = re.sub(
        r"\[[^][]*\]", lambda found: " ".join(found[0].split()), json.dumps(content, indent=1)
    )
    FILE.write_text(text + "\n")


if __name__ == "__main__":
    main()
