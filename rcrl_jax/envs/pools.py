"""Several vectors of environments as one, so that one loop can train on many games."""

import contextlib
import math
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from rcrl_jax.envs.protocol import (
    TimeStep,
    VectorEnvironment,
    after_reset,
    validate_actions,
    validate_mask,
)


def usable_cores(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Cores that this process may use: those it is bound to, or fewer in a container.

    A container's quota of CPU time is rounded up to whole cores.

    Args:
        root: where `proc` and `sys` are.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = bound or 1
    for group in control_groups("cpu", root):
        with contextlib.suppress(OSError, ValueError):  # no file, or "max"
            if (group / "cpu.max").exists():
                quota, period = map(int, (group / "cpu.max").read_text().split())
            else:
                quota, period = (
                    int((group / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period")
                )
            if quota > 0 and period > 0:  # -1: no limit
                cores = min(cores, math.ceil(quota / period))
    return cores


def control_groups(controller: str, root: pathlib.Path = pathlib.Path("/")) -> list[pathlib.Path]:
    """Folders of this process's control groups of a controller, and of the groups above them.

    Groups of version 1 lie below the controller's folder, those of version 2 below a common folder.
    A container may see its own group as the topmost one.

    Args:
        controller: `cpu` or `memory`.
        root: where `proc` and `sys` are.
    """
    folders = []
    with contextlib.suppress(OSError):  # no groups
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            top = root / "sys/fs/cgroup"
            if controller in controllers.split(","):
                top /= controller
            elif controllers:
                continue
            group = top / path.strip("/")
            folders += [group, *(above for above in group.parents if above.is_relative_to(top))]
    return folders


class ConcatenatedEnvironments(VectorEnvironment):
    """Vectors of environments joined along R, in the order given.

    All vectors are sent their actions before the first one is received, so they step together.
    `spec.max_num_actions` is the largest of all vectors. An action must still be below the
    `num_valid_actions` of its environment.
    """

    def __init__(self, environments: Sequence[VectorEnvironment]):
        """Joins at least one vector.

        Args:
            environments: they may differ in game, backend, size and number of discrete actions.
        """
        specs = [environment.spec for environment in environments]
        self.spec = max(specs, key=lambda spec: spec.max_num_actions)
        self._environments = tuple(environments)
        sizes = [environment.num_envs for environment in environments]
        # Where to split an array [R, ...] into one for each vector.
        self._cuts = np.cumsum(sizes)[:-1]
        self.num_envs = sum(sizes)
        self.num_valid_actions = np.concatenate(
            [environment.num_valid_actions for environment in environments]
        )
        self.description = {
            "pools": [
                {**environment.description, "num_envs": environment.num_envs}
                for environment in environments
            ]
        }
        self._last: TimeStep | None = None
        # For each vector: the step that is repeated once all its environments are retired.
        self._standing: list[TimeStep | None] = [None] * len(sizes)

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        frame, lives = [], []
        for environment, part in zip(self._environments, np.split(mask, self._cuts), strict=True):
            if part.any():
                first = environment.reset(part)
                frame.append(first.frame[part])
                lives.append(first.lives[part])
        self._last = after_reset(self._last, mask, np.concatenate(frame), np.concatenate(lives))
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.spec, self.num_valid_actions)
        parts = np.split(actions, self._cuts)
        for environment, part, stands in zip(
            self._environments, parts, self._standing, strict=True
        ):
            if stands is None:
                environment.send(part)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        steps = [
            stands or environment.recv()
            for environment, stands in zip(self._environments, self._standing, strict=True)
        ]
        if any(step.failed is not None for step in steps):
            never = [step._replace(failed=np.zeros_like(step.truncated)) for step in steps]
            pairs = zip(steps, never, strict=True)
            steps = [other if step.failed is None else step for step, other in pairs]
        parts = zip(*steps, strict=True)
        self._last = TimeStep(*(None if own[0] is None else np.concatenate(own) for own in parts))
        return self._last

    def retire(self, mask: np.ndarray) -> None:
        """See `VectorEnvironment.retire`. A vector stands still once all its games are retired."""
        arrays = mask, self._last.frame, self._last.lives
        parts = zip(*(np.split(array, self._cuts) for array in arrays), strict=True)
        # A time step as after a reset: without reward or end.
        self._standing = [
            after_reset(None, part, frame, lives) if part.all() else None
            for part, frame, lives in parts
        ]

    def shows(self, row: int) -> Callable[[], VectorEnvironment] | None:
        """See `VectorEnvironment.shows`."""
        place = int(np.searchsorted(self._cuts, row, side="right"))
        return self._environments[place].shows(row - [0, *self._cuts][place])

    def close(self) -> None:
        """Ends all environments and their threads."""
        for environment in self._environments:
            environment.close()


def describe_one(environment: Mapping[str, Any], run: int) -> dict[str, Any]:
    """The description of one run's environment: that of its pool, and what all pools share.

    Args:
        environment: description of environments, concatenated or not.
        run: place of the run among them.
    """
    common = {name: value for name, value in environment.items() if name != "pools"}
    for pool in environment.get("pools", ()):
        if run < pool["num_envs"]:
            own = {name: value for name, value in pool.items() if name != "num_envs"}
            return {**own, **common}
        run -= pool["num_envs"]
    return common
