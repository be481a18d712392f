"""Plays scripted events into a fleet's replay and into one reference replay a run."""

import dataclasses

import jax
import numpy as np

from rcrl_jax.observations import FrameLayout, ObservationFormat
from rcrl_jax.replay import frames
from rcrl_jax.replay.segment_replay import Sample, SegmentReplay
from rcrl_jax.replay.settings import ContrastRule, ReplaySettings
from tests.replay.reference import FRAME_SHAPE, Event, ReferenceReplay

DISCOUNT = 0.9
# Tiny frames, stored as they are; stacks are [C, 2, 2].
TINY = FrameLayout(lambda frame: frame, FRAME_SHAPE, stack_axis=-3)
DISCRETE = jax.ShapeDtypeStruct((), np.int32)


def make_settings(**changes) -> ReplaySettings:
    """Settings of a small replay."""
    defaults = {
        "capacity": 40,
        "n_step": 3,
        "discount": DISCOUNT,
        "priority_exponent": 0.5,
        "contrast_rule": ContrastRule(),
        "batch_size": 8,
        "importance_exponent": 0.4,
    }
    return ReplaySettings(**(defaults | changes))


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
        **changes,
    ):
        self.fast = SegmentReplay(
            frames.HostFrameStore(num_runs, capacity, TINY),
            np.arange(num_runs) if seeds is None else np.asarray(seeds),
            make_settings(capacity=capacity, n_step=n_step, priority_exponent=exponent, **changes),
            ObservationFormat.uniform(frame_stack, TINY),
            DISCRETE,
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

    def sample(self, batch_size: int, num_anchors: int, beta: float) -> Sample:
        """A sample of any size, whatever the sizes of the settings."""
        settings = self.fast.settings
        self.fast.settings = dataclasses.replace(
            settings,
            batch_size=batch_size,
            contrast_rule=settings.contrast_rule._replace(number=num_anchors),
        )
        return self.fast.sample(beta)

    def update_priorities(self, index: np.ndarray, transition_loss: np.ndarray) -> None:
        self.fast.update_priorities(index, transition_loss)
        for reference, i, c in zip(self.slow, index, transition_loss, strict=True):
            reference.update_priorities(i.tolist(), (c.astype(float) ** self.exponent).tolist())

    @property
    def can_sample(self) -> bool:
        return all(reference.starts() for reference in self.slow)


def pattern(text: str) -> list[Event]:
    """Events from letters: `.` no reward, `+` and `-` rewards, `T` terminated, `C` truncated.

    `P` is terminated with a reward, `B` terminated and truncated at once. Blanks are ignored.
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
