"""Results with everything that a page shows, and with names that try to break out of it."""

import json
import pathlib

from benchmarks.tables import page
from tests.benchmarks.tables import synthetic

HOSTILE = '<img src=x onerror="window.broken=1">&\'$\\frac{1}{2}$\u202e</script><b>'
SHOWN = HOSTILE.replace("\u202e", "?")
"""The same as a reader sees it: what reverses the direction of writing is replaced."""
GAMES = ("Alien", "Pong")
PRESETS = ("rcrl", "erainbow_sa")
SEEDS = range(3)


def write_results(root: pathlib.Path) -> pathlib.Path:
    """Writes 12 comparable runs, one unfinished, one of DMControl, one with hostile names."""
    for number, preset in enumerate(PRESETS):
        for game in GAMES:
            for seed in SEEDS:
                write_run(root, preset, game, seed, 10.0 + seed + 2 * number)
    write_run(root, "rcrl", "Pong", 9, None)
    synthetic.write_run(root, "state_sac", "cheetah_run", 0, 321.0)
    hostile = write_run(root, "curl", "Qbert", 0, 55.0)
    write_hostile(hostile)
    return root


def write_run(root, preset, game, seed, score) -> pathlib.Path:
    """Writes a run of 100,000 steps with what return contrast records."""
    directory = synthetic.write_run(root, preset, game, seed, score, steps=100_000)
    lines = [
        {
            "agent_steps": step, "cosine_positive": 0.9, "cosine_negative": None,
            "segment_length_p10": 1.0, "segment_length_p50": 20.0 + seed,
            "segment_length_p90": 80.0, "positive_is_anchor": 0.25, "of": str(directory),
        }
        for step in (1000, 2000)
    ]  # fmt: skip
    synthetic.write_lines(directory / "metrics.jsonl", lines)
    return directory


def write_hostile(directory: pathlib.Path) -> None:
    """Puts hostile text wherever a file of a run may have text of its own."""
    path = directory / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["run"]["config"]["augmentation"] = HOSTILE
    manifest["run"]["backend"] = HOSTILE
    manifest["device"] = {"kind": HOSTILE, "host_cores": HOSTILE}
    manifest["versions"] = {"git_commit": HOSTILE, HOSTILE: "\ud800"}
    path.write_text(json.dumps(manifest))


def write_speed(root: pathlib.Path, command: str = "rcrl") -> pathlib.Path:
    """Writes a file as `benchmarks.throughput` does."""
    path = root / "throughput" / "cpu.json"
    path.parent.mkdir(parents=True)
    fleet = {"preset": "rcrl", "games": "Pong", "runs": 1, "agent_steps_per_s": 62.125}
    entry = {"machine": {"matmul_gflop_per_s": 455.2}, "fleets": [fleet]}
    entry |= {"versions": {"git_commit": "0123456789ab"}, "device": {"kind": HOSTILE}}
    path.write_text(json.dumps({command: entry}))
    return path


def build(root: pathlib.Path, date: str = "today") -> page.Page:
    """The page that lies beside the results."""
    return page.build([root], root.parent / "report.html", date=date, commit="abc")
