"""Videos of evaluation episodes."""

import contextlib
import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable

import imageio_ffmpeg
import numpy as np

from rcrl_jax import files, words
from rcrl_jax.config.presets import Config
from rcrl_jax.training.environments import environment_of

_SCALE, _SIDE = 4, 420  # frames are enlarged up to 4 times, while their shorter side is below 420
_MOST_CELLS = 10  # a side of a binary board; larger frames of three planes are RGB
_CELL = 8  # pixels of a cell of a binary board, before they are enlarged
# Colours of the planes of a binary board; later planes are drawn over earlier ones.
_COLOURS = np.array([
    (255, 255, 255), (226, 61, 61), (128, 128, 128), (242, 190, 34), (78, 168, 222),
    (255, 127, 80), (160, 100, 220), (90, 200, 120), (200, 200, 110), (255, 105, 180),
], np.uint8)  # fmt: skip
_FRAMES_PER_S = 15  # real time for Atari, where an agent step is 4 frames of 60 Hz


class VideoFailed(RuntimeError):
    """A video cannot be made."""


def as_picture(frame: np.ndarray) -> np.ndarray:
    """What people see of a frame that an agent reads.

    Args:
        frame: [H, W] gray or [H, W, 3] RGB, uint8, which are returned; or a board [H, W, planes] of
            zeros and ones with up to 10 x 10 cells, drawn as RGB [8 H, 8 W, 3], a colour a plane.
    """
    if frame.ndim == 2 or (frame.shape[-1] == 3 and max(frame.shape[:2]) > _MOST_CELLS):
        return frame
    picture = np.zeros((*frame.shape[:-1], 3), np.uint8)
    for plane in range(frame.shape[-1]):
        picture[frame[..., plane] > 0] = _COLOURS[plane % len(_COLOURS)]
    return picture.repeat(_CELL, axis=0).repeat(_CELL, axis=1)


def write_video(path: str | os.PathLike, frames: Iterable[np.ndarray]) -> None:
    """Writes frames as an H.264 MP4, atomically; small frames are enlarged.

    Args:
        path: the video; its name ends with `.mp4` and its directory exists.
        frames: at least one, all [H, W] gray or [H, W, 3] RGB, uint8.

    Raises:
        VideoFailed: there is no ffmpeg, or it failed.
        OSError: the video cannot be written.
    """
    pictures = iter(frames)
    first = next(pictures)
    height, width = first.shape[:2]
    scale = min(_SCALE, max(1, _SIDE // min(height, width)))
    command = [
        find_ffmpeg(), "-v", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "gray" if first.ndim == 2 else "rgb24",
        "-s", f"{width}x{height}", "-r", str(_FRAMES_PER_S), "-i", "-",
        "-vf", f"scale={_even(scale * width)}:{_even(scale * height)}:flags=neighbor",
        "-pix_fmt", "yuv420p",
    ]  # fmt: skip
    with files.replacing(path) as partial, tempfile.TemporaryFile() as errors:
        # imageio_ffmpeg's own writer forks, which is unsafe with JAX's threads, and does not report
        # failures of ffmpeg.
        # `file:`, because ffmpeg takes `col:on/a.mp4` for a protocol and `-dash/a.mp4` for an
        # option.
        ffmpeg = subprocess.Popen(
            [*command, f"file:{partial}"],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=errors,
        )  # fmt: skip
        try:
            with contextlib.suppress(BrokenPipeError), ffmpeg.stdin:  # ffmpeg has failed
                for picture in itertools.chain([first], pictures):
                    ffmpeg.stdin.write(np.ascontiguousarray(picture).reshape(-1).data)
        except BaseException:
            ffmpeg.kill()
            raise
        finally:
            ended = ffmpeg.wait()
        if ended != 0:
            errors.seek(0)
            reason = words.one_line(errors.read().decode(errors="replace"))
            raise VideoFailed(f"ffmpeg could not write {path}: {reason}")


def _even(size: int) -> int:
    """The next even size, as H.264 needs it."""
    return size + size % 2


def check(config: Config, game: str) -> None:
    """Checks that agents of a configuration can be filmed here.

    Raises:
        VideoFailed: agents see no frames and people cannot watch the game, or there is no ffmpeg.
    """
    why = environment_of(config, game).why_not_drawn(game) if config.observation == "state" else ""
    if why:
        raise VideoFailed(f"no film: {why}")
    find_ffmpeg()


def find_ffmpeg() -> str:
    """The path of ffmpeg.

    Raises:
        VideoFailed: there is none; the message says what to do.
    """
    with contextlib.suppress(RuntimeError):
        if executable := shutil.which(imageio_ffmpeg.get_ffmpeg_exe()):
            return executable
    raise VideoFailed(
        "no ffmpeg for the video: reinstall imageio-ffmpeg, which brings one, or name one in the "
        "environment variable IMAGEIO_FFMPEG_EXE"
    )
