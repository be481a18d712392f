"""Written videos are read back frame by frame."""

import os
import re
import stat
import subprocess

import imageio_ffmpeg
import numpy as np
import pytest

from rcrl_jax.config import fields, presets
from rcrl_jax.envs import gymnasium_games
from rcrl_jax.training import video
from rcrl_jax.training.evaluation import Film


def _read(path):
    """Returns ffmpeg's description of a video, and its frames as RGB."""
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    command = [ffmpeg, "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    result = subprocess.run(command, capture_output=True, check=True, timeout=60)
    description = result.stderr.decode().partition("Output #0")[0]
    width, height = map(int, re.search(r", (\d+)x(\d+)", description).groups())
    frames = np.frombuffer(result.stdout, np.uint8).reshape(-1, height, width, 3)
    return description, frames.astype(int)


def _squares():
    """[6, 84, 84]: a bright square that moves 12 pixels per frame over a dark background."""
    frames = np.full((6, 84, 84), 40, np.uint8)
    for t in range(6):
        frames[t, 36:48, 12 * t : 12 * t + 12] = 200
    return frames


def test_gray_frames_are_enlarged_four_times(tmp_path):
    frames = _squares()
    path = tmp_path / "film.mp4"
    video.write_video(path, frames)
    description, read = _read(path)
    assert "Video: h264" in description
    assert " 15 fps" in description
    assert read.shape == (6, 336, 336, 3)
    centres = read[:, 2::4, 2::4]  # one pixel of each 4 x 4 block
    assert np.abs(centres - frames[..., None]).mean() < 2
    assert np.abs(centres[3, 42, 42] - 200).max() < 8
    assert np.abs(centres[3, 42, 30] - 40).max() < 8
    edge = read[3, 168, 142:146, 0]  # two pixels on either side of the square's left edge
    assert np.abs(edge - [40, 40, 200, 200]).max() < 16  # sharp: enlarged, not smoothed
    assert os.listdir(tmp_path) == ["film.mp4"]


def test_a_long_film_is_whole(tmp_path):
    """Of more frames than a pipe takes bytes at once."""
    frames = np.zeros((4_200, 8, 8), np.uint8)
    video.write_video(tmp_path / "film.mp4", frames)
    assert len(_read(tmp_path / "film.mp4")[1]) == len(frames)


def test_colours_are_preserved(tmp_path):
    frames = np.zeros((3, 20, 31, 3), np.uint8)
    frames[..., :] = (200, 60, 30)
    video.write_video(tmp_path / "film.mp4", frames)
    _, read = _read(tmp_path / "film.mp4")
    assert read.shape == (3, 80, 124, 3)
    assert np.abs(read - np.array([200, 60, 30])).max() < 12


@pytest.mark.parametrize(
    "size, film", [((210, 160), (420, 320)), ((400, 600), (400, 600)), ((301, 501), (302, 502))]
)
def test_large_frames_are_enlarged_less_and_sizes_are_even(tmp_path, size, film):
    video.write_video(tmp_path / "film.mp4", np.full((2, *size, 3), 90, np.uint8))
    _, read = _read(tmp_path / "film.mp4")
    assert read.shape == (2, *film, 3)
    assert np.abs(read - 90).max() < 4


def test_a_film_that_fails_half_way_is_not_kept(tmp_path):
    def frames():
        yield from _squares()
        raise OSError("the game is gone")

    with pytest.raises(OSError, match="the game is gone"):
        video.write_video(tmp_path / "film.mp4", frames())
    assert os.listdir(tmp_path) == []


def test_missing_ffmpeg_is_reported_and_the_old_video_stays(tmp_path, monkeypatch):
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "no-such-program"))
    with pytest.raises(RuntimeError, match="no ffmpeg for the video: reinstall imageio-ffmpeg"):
        video.write_video(path, _squares())

    def none_found():
        raise RuntimeError("No ffmpeg exe could be found.")

    monkeypatch.setattr(imageio_ffmpeg, "get_ffmpeg_exe", none_found)
    with pytest.raises(RuntimeError, match="no ffmpeg for the video: reinstall imageio-ffmpeg"):
        video.write_video(path, _squares())
    assert path.read_bytes() == b"old"


def test_errors_of_ffmpeg_are_quoted_and_the_old_video_stays(tmp_path, monkeypatch):
    program = tmp_path / "ffmpeg"
    program.write_text(
        "#!/bin/sh\n"
        "for last; do :; done\n"
        "cat > /dev/null\n"
        'echo half > "${last#file:}"\n'
        'echo "No space left on device" >&2\n'
        "exit 1\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))
    path = tmp_path / "film.mp4"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match=r"could not write .*film\.mp4: No space left on device"):
        video.write_video(path, _squares())
    assert path.read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["ffmpeg", "film.mp4"]


def test_states_cannot_be_filmed():
    video.check(presets.DMC_PRESETS["rcrl_sac"], "walker_walk")
    with pytest.raises(video.VideoFailed, match="no film: there are no frames"):
        video.check(presets.DMC_PRESETS["state_sac"], "walker_walk")
    dense = fields.replace(presets.ATARI_PRESETS["rcrl"], {"encoder": "dense"})
    video.check(dense, "gymnasium.CartPole-v1")  # which draws its pictures
    with pytest.raises(video.VideoFailed, match="no film: .*Symbols cannot be filmed"):
        video.check(dense, "tests.envs.own_games.Symbols")


def test_binary_boards_have_a_colour_for_each_plane():
    frames = np.zeros((2, 10, 10, 4), np.uint8)
    frames[0, 9, 3, 0] = frames[1, 2, 5, 1] = frames[1, 2, 5, 3] = 1
    picture = np.stack([video.as_picture(frame) for frame in frames])
    assert picture.shape == (2, 80, 80, 3)
    assert (picture[0, 72:80, 24:32] == (255, 255, 255)).all()
    assert (picture[1, 16:24, 40:48] == (242, 190, 34)).all()  # the later plane lies above
    assert (picture.any(axis=-1).sum(axis=(1, 2)) == 64).all()


def test_a_small_picture_of_an_own_game_keeps_its_colours(tmp_path):
    game = gymnasium_games.make_games("tests.envs.own_games.draw_small", [1], (84, 84), bits=True)
    film = Film([*game.reset().frame], [np.int32(1)], game.shows(0))
    video.write_video(tmp_path / "film.mp4", film)
    _, read = _read(tmp_path / "film.mp4")
    assert read.shape == (2, 32, 32, 3)
    assert np.abs(read - np.array([30, 60, 90])).max() < 12


@pytest.mark.parametrize("planes", [1, 2, 3, 6, 12])
def test_binary_boards_become_a_video_in_colours(tmp_path, planes):
    frames = np.zeros((3, 10, 10, planes), np.uint8)
    plane = min(planes - 1, 3)
    frames[:, :5, :, plane] = 1
    video.write_video(tmp_path / "film.mp4", Film([*frames], [], None))
    _, read = _read(tmp_path / "film.mp4")
    assert read.shape == (3, 320, 320, 3)
    colour = video._COLOURS[plane].astype(int)
    assert np.abs(read[1, 80, 160] - colour).max() < 12 and read[1, 240, 160].max() < 12
