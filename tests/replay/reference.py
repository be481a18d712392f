"""A slow and obvious replay of one run, which the fast one must equal.

It keeps all episodes as plain lists, and a log of what each index of the ring holds. It answers
every question by walking through those lists.
"""

from typing import NamedTuple

import numpy as np

FRAME_SHAPE = (2, 2)
ZEROS = np.zeros(FRAME_SHAPE, np.uint8)


class Event(NamedTuple):
    """One scripted step of one run."""

    action: int
    reward: float
    terminated: bool = False
    truncated: bool = False


class Window(NamedTuple):
    """An n-step transition."""

    observation: np.ndarray  # [C, 2, 2]
    action: int
    reward: float
    discount: float
    next_observation: np.ndarray  # [C, 2, 2]


def frame_of(run: int, episode: int, time: int) -> np.ndarray:
    """A frame that no other (run, episode, time) has, and that is nowhere zero."""
    return np.array([[run + 1, episode + 1], [time + 1, 255]], np.uint8)


class ReferenceReplay:
    """One run's replay."""

    def __init__(self, run: int, capacity: int, frame_stack: int, n_step: int, discount: float):
        self.run = run
        self.capacity = capacity
        self.frame_stack = frame_stack
        self.n_step = n_step
        self.discount = discount
        self.episodes: list[list[Event]] = [[]]
        self.log: list[tuple[int, int]] = []  # (episode, time) whose frame each index holds
        self.priority: dict[int, float] = {}  # of every index that was ever ready
        self.max_priority = 1.0

    # --- what happens -------------------------------------------------------------------------

    def frames(self) -> tuple[np.ndarray, np.ndarray]:
        """The frame acted on next, and the one that will follow it."""
        episode, time = len(self.episodes) - 1, len(self.episodes[-1])
        return frame_of(self.run, episode, time), frame_of(self.run, episode, time + 1)

    def add(self, event: Event) -> None:
        episode, time = len(self.episodes) - 1, len(self.episodes[-1])
        self.episodes[episode].append(event)
        self.log.append((episode, time))
        if event.terminated or event.truncated:
            if not event.terminated:
                self.log.append((episode, time + 1))  # the frame to bootstrap from
            self.episodes.append([])
        for index in range(len(self.log)):
            if self.is_pair(index) and self.is_complete(index):
                self.priority.setdefault(index, self.max_priority)

    def update_priorities(self, indices, priorities) -> None:
        for index, priority in zip(indices, priorities, strict=True):
            if self.is_live(index):
                self.priority[index] = priority
            self.max_priority = max(self.max_priority, priority)

    def transition(self, index: int) -> Event:
        episode, time = self.log[index]
        return self.episodes[episode][time]

    # --- what may be sampled ------------------------------------------------------------------

    def is_pair(self, index: int) -> bool:
        """Not the final frame of a truncated episode."""
        episode, time = self.log[index]
        return time < len(self.episodes[episode])

    def is_live(self, index: int) -> bool:
        """The ring still holds the slots of a whole stack, also at the start of an episode."""
        return index >= len(self.log) - self.capacity + self.frame_stack - 1

    def is_complete(self, index: int) -> bool:
        """The replay holds the end of the window: the frame n steps later or the episode's end."""
        episode, time = self.log[index]
        is_over = episode < len(self.episodes) - 1
        return is_over or time + self.n_step <= len(self.episodes[episode]) - 1

    def pairs(self) -> list[int]:
        """Indices that may be a positive or a negative."""
        return [i for i in range(len(self.log)) if self.is_pair(i) and self.is_live(i)]

    def starts(self) -> list[int]:
        """Indices that may start a window or be an anchor."""
        return [i for i in self.pairs() if self.is_complete(i)]

    def segment(self, index: int) -> list[int]:
        """The live indices of one segment."""
        return [i for i in self.pairs() if self.segment_name(i) == self.segment_name(index)]

    def segment_name(self, index: int) -> tuple[int, int]:
        """(episode, how many segments closed in it before): a non-zero reward closes one."""
        episode, time = self.log[index]
        return episode, sum(event.reward != 0 for event in self.episodes[episode][:time])

    # --- what a sample looks like ---------------------------------------------------------------

    def observation(self, episode: int, time: int) -> np.ndarray:
        """The stack at a time of an episode, newest frame last."""
        times = range(time - self.frame_stack + 1, time + 1)
        return np.stack([frame_of(self.run, episode, t) if t >= 0 else ZEROS for t in times])

    def window(self, index: int) -> Window:
        episode, time = self.log[index]
        transitions = self.episodes[episode][time : time + self.n_step]
        reward = sum(self.discount**k * event.reward for k, event in enumerate(transitions))
        if transitions[-1].terminated:
            discount, next_observation = 0.0, np.stack([ZEROS] * self.frame_stack)
        else:
            discount = self.discount ** len(transitions)
            next_observation = self.observation(episode, time + len(transitions))
        return Window(
            self.observation(episode, time), transitions[0].action, reward, discount,
            next_observation,
        )  # fmt: skip

    def index_of(self, observations: np.ndarray) -> np.ndarray:
        """Indices `[N]` of observations `[N, C, 2, 2]`, whose frames must all be as expected."""
        by_name = {(e + 1, t + 1): i for i, (e, t) in enumerate(self.log) if self.is_pair(i)}
        names = observations[:, -1].reshape(len(observations), -1)[:, 1:3].tolist()
        indices = np.array([by_name[tuple(name)] for name in names])
        table = np.zeros((len(self.log), *observations.shape[1:]), np.uint8)
        for index in set(indices.tolist()):
            table[index] = self.observation(*self.log[index])
        np.testing.assert_array_equal(observations, table[indices])
        return indices
