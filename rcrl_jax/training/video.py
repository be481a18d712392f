"""Videos of evaluation episodes."""

import contextlib
import os
import shutil
import subprocess
from typing import Any

import imageio_ffmpeg
import numpy as np

from rcrl_jax import files

_SCALE = 4  # 84 x 84 pixels are too small to watch; H.264 also needs even sizes
_FRAMES_PER_S = 15  # real time for Atari, where an agent step is 4 frames of 60 Hz


class VideoFailed(RuntimeError):
    """A video cannot be made."""


def write_video(path: str | os.PathLike, frames: np.ndarray) -> None:
    """Writes frames as an H.264 MP4, atomically; each pixel is enlarged to 4 x 4.

    Args:
        path: the video; its name ends with `.mp4` and its directory exists.
        frames: [T, H, W] gray or [T, H, W, 3] RGB, uint8, T at least 1.

    Raises:
        VideoFailed: there is no ffmpeg, or it failed.
        OSError: the video cannot be written.
    """
    command = [
        find_ffmpeg(), "-v", "error", "-y",
        "-f", "rawvideo", "-pix_fmt", "gray" if frames.ndim == 3 else "rgb24",
        "-s", f"{frames.shape[2]}x{frames.shape[1]}", "-r", str(_FRAMES_PER_S), "-i", "-",
        "-vf", f"scale=iw*{_SCALE}:ih*{_SCALE}:flags=neighbor", "-pix_fmt", "yuv420p",
    ]  # fmt: skip
    with files.replacing(path) as partial:
        # imageio_ffmpeg's own writer forks, which is unsafe with JAX's threads, and does not report
        # failures of ffmpeg.
        # The prefix, because ffmpeg takes `col:on/a.mp4` for a protocol and `-dash/a.mp4` for an
        # option.
        result = subprocess.run(
            [*command, f"file:{partial}"],
            # Of one axis: where there are more, Python 3.11 to 3.13 counts what it has written in
            # bytes and what it has to write in frames, and stops early.
            input=np.ascontiguousarray(frames).reshape(-1).data,
            capture_output=True,
        )
        if result.returncode != 0:
            reason = result.stderr.decode(errors="replace").strip()
            raise VideoFailed(f"ffmpeg could not write {path}: {reason}")


def check(config: Any) -> None:
    """Checks that agents of a configuration can be filmed here.

    Raises:
        VideoFailed: they see no frames, or there is no ffmpeg.
    """
    if config.observation == "state":
        raise VideoFailed("--video: there are no frames to film with observation='state'")
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
