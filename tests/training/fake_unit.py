"""A fake training program, `fake_unit.py WORKDIR DESCRIPTION`, that starts fast and saves slowly.

It writes lines to `<WORKDIR>.history`: `core` and the cores it may use, `begin` and the step it
starts at, `saved` and the step, `finished`; and `overlap` if another process of the unit runs.
"""

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
    in_use = pathlib.Path(f"{workdir}.in_use")
    try:
        in_use.touch(exist_ok=False)
    except FileExistsError:
        print("overlap", file=history)
        sys.exit(3)
    print("core", *sorted(os.sched_getaffinity(0)), "nice", os.nice(0), file=history)
    saved = workdir / "checkpoint"
    step = int(saved.read_text()) if saved.exists() else 0
    print("begin", step, file=history)
    run = described["run"]
    directory = workdir / run["preset"] / run["game"] / f"seed_{run['seed']}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "manifest.json").write_text(json.dumps({"run": run}))
    with open(directory / "metrics.jsonl", "a", buffering=1) as metrics:
        while step < run["steps"] and not stopped:
            step += 1
            time.sleep(described["step_s"])
            record = {"agent_steps": step, "wall_s": 0.1 * step, "steps_per_s": 10.0}
            metrics.write(json.dumps(record) + "\n")
    if stopped:
        time.sleep(0.2)
    saved.write_text(str(step))
    print("saved", step, file=history)
    if stopped:
        in_use.unlink()
        sys.exit(128 + stopped[0])
    for name in ("evaluations.jsonl", "curve.png"):
        (directory / name).write_text(name)
    scores = {"returns": [1.0] * described["eval_episodes"]}
    (directory / "scores.json").write_text(json.dumps(scores))
    print("finished", file=history)
    in_use.unlink()


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), json.loads(sys.argv[2]))
