"""Calls `make` as a user does, below another make too."""

import os
import pathlib
import subprocess

ROOT = pathlib.Path(__file__).parents[1]


def start(*arguments: str, directory: os.PathLike = ROOT) -> subprocess.CompletedProcess:
    """Runs `make`, without the settings of the make or the shell that runs the tests."""
    alone = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return subprocess.run(
        ["make", *arguments], cwd=directory, env=alone, capture_output=True, text=True
    )


def would_do(*arguments: str) -> str:
    """The commands of `make` in this repository, none of which it runs."""
    ended = start("--dry-run", *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
