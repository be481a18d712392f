r"""Kills and damages trainings, resumes them, and compares what they leave with undisturbed ones.

    python -m benchmarks.kill_campaign --kills=50

Three parts, on runs of Catch that take seconds:

* Processes are killed with SIGKILL and started again: a fifth of them while they start, two fifths
  at a random step, two fifths while they write a checkpoint. Every run must end like one that
  nobody disturbed: scores, evaluations, metrics and the whole last checkpoint, bit for bit.
* Files of a work directory are damaged (`damage_trials.py`). Then the program must either end like
  an undisturbed one, or say no in one line that names the file.
* Single bits of a checkpoint are flipped. Each must be noticed.

It writes kill_campaign.md and kill_campaign.json, and ends with 1 if anything is not as it must be.
"""

import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from absl import app, flags

from benchmarks import damage_trials, tiny_runs
from experiments import command_line, launch
from rcrl_jax import files
from rcrl_jax.training import checkpoint, experiment, manifest, records

KILLS_A_RUN = 10
SLOWEST_NO_S = 10.0
_START_S = 4.0  # imports and compilation

Say = Callable[[str], None]


class Ended(NamedTuple):
    """How a process ended."""

    code: int
    said: list[str]  # lines of standard output that warn, and of standard error but the progress
    seconds: float
    has_traceback: bool


def train(directory: pathlib.Path) -> None:
    """Trains in this process, as a program does."""
    with launch.ending_cleanly():
        experiment.run(tiny_runs.make_plan(directory))


def start(directory: pathlib.Path) -> subprocess.Popen:
    """Starts a process that trains; all share compiled programs, beside `directory`."""
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(directory.parent / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.2",
        **os.environ,
        "JAX_PLATFORMS": "cpu",
    }
    command = [sys.executable, "-m", "benchmarks.kill_campaign", f"--train={directory}"]
    return subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def finish(process: subprocess.Popen, since_s: float) -> Ended:
    """Waits until a process has ended."""
    out, error = process.communicate()
    said = [line for line in out.splitlines() if line.startswith("warning: ")]
    said += [line for line in error.splitlines() if line and " steps, " not in line]
    return Ended(process.returncode, said, time.monotonic() - since_s, "Traceback" in error)


def make_reference(directory: pathlib.Path) -> float:
    """Trains undisturbed, twice; returns the seconds of the second, which compiles less.

    Raises:
      ValueError: it failed, or the two differ.
    """
    for workdir in (directory / "first", directory / "reference"):
        ended = finish(start(workdir), time.monotonic())
        if ended.code:
            raise ValueError(f"an undisturbed run failed: {' '.join(ended.said)}")
    if different := tiny_runs.difference(directory / "first", directory / "reference"):
        raise ValueError(f"two undisturbed runs differ in {different}")
    return ended.seconds


def kill_runs(
    directory: pathlib.Path, kills: int, rng: random.Random, say: Say
) -> list[dict[str, Any]]:
    """Kills and resumes runs until `kills` processes were killed; returns a row for each run."""
    rows: list[dict[str, Any]] = []
    while (left := kills - sum(len(row["killed_at_step"]) for row in rows)) > 0:
        workdir = directory / f"killed_{len(rows)}"
        steps, in_checkpoint = [], 0
        for _ in range(min(left, KILLS_A_RUN)):
            process = start(workdir)
            _wait_for_moment(process, workdir, rng)
            process.kill()
            process.communicate()
            if process.returncode == 0:  # it was faster
                break
            steps.append(_last_step(workdir))
            in_checkpoint += _is_saving(workdir)
        ended = finish(start(workdir), time.monotonic())
        different = (
            ended.said[-1] if ended.code else tiny_runs.difference(workdir, directory / "reference")
        )
        if steps:
            rows.append(
                {
                    "killed_at_step": steps,
                    "killed_amid_a_checkpoint": in_checkpoint,
                    "exit_code": ended.code,
                    "different": different,
                }
            )
            say(f"run {len(rows)}: killed at steps {steps}: {different or 'as undisturbed'}")
        shutil.rmtree(workdir)
    return rows


def _wait_for_moment(process, workdir: pathlib.Path, rng: random.Random) -> None:
    """Waits for a random moment: of the start, of a random step, or amid a checkpoint."""
    kind = rng.choice(("start", "step", "step", "checkpoint", "checkpoint"))
    last = _last_step(workdir)
    if kind == "start" or last == tiny_runs.STEPS:  # trained, but not evaluated
        time.sleep(rng.uniform(0, _START_S))
        return
    step = rng.randint(last, tiny_runs.STEPS - 1)
    while process.poll() is None:
        if _is_saving(workdir) if kind == "checkpoint" else _last_step(workdir) > step:
            time.sleep(rng.uniform(0, 0.03))
            if kind == "step" or rng.random() < 0.5:  # else amid a later checkpoint
                return
        time.sleep(0.001)


def _is_saving(workdir: pathlib.Path) -> bool:
    return any(tiny_runs.paths_of(workdir).checkpoints.glob("*.partial*"))


def _last_step(workdir: pathlib.Path) -> int:
    metrics = tiny_runs.paths_of(workdir).metrics
    lines = records.read_metrics(metrics) if metrics.exists() else []
    return lines[-1]["agent_steps"] if lines else 0


def damage(directory: pathlib.Path, say: Say) -> list[dict[str, Any]]:
    """Carries out every trial of `damage_trials`; returns a row for each."""
    half = directory / "half"
    process = start(half)
    while not (tiny_runs.paths_of(half).checkpoints / str(tiny_runs.STEPS * 5 // 8)).exists():
        if process.poll() is not None:
            raise ValueError(f"a run failed: {process.communicate()[1]}")
        time.sleep(0.001)
    process.kill()
    process.communicate()
    rows = []
    for trial in damage_trials.TRIALS:
        workdir = directory / "W"
        shutil.copytree(directory / "reference" if trial.is_finished else half, workdir)
        trial.damage(tiny_runs.paths_of(workdir))
        ended = finish(start(workdir), time.monotonic())
        said = [line.replace(str(workdir), "W") for line in ended.said]
        verdict = judge(trial, ended._replace(said=said))
        if trial.goes_on and verdict == "":
            verdict = tiny_runs.difference(
                workdir, directory / "reference", not trial.loses_metrics
            )
        rows.append({**_row(trial, ended), "said": said, "wrong": verdict})
        say(f"{trial.what}: {verdict or 'as it must be'} ({ended.seconds:.1f} s)")
        shutil.rmtree(workdir)
    return rows


def _row(trial: damage_trials.Trial, ended: Ended) -> dict[str, Any]:
    return {"damaged": trial.what, "exit_code": ended.code, "seconds": round(ended.seconds, 1)}


def judge(trial: damage_trials.Trial, ended: Ended) -> str:
    """What is wrong with how the program has ended after a trial, or ""."""
    if ended.has_traceback:
        return "a traceback"
    if trial.goes_on:
        return "" if ended.code == 0 else f"exit code {ended.code}, expected 0"
    if ended.code != command_line.USAGE_ERROR:
        return f"exit code {ended.code}, expected {command_line.USAGE_ERROR}"
    errors = [line for line in ended.said if not line.startswith("warning: ")]
    if len(errors) != 1:
        return f"{len(errors)} lines, expected 1"
    if not re.match(r"error: .*\bW/", errors[0]):
        return "the file is not named"
    return "" if ended.seconds <= SLOWEST_NO_S else f"more than {SLOWEST_NO_S:.0f} s"


def flip_bits(directory: pathlib.Path, flips: int, rng: random.Random) -> dict[str, int]:
    """Flips single bits of a checkpoint; returns how many were noticed."""
    like = tiny_runs.checkpoint_like(directory)
    whole, copy = (
        tiny_runs.paths_of(directory / "reference").checkpoints / str(tiny_runs.STEPS),
        directory / str(tiny_runs.STEPS),
    )
    noticed = 0
    for _ in range(flips):
        shutil.copytree(whole, copy)
        damage_trials.flip_random_bit(copy, rng)
        try:
            checkpoint.read_checkpoint(copy, like)
        except files.Damaged:
            noticed += 1
        shutil.rmtree(copy)
    return {"flipped": flips, "noticed": noticed}


def describe(kills: list[dict], trials: list[dict], flips: dict[str, int]) -> str:
    """The results as Markdown."""
    killed = sum(len(row["killed_at_step"]) for row in kills)
    amid = sum(row["killed_amid_a_checkpoint"] for row in kills)
    equal = sum(not row["different"] for row in kills)
    right = sum(not row["wrong"] for row in trials)
    lines = [
        f"* **Kills**: {killed} processes killed, {amid} of them amid a checkpoint; {equal} of "
        f"{len(kills)} runs ended bit for bit as undisturbed.",
        f"* **Damage**: {right} of {len(trials)} trials ended as they must.",
        f"* **Flipped bits of a checkpoint**: {flips['noticed']} of {flips['flipped']} noticed.",
        "",
        "| damaged | what the program said | exit code | seconds | verdict |",
        "| --- | --- | --- | --- | --- |",
    ]
    for row in trials:
        said = "<br>".join(line.replace("|", "\\|") for line in row["said"])
        cells = (row["damaged"], said, row["exit_code"], row["seconds"], row["wrong"] or "right")
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_integer("kills", 50, "processes to kill", lower_bound=1)
    flags.DEFINE_integer("flips", 220, "bits of a checkpoint to flip, one at a time", lower_bound=0)
    flags.DEFINE_integer("random_seed", 0, "of the random moments and bits", lower_bound=0)
    flags.DEFINE_string("output", "results/kill_campaign", "directory of the results")
    flags.DEFINE_string("train", None, "train in this directory, as the processes do that it kills")


def _say(line: str) -> None:
    print(line, flush=True)


def main(argv: list[str]) -> None:
    """Carries out the campaign, prints and writes its results."""
    del argv
    if flags.FLAGS.train is not None:
        train(pathlib.Path(flags.FLAGS.train))
        return
    output = pathlib.Path(flags.FLAGS.output)
    try:
        files.make_writable(output)
    except OSError as error:
        command_line.refuse(f"--output: {error.strerror}: {output}")
    seed, began_s = flags.FLAGS.random_seed, time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        try:
            life_s = make_reference(directory)
            kills = kill_runs(directory, flags.FLAGS.kills, random.Random(seed), _say)
            trials = damage(directory, _say)
        except ValueError as error:
            command_line.refuse(str(error))
        flips = flip_bits(directory, flags.FLAGS.flips, random.Random(seed))
    text = describe(kills, trials, flips)
    print(text)
    with files.replacing(output / "kill_campaign.md") as partial:
        partial.write_text(text, encoding="utf-8")
    files.write_json_atomically(
        output / "kill_campaign.json",
        {
            "seed": seed,
            "seconds_of_an_undisturbed_run": life_s,
            "seconds": time.monotonic() - began_s,
            "kills": kills,
            "damage": trials,
            "flipped_bits": flips,
            **manifest.circumstances(),
        },
    )
    wrong = any(row["different"] for row in kills) or any(row["wrong"] for row in trials)
    sys.exit(1 if wrong or flips["noticed"] < flips["flipped"] else 0)


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=command_line.parse)
