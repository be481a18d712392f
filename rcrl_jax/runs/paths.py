"""Where the files of one run lie."""

import pathlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

PARAMETERS = "parameters.npz"


class RunId(NamedTuple):
    """Identifies one run of a fleet."""

    game: str
    seed: int


def default_workdir(
    preset: str, games: Collection[str], seeds: Sequence[int], every_game: Collection[str]
) -> pathlib.Path:
    """The work directory if none is named: `runs/<preset>-<games>-<seeds>`.

    `all` stands for every game of a benchmark, and `0to5` for seeds 0 to 4.
    """
    is_whole = len(games) > 1 and len(games) == len(every_game)
    played = "all" if is_whole else "+".join(games)
    first, end = seeds[0], seeds[-1] + 1
    is_range = len(seeds) > 1 and tuple(seeds) == tuple(range(first, end))
    numbers = f"{first}to{end}" if is_range else ",".join(map(str, seeds))
    return pathlib.Path("runs", "-".join(filter(None, [preset, played, numbers])))


@dataclass(frozen=True)
class RunPaths:
    """The files of one run: `<workdir>/<preset>/<game>/seed_<n>/`.

    Attributes:
        workdir: directory of the whole fleet.
        preset: its name, for example `rcrl`.
        game: game or task, for example `Pong`.
        seed: the run's seed.
    """

    workdir: pathlib.Path
    preset: str
    game: str
    seed: int

    @property
    def directory(self) -> pathlib.Path:
        """Directory of all files that belong to this run only."""
        return self.workdir / self.preset / self.game / f"seed_{self.seed}"

    @property
    def manifest(self) -> pathlib.Path:
        """What was run: configuration, protocol, versions, device."""
        return self.directory / "manifest.json"

    @property
    def metrics(self) -> pathlib.Path:
        """Losses and training episodes, one JSON object per line."""
        return self.directory / "metrics.jsonl"

    @property
    def evaluations(self) -> pathlib.Path:
        """Returns of every evaluation episode, one JSON object per evaluation."""
        return self.directory / "evaluations.jsonl"

    @property
    def scores(self) -> pathlib.Path:
        """The final evaluation."""
        return self.directory / "scores.json"

    @property
    def diverged(self) -> pathlib.Path:
        """Replaces the scores of a run that diverged in every attempt; made by hand."""
        return self.directory / "diverged.json"

    @property
    def parameters(self) -> pathlib.Path:
        """Trained parameters of the agent at the last step, float16."""
        return self.directory / PARAMETERS

    @property
    def curve(self) -> pathlib.Path:
        """Picture of the learning curve."""
        return self.directory / "curve.png"

    @property
    def video(self) -> pathlib.Path:
        """Video of one evaluation episode."""
        return self.directory / "evaluation.mp4"

    @property
    def tensorboard(self) -> pathlib.Path:
        """Directory of TensorBoard's event files."""
        return self.directory / "tensorboard"

    @property
    def checkpoints(self) -> pathlib.Path:
        """Directory of the checkpoints, shared by the whole fleet."""
        return self.workdir / "checkpoints"
