r"""Scores and films trained agents, without a change to their work directory.

    python -m experiments.evaluate --workdir=runs/rcrl-Pong-0 --episodes=100 --nulls --video
    python -m experiments.evaluate --workdir=runs/rcrl-Pong+Alien-0to5 --games=Alien --seeds=0,3
    python -m experiments.evaluate --workdir=results/base/curl/MsPacman/seed_0 --episodes=3 --video

The last command plays a run of results/ from parameters.npz, its final parameters in half
precision.

Configuration, runs and backend are read from the work directory. Training may be under way there.
For each run `<output>/<preset>/<game>/seed_<n>/` gets `evaluation.json` and, with --video,
`video.mp4`. By default the episodes are those of the final evaluation of training: the last
checkpoint of a finished run reproduces the returns in its scores.json.
"""

import pathlib
import sys

from absl import app, flags

from rcrl_jax import signals
from rcrl_jax.envs.protocol import SimulatorFailed
from rcrl_jax.programs import command_line
from rcrl_jax.training.environments import ENVIRONMENTS

_BACKENDS = dict.fromkeys(
    backend
    for environment in ENVIRONMENTS.values()
    for backend in environment.backends
    if backend != "auto"
)

_WORKDIR = flags.DEFINE_string(
    "workdir", None, "work directory of a training command, or directory of a run"
)
_GAMES = flags.DEFINE_list("games", None, "games or tasks to score [default: all]")
_SEEDS = flags.DEFINE_string("seeds", None, "seeds to score, 0,1 or 0:5 (0 to 4) [default: all]")
_STEP = flags.DEFINE_integer(
    "step", None, "agent steps of the checkpoint [default: the newest]", lower_bound=0
)
_BACKEND = flags.DEFINE_enum(
    "backend", None, list(_BACKENDS),
    "emulators or simulator [default: that of training]; on another one the same seeds start other "
    "episodes",
)  # fmt: skip
_EPISODES = flags.DEFINE_integer(
    "episodes", None, "episodes of each run [default: as many as in training's final evaluation]",
    lower_bound=1, upper_bound=command_line.MOST_EPISODES,
)  # fmt: skip
_FIRST_EPISODE = flags.DEFINE_integer(
    "first_episode", 0,
    "number of the first episode, a multiple of 10. Training's evaluations play those from 0 on; "
    "numbers above theirs are other episodes",
    lower_bound=0, upper_bound=1_000_000,
)  # fmt: skip
_VIDEO = flags.DEFINE_bool("video", False, "write an MP4 of the first episode of each run")
_NULLS = flags.DEFINE_bool(
    "nulls", False,
    "play without learning in the same episodes, too: uniform actions, the best constant action, "
    "the untrained agent",
)  # fmt: skip
_OUTPUT = flags.DEFINE_string(
    "output", None,
    "where results go, outside the work directory [default: runs/evaluate-<workdir>-<step>]",
)  # fmt: skip


def main(argv: list[str]) -> None:
    """Scores what the flags describe."""
    del argv
    if _WORKDIR.value is None:
        command_line.refuse("--workdir: name the work directory of a training command")
    # late: --help needs no JAX
    from rcrl_jax import types
    from rcrl_jax.runs import workdir
    from rcrl_jax.training import evaluation, scoring, video

    try:
        seeds = _SEEDS.value and command_line.parse_seeds(_SEEDS.value)
        if _FIRST_EPISODE.value % evaluation.GAMES_AT_ONCE:
            raise ValueError(
                f"--first_episode: must be a multiple of {evaluation.GAMES_AT_ONCE}: "
                f"{evaluation.GAMES_AT_ONCE} episodes are played at a time, and random actions "
                "depend on an episode's place among them"
            )
        command_line.count_devices()
    except ValueError as error:
        command_line.refuse(str(error))
    request = scoring.Request(
        workdir=pathlib.Path(_WORKDIR.value),
        games=_GAMES.value,
        seeds=seeds,
        step=_STEP.value,
        backend=_BACKEND.value,
        episodes=_EPISODES.value,
        first_episode=_FIRST_EPISODE.value,
        film=_VIDEO.value,
        nulls=_NULLS.value,
        output=_OUTPUT.value and pathlib.Path(_OUTPUT.value),
    )
    memory = command_line.refusing_lack_of_memory(
        "score fewer runs at a time",
        "end other programs on the device, or score on the CPU: JAX_PLATFORMS=cpu",
    )
    try:
        # Signals: while agents are loaded or results written.
        with signals.ending_at_once(), memory:
            scoring.score(request)
    except ImportError as error:
        command_line.refuse(f"{error}; or choose another --backend")
    except (workdir.Unusable, types.Incompatible, video.VideoFailed, OSError) as error:
        command_line.refuse(str(error))
    except scoring.Stopped as stop:
        print(stop, file=sys.stderr)
        sys.exit(128 + stop.signum)
    except SimulatorFailed as error:
        command_line.fail(
            f"{error}: the same command starts again, and ends here again unless the reason has "
            "passed",
            1,
        )


if __name__ == "__main__":
    app.run(main, flags_parser=command_line.parse)
