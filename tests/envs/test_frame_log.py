"""The log of frames: records that come back, what is refused, and environments that read it."""

import resource
import signal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rcrl_jax import files
from rcrl_jax.envs.frame_log import FrameLog, LoggedEnvironment, LoggedStep, NotRepeated, StepLog
from tests.training import toy_control

contents = st.lists(st.binary(max_size=40), min_size=1, max_size=8)


def write(path, records) -> list[int]:
    """Writes a log; returns its size after each record."""
    log = FrameLog(path, 0)
    sizes = []
    for record in records:
        log.append(np.frombuffer(record, np.uint8))
        sizes.append(log.sync())
    log.close()
    return sizes


@settings(max_examples=30)
@given(records=contents, data=st.data())
def test_records_up_to_a_size_come_back_and_new_ones_follow(tmp_path_factory, records, data):
    path = tmp_path_factory.mktemp("log") / "frames.log"
    sizes = write(path, records)
    kept = data.draw(st.integers(1, len(records)))
    log = FrameLog(path, sizes[kept - 1])
    found = []
    while log.unread:
        found.append(log.read().tobytes())
    assert found == records[:kept]
    for record in records[kept:]:
        log.append(np.frombuffer(record, np.uint8))
    assert log.sync() == sizes[-1]
    log.close()


@settings(max_examples=60)
@given(records=contents, data=st.data())
def test_any_flipped_bit_of_the_part_that_is_read_is_noticed(tmp_path_factory, records, data):
    path = tmp_path_factory.mktemp("log") / "frames.log"
    size = write(path, records)[-1]
    octets = bytearray(path.read_bytes())
    octets[data.draw(st.integers(0, size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(octets)
    with pytest.raises(files.Damaged, match=r"frames\.log is damaged"):
        FrameLog(path, size)


@pytest.mark.parametrize("zeros", [8, 800])
def test_zeros_are_no_records(tmp_path, zeros):
    """Lost blocks of a file read as zeros; the CRC-32 of nothing is 0."""
    path = tmp_path / "frames.log"
    size = write(path, [b"one"])[-1]
    path.write_bytes(path.read_bytes() + bytes(zeros))
    with pytest.raises(files.Damaged, match="has changed"):
        FrameLog(path, size + zeros)


def test_a_full_disk_is_reported_with_the_file_also_when_it_is_closed(tmp_path):
    log = FrameLog(tmp_path / "frames.log", 0)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        log.append(np.random.default_rng(0).integers(0, 256, 1000, np.uint8))
        for call in (log.sync, log.close):
            with pytest.raises(OSError, match="frames.log") as full:
                call()
            assert full.value.filename is not None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_log_that_is_too_short_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "frames.log"
    sizes = write(path, [b"one", b"two"])
    before = path.read_bytes()
    with pytest.raises(files.Damaged, match=f"ends after {sizes[1]} of {sizes[1] + 5} bytes"):
        FrameLog(path, sizes[1] + 5)
    with pytest.raises(files.Damaged, match="has changed"):
        FrameLog(path, sizes[1] - 1)
    with pytest.raises(files.Damaged, match="it is missing"):
        FrameLog(tmp_path / "nothing.log", 1)
    assert path.read_bytes() == before


class Blind(toy_control.Reach):
    """Shows noise while frames are not wanted."""

    def _frame(self):
        frame = super()._frame()
        return (
            frame
            if self.renders
            else np.random.default_rng().permutation(frame.ravel()).reshape(frame.shape)
        )


class Failing(Blind):
    """Has no valid next state in the sixth step of every other episode."""

    def send(self, actions):
        before = self._last.frame
        super().send(actions)
        failed = (self._time == 6) & (self._episodes % 2 == 0)
        frame = np.where(failed[:, None, None, None], before, self._last.frame)
        truncated = self._last.truncated | failed
        self._last = self._last._replace(frame=frame, truncated=truncated, failed=failed)


def play(environment, num_steps):
    """All time steps; environments restart where they end, the second one once more alone."""
    seen = [environment.reset()]
    for t in range(num_steps):
        actions = np.zeros((2, toy_control.MAX_NUM_ACTIONS), np.float32)
        actions[:, 0] = np.sin(t * np.arange(1, 3))
        seen.append(environment.step(actions))
        ended = seen[-1].truncated | np.array([False, t == 4])
        if ended.any():
            seen.append(environment.reset(ended))
    return seen


@pytest.mark.parametrize(
    "kind, logged", [(Blind, 5), (Blind, 13), *((Failing, steps) for steps in range(1, 20))]
)
def test_logged_frames_equal_rendered_ones_and_new_ones_follow(tmp_path, kind, logged):
    """After a physics error, too, whose frame is the last one, and no longer in the simulator."""

    def make():
        return kind(np.array([3, 8]), [1, 2], "pixels")

    expected = play(make(), 25)
    path = tmp_path / "frames.log"
    log = FrameLog(path, 0)
    play(LoggedEnvironment(make(), log), logged)
    size = log.sync()
    play(LoggedEnvironment(make(), log), 3)  # what a killed run may have added
    log.close()
    environment = LoggedEnvironment(make(), FrameLog(path, size))
    for found, step in zip(play(environment, 25), expected, strict=True):
        for name, one, other in zip(step._fields, found, step, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=name)
    environment.close()


@pytest.mark.parametrize("what", ["reward", "frame", "truncated"])
def test_another_simulator_is_noticed_by_rewards_the_last_frames_and_ends(tmp_path, what):
    class Other(Blind):
        def recv(self):
            step = super().recv()
            if what == "truncated":  # so that more environments restart than in the log
                return step._replace(truncated=np.ones_like(step.truncated))
            return step._replace(**{what: getattr(step, what) + 1})

    def make(kind):
        return kind(np.array([3, 8]), [1, 2], "pixels")

    path = tmp_path / "frames.log"
    log = FrameLog(path, 0)
    play(LoggedEnvironment(make(Blind), log), 9)
    size = log.sync()
    log.close()
    environment = LoggedEnvironment(make(Other), FrameLog(path, size))
    with pytest.raises(NotRepeated):
        play(environment, 9)
    environment.close()


@pytest.mark.parametrize("frame_shape, dtype", [((4,), np.float32), ((3, 2), np.uint8)])
def test_logged_steps_come_back_and_are_cut_where_starts_follow(tmp_path, frame_shape, dtype):
    random = np.random.default_rng(0)

    def frames():
        return (100 * random.random((2, *frame_shape))).astype(dtype)

    def add(log, number, ends):
        """Adds starts and steps, of which some end; returns the steps as they are."""
        newest, steps = frames(), []
        log.add_starts(newest)
        for step in range(number):
            terminated, truncated = ends.get(step, ([False, False], [False, False]))
            own = LoggedStep(
                newest,
                random.random(2).astype(np.float32),
                np.array(terminated),
                np.array(truncated),
                frames(),
            )
            newest = own.frame.copy()
            ended = own.terminated | own.truncated
            newest[ended] = frames()[ended]
            log.add(own, newest)
            steps.append(own)
        return steps

    path = tmp_path / "frames.log"
    file = FrameLog(path, 0)
    log = StepLog(file, frames())
    ends = {1: ([True, False], [False, False]), 2: ([False, False], [True, False])}
    expected = add(log, 5, ends)
    expected[-1] = expected[-1]._replace(truncated=np.array([True, True]))
    add(log, 0, {})  # a process that was killed at once
    expected += add(log, 3, {2: ([False, True], [False, False])})
    expected[-1] = expected[-1]._replace(truncated=np.array([True, False]))
    size = file.sync()
    file.close()
    found = list(StepLog(FrameLog(path, size), frames()).read())
    for one, other in zip(found, expected, strict=True):
        for name, own, wanted in zip(one._fields, one, other, strict=True):
            np.testing.assert_array_equal(own, wanted, err_msg=name)
            assert own.dtype == wanted.dtype
