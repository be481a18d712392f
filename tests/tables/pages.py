"""Results with everything that a page shows, and with names that try to break out of it."""

import json
import pathlib
import zlib

from rcrl_jax.tables import page
from tests.tables import synthetic

HOSTILE = '<img src=x onerror="window.broken=1">&\'$\\frac{1}{2}$\u202e</script><b>'
SHOWN = HOSTILE.replace("\u202e", r"\u202e")
"""The same as a reader sees it: what reverses the direction of writing is replaced."""


def write_results(root: pathlib.Path) -> pathlib.Path:
    """Writes 12 comparable runs, one unfinished, one of DMControl, one with hostile names."""
    for number, preset in enumerate(("rcrl", "erainbow_sa")):
        for game in ("Alien", "Pong"):
            for seed in range(3):
                write_run(root, preset, game, seed, 10.0 + seed + 2 * number)
    write_run(root, "rcrl", "Pong", 9, None)
    synthetic.write_run(root, "state_sac", "cheetah_run", 0, 321.0)
    path = write_run(root, "curl", "Qbert", 0, 55.0) / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["run"]["config"]["augmentation"] = HOSTILE
    manifest["run"]["backend"] = HOSTILE
    manifest["device"] = {"kind": HOSTILE, "host_cores": HOSTILE}
    manifest["versions"] = {"git_commit": HOSTILE, HOSTILE: "\ud800"}
    path.write_text(json.dumps(manifest))
    return root


def write_run(root, preset, game, seed, score) -> pathlib.Path:
    """Writes a run of 100,000 steps with what return contrast records."""
    directory = synthetic.write_run(root, preset, game, seed, score, steps=100_000)
    lines = [
        {
            "agent_steps": step, "wall_s": 0.0, "cosine_positive": 0.9, "cosine_negative": None,
            "segment_length_p50": 20.0 + seed, "of": zlib.crc32(bytes(directory)),
        }
        for step in (1000, 2000)
    ]  # fmt: skip
    synthetic.write_lines(directory / "metrics.jsonl", lines)
    return directory


def build(root: pathlib.Path, date: str = "today") -> page.Page:
    """The page that lies beside the results."""
    return page.build([root], root.parent / "report.html", date=date, commit="abc")
