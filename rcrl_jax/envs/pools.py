"""Several vectors of environments as one, so that one loop can train on many games."""

from collections.abc import Sequence

import numpy as np

from rcrl_jax.envs.protocol import (
    EnvironmentSpec,
    TimeStep,
    VectorEnvironment,
    after_reset,
    validate_actions,
    validate_mask,
)


class _ConcatenatedEnvironments(VectorEnvironment):
    """See `concatenate`."""

    def __init__(self, environments: Sequence[VectorEnvironment]):
        shapes = {environment.spec.frame_shape for environment in environments}
        if len(shapes) != 1:
            raise ValueError(f"environments to join must share one frame shape, got {shapes}")
        self._environments = tuple(environments)
        sizes = [environment.num_envs for environment in environments]
        # Where to cut an array [R, ...] into those of the vectors.
        self._cuts = np.cumsum(sizes)[:-1]
        self.num_envs = sum(sizes)
        self.num_actions_per_env = np.concatenate(
            [environment.num_actions_per_env for environment in environments]
        )
        self.spec = EnvironmentSpec(shapes.pop(), int(self.num_actions_per_env.max()))
        self.description = {
            "pools": [
                {**environment.description, "num_envs": environment.num_envs}
                for environment in environments
            ]
        }
        self._last: TimeStep | None = None

    def reset(self, mask: np.ndarray | None = None) -> TimeStep:
        """See `VectorEnvironment.reset`."""
        mask = validate_mask(mask, self.num_envs, first=self._last is None)
        frame, lives = [], []
        for environment, own in zip(self._environments, np.split(mask, self._cuts), strict=True):
            if own.any():
                first = environment.reset(own)
                frame.append(first.frame[own])
                lives.append(first.lives[own])
        self._last = after_reset(self._last, mask, np.concatenate(frame), np.concatenate(lives))
        return self._last

    def send(self, actions: np.ndarray) -> None:
        """See `VectorEnvironment.send`."""
        validate_actions(actions, self.num_actions_per_env)
        for environment, own in zip(self._environments, np.split(actions, self._cuts), strict=True):
            environment.send(own)

    def recv(self) -> TimeStep:
        """See `VectorEnvironment.recv`."""
        steps = [environment.recv() for environment in self._environments]
        self._last = TimeStep(*map(np.concatenate, zip(*steps, strict=True)))
        return self._last

    def close(self) -> None:
        """Ends all environments and their threads."""
        for environment in self._environments:
            environment.close()


def concatenate(environments: Sequence[VectorEnvironment]) -> VectorEnvironment:
    """Joins vectors of environments along R, in the order given.

    All vectors are sent their actions before the first one is received, so they step together.
    `spec.num_actions` is the largest of them: an action must still be below the
    `num_actions_per_env` of its own environment.

    Args:
        environments: at least one vector; they may differ in game, backend and size.

    Raises:
        ValueError: there are no environments, or their frame shapes differ.
    """
    return _ConcatenatedEnvironments(environments)
