r"""Trains rows of the paper's Atari table: one run, or a whole fleet in one program.

    python -m experiments.atari100k --game=Pong --seed=0
    python -m experiments.atari100k --games=Pong,Alien --seeds=0:5

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag:
--config.batch_size=64.
"""

import contextlib
import dataclasses
import errno
import functools
import itertools
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import app, flags

from experiments import command_line
from rcrl_jax import config
from rcrl_jax.envs import atari, pools
from rcrl_jax.envs.protocol import VectorEnvironment
from rcrl_jax.training import host_memory

if TYPE_CHECKING:
    from rcrl_jax.training import experiment

_SPACE_NEEDED = 100 * 2**20  # bytes a run: two checkpoints, records, curve, video
_LARGEST_SEED = 2**31 - 1

GAME = flags.DEFINE_string("game", "Pong", f"game to train on: {', '.join(atari.ATARI_GAMES)}")
_SEED = flags.DEFINE_integer("seed", 0, "seed of the run", lower_bound=0, upper_bound=_LARGEST_SEED)
_GAMES = flags.DEFINE_list("games", None, "games of a fleet, e.g. Pong,Alien, or all26")
_SEEDS = flags.DEFINE_string("seeds", None, "seeds of a fleet for every game: 0,1,2 or 0:5")
_STEPS = flags.DEFINE_integer(
    "steps", 100_000, "agent steps to train for (4 emulator frames each)", lower_bound=1
)
WORKDIR = flags.DEFINE_string(
    "workdir", None, "where everything is written [default: runs/<preset>-<games>-<seeds>]"
)
_EVAL_EPISODES = flags.DEFINE_integer(
    "eval_episodes", 100, "episodes of the final evaluation", lower_bound=1
)
_BACKEND = flags.DEFINE_enum(
    "backend", "auto", atari.ATARI_BACKENDS, "Atari emulators; auto: envpool, or else ale"
)
_VIDEO = flags.DEFINE_bool("video", False, "write an MP4 of one final evaluation episode")
_LIFT = flags.DEFINE_enum(
    "lift", "auto", ["auto", "map", "vmap"],
    "how a fleet computes: one run after the other, or batched; auto: map on a CPU, else vmap",
)  # fmt: skip
_DEVICES = flags.DEFINE_string("devices", "1", "devices that share the runs: a number, or all")
_FRAME_STORE = flags.DEFINE_enum(
    "frame_store", "auto", ["auto", "host", "device"],
    "where the replay's frames live; auto: host on a CPU, else device",
)  # fmt: skip


def main(argv: list[str]) -> None:
    """Runs the experiment that the flags describe."""
    del argv
    host_memory.keep_freed_memory()
    try:
        games, seeds = _read_games(), read_seeds()
        preset = flags.FLAGS.preset
        name = f"{preset}-{'+'.join(games) if len(games) < 26 else 'all26'}"
        name += f"-{_SEEDS.value or _SEED.value}".replace(":", "to")
        plan = make_plan(
            preset,
            command_line.read_config(config.ATARI_PRESETS),
            games,
            seeds,
            pathlib.Path(WORKDIR.value or f"runs/{name}"),
        )
    except ValueError as error:
        command_line.refuse(str(error))
    with ending_cleanly():
        run(dataclasses.replace(plan, film=_VIDEO.value))


def make_plan(
    preset: str,
    settings: config.RainbowConfig,
    games: Sequence[str],
    seeds: Sequence[int],
    workdir: pathlib.Path,
) -> "experiment.Plan":
    """The plan of one preset on every game with every seed, the rest as the flags say.

    Raises:
      ValueError: a flag's value is out of range.
    """
    # Imported late, here and below: JAX starts its threads, which must not come before `main`
    # has set up the memory that they share.
    import jax

    from rcrl_jax.training import experiment

    on_cpu = jax.default_backend() == "cpu"
    return experiment.Plan(
        preset=preset,
        config=settings,
        runs=tuple(experiment.RunId(*run) for run in itertools.product(games, seeds)),
        total_steps=_STEPS.value,
        workdir=workdir,
        eval_episodes=_EVAL_EPISODES.value,
        make_environment=functools.partial(make_environment, games, len(seeds), _BACKEND.value),
        lift=_LIFT.value,
        num_devices=_read_devices(jax.device_count()),
        frame_store={"auto": "host" if on_cpu else "device"}.get(
            _FRAME_STORE.value, _FRAME_STORE.value
        ),
    )


def run(plan: "experiment.Plan") -> None:
    """Runs a plan, unless the disk cannot hold it.

    Raises:
      OSError: too little space; and what `experiment.run` raises.
    """
    from rcrl_jax.training import experiment

    free, needed = experiment.free_bytes(plan.workdir), len(plan.runs) * _SPACE_NEEDED
    if free < needed:
        raise OSError(
            errno.ENOSPC,
            f"no space left: {free >> 20} MB free, {needed >> 20} MB needed",
            str(plan.workdir),
        )
    experiment.run(plan)


@contextlib.contextmanager
def ending_cleanly() -> Iterator[None]:
    """Ends the program with one line, and the exit code that says why, where a run cannot go on."""
    from rcrl_jax.training import experiment, manifest, prediction

    try:
        yield
    except (
        manifest.WorkdirMismatch,
        prediction.DoesNotFit,
        experiment.NotReproduced,
        ImportError,
        OSError,
    ) as error:
        command_line.refuse(str(error))
    except experiment.Interrupted as stop:
        print(f"{stop}: the same command resumes", file=sys.stderr)
        sys.exit(128 + stop.signum)
    except experiment.Diverged as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def make_environment(
    games: Sequence[str], seeds_per_game: int, backend: str, seeds: np.ndarray
) -> VectorEnvironment:
    """One pool a game, joined in the order of the runs.

    Args:
      games: the games.
      seeds_per_game: runs of each game.
      backend: Atari backend.
      seeds: `[R, E]`, environment seeds; R = games * seeds_per_game, run by run.
    """
    by_game = seeds.reshape(len(games), seeds_per_game * seeds.shape[1])
    made = [
        atari.make_atari(game, own, backend=backend)
        for game, own in zip(games, by_game, strict=True)
    ]
    return made[0] if len(made) == 1 else pools.concatenate(made)


def _read_games() -> tuple[str, ...]:
    games = tuple(_GAMES.value or (GAME.value,))
    if games == ("all26",):
        return atari.ATARI_GAMES
    if len(set(games)) != len(games):
        raise ValueError(f"--games: a game is named twice in {','.join(games)}")
    for game in games:
        atari.check_game(game)
    return games


def read_seeds() -> tuple[int, ...]:
    """What --seeds, or else --seed, says.

    Raises:
      ValueError: it is not a list of different seeds.
    """
    if _SEEDS.value is None:
        return (_SEED.value,)
    try:
        if ":" in _SEEDS.value:
            first, end = (int(part) for part in _SEEDS.value.split(":"))
            seeds = tuple(range(first, end))
        else:
            seeds = tuple(int(part) for part in _SEEDS.value.split(","))
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) != len(seeds) or min(seeds) < 0 or max(seeds) > _LARGEST_SEED:
        raise ValueError(
            f"--seeds: expected different seeds like 0,1,2 or a range like 0:5, got {_SEEDS.value}"
        )
    return seeds


def _read_devices(available: int) -> int:
    if _DEVICES.value == "all":
        return available
    if not _DEVICES.value.isdigit() or not 1 <= int(_DEVICES.value) <= available:
        raise ValueError(
            f"--devices: expected all or a number from 1 to {available}, got {_DEVICES.value}"
        )
    return int(_DEVICES.value)


if __name__ == "__main__":
    command_line.define_config(config.ATARI_PRESETS, "rcrl", sys.argv)
    app.run(main, flags_parser=command_line.parse)
