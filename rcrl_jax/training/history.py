"""The log of actions, from which the emulators and the replay can be rebuilt.

Equal seeds and equal actions give equal frames. So a checkpoint keeps actions instead of frames:
one byte per step on Atari, a short vector on DMControl. A checksum of the frames that followed the
actions shows whether the rebuilt frames are the same.
"""

import numpy as np

from rcrl_jax import counter_random, types


class History:
    """Actions taken so far, and a checksum over every frame that followed them."""

    def __init__(self, num_runs: int, total_steps: int, action_shape: tuple[int, ...] = ()) -> None:
        """Makes an empty log with room for `total_steps`.

        Args:
          num_runs: R.
          total_steps: steps of a run.
          action_shape: of one action; `()` for discrete actions, which must be below 256.
        """
        dtype = np.float32 if action_shape else np.uint8
        self._actions = np.zeros((num_runs, total_steps, *action_shape), dtype)
        self._checksum = np.zeros(num_runs, np.uint64)
        self._step = 0

    def add(self, actions: np.ndarray, frames: np.ndarray) -> None:
        """Logs `actions [R, *act]` and the `frames [R, *frame_shape]` that followed."""
        self._actions[:, self._step] = actions
        self._checksum = _chain(self._checksum, frames)
        self._step += 1

    def newest(self, count: int) -> np.ndarray:
        """The last `count` actions of each run, or all if there are fewer: `[R, steps, *act]`."""
        return self._actions[:, max(self._step - count, 0) : self._step]

    @property
    def checksum(self) -> np.ndarray:
        """`[R] uint64`; depends on every byte of every frame and on their order."""
        return self._checksum

    @property
    def state(self) -> types.HistoryState:
        """A copy for a checkpoint."""
        return types.HistoryState(self._actions.copy(), self._checksum.copy())


def _chain(checksum: np.ndarray, frames: np.ndarray) -> np.ndarray:
    """The next link `[R]` of a hash modulo 2^64 over `frames [R, ...]`."""
    octets = frames.reshape(len(frames), -1).view(np.uint8)
    if rest := -octets.shape[1] % 8:
        octets = np.pad(octets, ((0, 0), (0, rest)))
    words = octets.view(np.uint64)  # 84 * 84 bytes are 882 words
    position = np.arange(words.shape[1], dtype=np.uint64) * counter_random.GOLDEN
    with np.errstate(over="ignore"):
        # Mixed before they are summed: a plain weighted sum misses exchanged words.
        digest = counter_random.mix(words + position).sum(axis=1)
        return counter_random.mix(checksum * np.uint64(0x100000001B3) + digest)
