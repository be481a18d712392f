"""The work directory of an experiment: which runs it belongs to, and the space on its disk."""

import errno
import pathlib
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from rcrl_jax import files
from rcrl_jax.agents.agent import Agent
from rcrl_jax.training import manifest, records
from rcrl_jax.training.plan import Plan
from rcrl_jax.training.run_paths import RunPaths


def claim(
    plan: Plan, agent: Agent, environment: Mapping[str, Any], say: Callable[[str], None]
) -> None:
    """Writes the manifests, or checks that existing ones describe the same runs.

    A work directory's checkpoints belong to one fleet, so all of its runs are there, or none. Every
    manifest lists the runs in their order in the checkpoints.

    Args:
      plan: the experiment.
      agent: of its fleet.
      environment: description of the environments of all runs.
      say: prints a warning for the user.

    Raises:
      WorkdirMismatch: the work directory belongs to other runs.
      OSError: it cannot be written.
    """
    paths = plan.paths
    others = set(plan.workdir.glob("*/*/seed_*/manifest.json")) - {p.manifest for p in paths}
    missing = {p.manifest for p in paths if not p.manifest.exists()}
    if others or (missing and paths[0].checkpoints.exists()):
        run = min(others or missing).parent.relative_to(plan.workdir)
        belongs = f"to {run} as well" if others else f"to other runs than {run}"
        raise manifest.WorkdirMismatch(
            f"{plan.workdir} belongs {belongs}; choose another --workdir or repeat the old command"
        )
    order = [list(run_id) for run_id in plan.runs]
    for r, (run_paths, run_id) in enumerate(zip(paths, plan.runs, strict=True)):
        own_environment = own_part(environment, r)
        described = manifest.make_manifest(
            manifest.describe_run(
                plan.preset,
                plan.config,
                run_id.game,
                run_id.seed,
                plan.total_steps,
                own_environment["backend"],
            ),
            environment=own_environment,
            protocol={
                "score": "the agent at the last step",
                "final_episodes": plan.eval_episodes,
                "periodic_episodes": agent.evaluation.episodes,
                **agent.evaluation.protocol,
                "environment_seeds": "own seeds, from (seed, purpose, agent_steps)",
            },
        )
        described["launch"]["runs"] = order
        warning = manifest.check_same_run(run_paths.manifest, described)
        if warning:
            say(f"warning: {warning}")
        if run_paths.manifest.exists():
            if manifest.read(run_paths.manifest)["launch"].get("runs", order) != order:
                raise manifest.WorkdirMismatch(
                    f"{plan.workdir} holds these runs in another order: repeat the old command"
                )
        else:
            run_paths.directory.mkdir(parents=True, exist_ok=True)
            files.write_json_atomically(run_paths.manifest, described)


def own_part(environment: Mapping[str, Any], run: int) -> dict[str, Any]:
    """The description of one run's environment: that of its own pool, and what all pools share.

    Args:
      environment: description of a fleet's training environments.
      run: place of the run in the fleet.
    """
    common = {name: value for name, value in environment.items() if name != "pools"}
    for pool in environment.get("pools", ()):
        if run < pool["num_envs"]:
            own = {name: value for name, value in pool.items() if name != "num_envs"}
            return {**own, **common}
        run -= pool["num_envs"]
    return common


def is_finished(plan: Plan) -> bool:
    """Whether every run has the scores that the plan asks for, and the video if it wants one.

    Raises:
      Damaged: a scores.json does not hold scores.
      OSError: it cannot be read.
    """
    if plan.film and not plan.paths[0].video.exists():
        return False
    return all(
        paths.scores.exists() and len(final_returns(paths)) == plan.eval_episodes
        for paths in plan.paths
    )


def check_files(plan: Plan) -> None:
    """Reads the records of an unfinished plan, before anything that takes long is built.

    Raises:
      Damaged: a line is not a record, or the checkpoints are no directory.
      OSError: a file cannot be read.
    """
    checkpoints = plan.paths[0].checkpoints
    if checkpoints.exists() and not checkpoints.is_dir():
        raise files.Damaged(checkpoints, "it is not a directory")
    for paths in plan.paths:
        if paths.metrics.exists():
            records.read_metrics(paths.metrics)
        if paths.evaluations.exists():
            records.read_evaluations(paths.evaluations)


def final_returns(paths: RunPaths) -> list[float]:
    """The returns of a finished run's final evaluation.

    Raises:
      Damaged: scores.json does not hold them.
      OSError: it cannot be read.
    """

    def returns_of(scores: dict[str, Any]) -> list[float]:
        returns = scores["returns"]
        if not isinstance(returns, list) or not returns or not all(map(files.is_number, returns)):
            raise ValueError("it does not hold the returns of a final evaluation")
        return returns

    return files.read_json(paths.scores, returns_of)


def check_space(workdir: pathlib.Path, needed: int) -> None:
    """Raises OSError if the disk of `workdir` has fewer than `needed` bytes free."""
    free = free_bytes(workdir)
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"no space left: {free >> 20} MB free, {needed >> 20} MB needed",
            str(workdir),
        )


def free_bytes(path: pathlib.Path) -> int:
    """Free space on the disk that holds, or will hold, `path`."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free
