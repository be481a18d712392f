"""A fake training program, `fake_fleet.py WORKDIR DESCRIPTION`, that starts fast and saves slowly.

It writes lines to `<WORKDIR>.history`: `core` and the cores it may use, `begin` and the step it
starts at, `saved` and the step, `finished`; and `overlap` if another process of the fleet runs.
"""

import fcntl
import json
import os
import pathlib
import signal
import sys
import time


def main(workdir: pathlib.Path, described: dict) -> None:
    stopped = []
    signal.signal(signal.SIGTERM, lambda signum, frame: stopped.append(signum))
    signal.signal(signal.SIGINT, lambda signum, frame: stopped.append(signum))
    history = open(f"{workdir}.history", "a", buffering=1)
    in_use = open(f"{workdir}.in_use", "w")
    try:
        fcntl.flock(in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("overlap", file=history)
        sys.exit(3)
    print("core", *sorted(os.sched_getaffinity(0)), "nice", os.nice(0), file=history)
    runs = described["runs"]
    checkpoint = workdir / "checkpoint"
    step = json.loads(checkpoint.read_text()) if checkpoint.exists() else 0
    print("begin", step, file=history)
    directories = [workdir / r["preset"] / r["game"] / f"seed_{r['seed']}" for r in runs]
    sections = dict.fromkeys(("environment", "protocol", "versions", "device"), {})
    sections["launch"] = {"runs": [[run["game"], run["seed"]] for run in runs]}
    for run, directory in zip(runs, directories, strict=True):
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "manifest.json").write_text(json.dumps({"run": run, **sections}))

    def save():
        partial = workdir / ".partial.checkpoint"
        partial.write_text(json.dumps(step))
        partial.rename(checkpoint)
        print("saved", step, file=history)

    metrics = [open(directory / "metrics.jsonl", "a", buffering=1) for directory in directories]
    while step < runs[0]["steps"] and not stopped:
        step += 1
        time.sleep(described["step_s"])
        for file in metrics:
            record = {"agent_steps": step, "wall_s": 0.1 * step, "steps_per_s": 10.0}
            file.write(json.dumps(record) + "\n")
        if described["save_every"] and step % described["save_every"] == 0:
            save()
    if stopped:
        time.sleep(0.2)
    save()
    if stopped:
        sys.exit(128 + stopped[0])
    for run, directory in zip(runs, directories, strict=True):
        for name in ("curve.png", "parameters.npz"):
            (directory / name).write_text(name)
        returns = {"returns": [1.0] * described["eval_episodes"], "mean": 1.0, "episodes_cut": 0}
        final = {"agent_steps": run["steps"], "env_steps": run["steps"], **returns}
        (directory / "evaluations.jsonl").write_text(json.dumps(final) + "\n")
        place = {name: run[name] for name in ("preset", "game", "seed")}
        scores = {**place, **final, "episodes": described["eval_episodes"]}
        (directory / "scores.json").write_text(json.dumps(scores))
    print("finished", file=history)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
