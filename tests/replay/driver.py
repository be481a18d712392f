"""Plays scripted events into a fleet's replay and into one reference replay a run."""

import numpy as np

from rcrl_jax import observations
from rcrl_jax.replay import frames, segments
from rcrl_jax.replay.segment_replay import ContrastRule, SegmentReplay
from tests.replay.reference import FRAME_SHAPE, Event, ReferenceReplay

DISCOUNT = 0.9
# Tiny frames, stored as they are; stacks are [C, 2, 2].
TINY = observations.Layout(lambda frame: frame, FRAME_SHAPE, stack_axis=-3)


class Pair:
    """The replay under test beside its references."""

    def __init__(
        self,
        num_runs=1,
        *,
        capacity,
        frame_stack=2,
        n_step=3,
        seeds=None,
        exponent=0.5,
        contrast=None,
        closes_segment=segments.closes_at_reward,
    ):
        self.fast = SegmentReplay(
            frames.HostFrameStore(num_runs, capacity, TINY),
            np.arange(num_runs) if seeds is None else np.asarray(seeds),
            capacity=capacity,
            closes_segment=closes_segment,
            frame_stack=frame_stack,
            n_step=n_step,
            discount=DISCOUNT,
            priority_exponent=exponent,
            contrast=contrast or ContrastRule(),
        )
        self.capacity = capacity
        self.exponent = exponent
        self.slow = [
            ReferenceReplay(run, capacity, frame_stack, n_step, DISCOUNT) for run in range(num_runs)
        ]

    def add(self, events: list[Event]) -> None:
        """One step of every run."""
        frame, next_frame = (
            np.stack(f) for f in zip(*(s.frames() for s in self.slow), strict=True)
        )
        self.fast.add(
            frame,
            np.array([e.action for e in events], np.int32),
            np.array([e.reward for e in events], np.float32),
            np.array([e.terminated for e in events]),
            np.array([e.truncated for e in events]),
            next_frame,
        )
        for reference, event in zip(self.slow, events, strict=True):
            reference.add(event)

    def update_priorities(self, index: np.ndarray, transition_loss: np.ndarray) -> None:
        self.fast.update_priorities(index, transition_loss)
        for reference, i, c in zip(self.slow, index, transition_loss, strict=True):
            reference.update_priorities(i.tolist(), (c.astype(float) ** self.exponent).tolist())

    @property
    def can_sample(self) -> bool:
        return all(reference.starts() for reference in self.slow)


def pattern(text: str) -> list[Event]:
    """Events from letters: `.` no reward, `+` and `-` rewards, `T` terminated, `C` truncated.

    `P` is terminated with a reward, `B` terminated and truncated at once. Blanks mean nothing.
    """
    kinds = {
        ".": (0.0, False, False),
        "+": (1.0, False, False),
        "-": (-1.0, False, False),
        "T": (0.0, True, False),
        "P": (1.0, True, False),
        "C": (0.0, False, True),
        "B": (0.0, True, True),
    }
    return [Event(i % 5, *kinds[c]) for i, c in enumerate(text.replace(" ", ""))]
