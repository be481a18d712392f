"""What can be played: one entry for each benchmark, with its games, presets and environments.

`OWN` is the entry of all other games, which users bring; see `envs/gymnasium_games.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from dm_env import specs

from rcrl_jax.agents.rainbow.config import MinAtarConfig, RainbowConfig
from rcrl_jax.agents.sac.config import SacConfig
from rcrl_jax.config import fields, presets
from rcrl_jax.config.choices import ENCODERS
from rcrl_jax.config.presets import Config
from rcrl_jax.envs import atari, dmc, minatar
from rcrl_jax.envs.protocol import EnvironmentSpec, VectorEnvironment, nearest


class Cast(NamedTuple):
    """Which games the environments of some runs play."""

    games: Sequence[str]
    runs: int  # of each game
    fleet: Sequence[str]  # games of all runs that train together; frames fit these


class Environment(NamedTuple):
    """One benchmark.

    Attributes:
        games: the games or tasks.
        backends: the simulators to choose from.
        presets_of: game -> the presets that train on it, by name.
        make: (configuration, cast, backend, seeds `[R, E]`) -> the environments of R runs, game by
            game, E of each run.
        spec: (configuration, games) -> the spec of these environments, with the largest action set
            that they may have.
        action_repeat: (game, configuration) -> environment steps of an agent step.
        steps: configuration -> default length of a run [environment steps].
        eval_episodes: default number of episodes of the final evaluation.
        kind: what the games are called.
        check_more: (configuration, game, backend) -> raises ValueError if these known ones do not
            fit.
        fields_of: (configuration, game) -> defaults of the fields that depend on the game's
            observations.
        repeats: game -> whether equal seeds and actions give the same game.
        why_not_drawn: game -> why people cannot watch it if agents read no frames; empty if they
            can.
    """

    games: tuple[str, ...]
    backends: tuple[str, ...]
    presets_of: Callable[[str], Mapping[str, Config]]
    make: Callable[[Config, Cast, str, np.ndarray], VectorEnvironment]
    spec: Callable[[Config, Sequence[str]], EnvironmentSpec]
    action_repeat: Callable[[str, Config], int]
    steps: Callable[[Config], int]
    eval_episodes: int
    kind: str = "game"
    check_more: Callable[[Config, str, str], None] = lambda config, game, backend: None
    fields_of: Callable[[Config, str], Mapping[str, Any]] = lambda config, game: {}
    repeats: Callable[[str], bool] = lambda game: True
    why_not_drawn: Callable[[str], str] = lambda game: (
        "there are no frames to film with observation='state'"
    )

    @property
    def presets(self) -> Mapping[str, Config]:
        """The presets by name, as they train on the first game."""
        return self.presets_of((*self.games, "")[0])

    def check_game(self, game: str) -> None:
        """Raises ValueError, with the nearest names, unless the benchmark has the game."""
        if self.games and game not in self.games:
            own = f"; your own game is environment={game}" if ":" in game else ""
            raise ValueError(f"unknown {self.kind} '{game}': {nearest(game, self.games)}{own}")

    def configure(self, preset: str, game: str, changes: Mapping[str, Any]) -> Config:
        """The configuration of a run: a preset, the defaults of its game, and changed fields.

        Raises:
            ValueError: a field is unknown or out of range; the message names it.
        """
        usual = self.presets_of(game)[preset]
        return fields.replace(usual, {**self.fields_of(usual, game), **changes})

    def configure_fleet(
        self, preset: str, games: Sequence[str], changes: Mapping[str, Any], named: str
    ) -> Config:
        """The configuration that games share.

        Args:
            preset: one of `presets_of`.
            games: of the fleet.
            changes: dotted names of fields -> values.
            named: what names the games, for the message.

        Raises:
            ValueError: as of `configure`; or games differ in action repeat or learning rate: runs
                take their agent steps together and share one configuration.
        """
        configs = {game: self.configure(preset, game, changes) for game in games}
        first = games[0]
        for what, of in (
            ("action repeat", lambda game: self.action_repeat(game, configs[first])),
            ("learning rate", configs.get),
        ):
            for other in games:
                if of(other) != of(first):
                    raise ValueError(
                        f"{named}: {first} and {other} differ in {what}: start two fleets"
                    )
        return configs[first]

    def check(self, config: Config, game: str, backend: str) -> None:
        """Raises ValueError unless game and backend are known and fit the configuration."""
        self.check_game(game)
        if backend not in self.backends:
            those = ", ".join(self.backends)
            raise ValueError(f"unknown backend '{backend}' of {game}: choose from {those}")
        self.check_more(config, game, backend)
        if isinstance(config, RainbowConfig):
            _check_encoder(config.encoder, game, self.spec(config, [game]).frame)


_AXES = {"vectors": 1, "patches": 2, "frames": 2, "bits": 3}  # of a frame that an encoder reads


def _check_encoder(encoder: str, game: str, frame: specs.Array) -> None:
    """Raises ValueError unless the encoder reads frames of the game."""
    fitting = [name for name, one in ENCODERS.items() if _AXES[one.reads] == len(frame.shape)]
    if encoder not in fitting:
        raise ValueError(
            f"encoder: {encoder!r} does not read the frames of {game}, {frame.dtype} "
            f"{list(frame.shape)}; choose {' or '.join(fitting)}"
        )


def _make_atari(config: Config, cast: Cast, backend: str, seeds: np.ndarray) -> VectorEnvironment:
    screen = atari.Screen(config.frame_shape, config.most_noops)
    return atari.make_games(cast.games, cast.runs, backend, seeds, screen)


def _check_dmc(config: Config, task: str, backend: str) -> None:
    if backend == "envpool" and config.observation != "pixels":
        raise ValueError(
            f"the envpool backend has pixels alone: observation={config.observation!r} needs "
            "dm_control"
        )


def _make_dmc(config: Config, cast: Cast, backend: str, seeds: np.ndarray) -> VectorEnvironment:
    return dmc.make_dmc(
        np.repeat(cast.games, cast.runs * seeds.shape[1]).tolist(),
        seeds.reshape(-1),
        backend=backend,
        observation=config.observation,
        render_size=config.render_size,
        action_repeat=config.action_repeat,
    )


def _make_minatar(
    config: MinAtarConfig, cast: Cast, backend: str, seeds: np.ndarray
) -> VectorEnvironment:
    return minatar.make_minatar(
        np.repeat(cast.games, cast.runs * seeds.shape[1]).tolist(),
        seeds.reshape(-1),
        sticky=config.sticky,
        minimal_actions=config.minimal_actions,
        fleet=cast.fleet,
    )


_GYMNASIUM = "gymnasium"  # the backend


def own_games() -> Any:
    """The module of users' own games; imported late, because gymnasium takes half a second."""
    from rcrl_jax.envs import gymnasium_games

    return gymnasium_games


def _check_own(config: Config, game: str, backend: str) -> None:
    discrete, environment = own_games().probe(game).discrete, own_games().environment_of(game)
    if discrete and not isinstance(config, RainbowConfig):
        raise ValueError(f"{environment} has discrete actions: choose a preset such as rcrl")
    if not discrete and not isinstance(config, SacConfig):
        raise ValueError(f"{environment} has continuous actions: choose a preset such as rcrl_sac")


def _read_by(config: RainbowConfig | SacConfig) -> dict[str, Any]:
    """What an agent reads, as `gymnasium_games.make_games` takes it."""
    if isinstance(config, SacConfig):
        return {"image_shape": (config.render_size, config.render_size, 3), "bits": False}
    bits = ENCODERS[config.encoder].reads == "bits"
    return {"image_shape": config.frame_shape, "bits": bits}


def _make_own(
    config: RainbowConfig | SacConfig, cast: Cast, backend: str, seeds: np.ndarray
) -> VectorEnvironment:
    (game,) = cast.games
    return own_games().make_games(game, seeds.reshape(-1), **_read_by(config))


def _fields_of_own(config: RainbowConfig | SacConfig, game: str) -> Mapping[str, Any]:
    return presets.fields_of_own(config, own_games().probe(game).kind)


ENVIRONMENTS = {
    "atari100k": Environment(
        games=atari.ATARI_GAMES,
        backends=atari.ATARI_BACKENDS,
        presets_of=lambda game: presets.atari_presets(),
        make=_make_atari,
        spec=lambda config, games: atari.largest_spec(config.frame_shape),
        action_repeat=lambda game, config: 1,
        steps=lambda config: config.total_steps,
        eval_episodes=100,
    ),
    "dmc": Environment(
        games=tuple(dmc.DMC_TASKS),
        backends=dmc.DMC_BACKENDS,
        presets_of=presets.control_presets,
        make=_make_dmc,
        spec=lambda config, tasks: dmc.make_spec(
            tasks[0], config.observation, config.render_size, config.action_repeat
        ),
        action_repeat=lambda task, config: dmc.repeat_of(task, config.action_repeat),
        steps=lambda config: 500_000,
        eval_episodes=10,
        kind="task",
        check_more=_check_dmc,
    ),
    "minatar": Environment(
        games=minatar.MINATAR_GAMES,
        backends=(minatar.BACKEND,),
        presets_of=lambda game: presets.MINATAR_PRESETS,
        make=_make_minatar,
        spec=lambda config, games: minatar.make_spec(games, config.minimal_actions),
        action_repeat=lambda game, config: 1,
        steps=lambda config: config.total_steps,
        eval_episodes=20,
    ),
}
"""The benchmarks, by the name of their training program."""

OWN = Environment(
    games=(),
    backends=(_GYMNASIUM,),
    presets_of=lambda game: presets.OWN_PRESETS,
    make=_make_own,
    spec=lambda config, games: own_games().make_spec(games[0], **_read_by(config)),
    action_repeat=lambda game, config: 1,
    steps=lambda config: 100_000,
    eval_episodes=20,
    kind="environment",
    check_more=_check_own,
    fields_of=_fields_of_own,
    repeats=lambda game: own_games().probe(game).repeats,
    why_not_drawn=lambda game: own_games().why_not_drawn(game),
)
"""Users' own games, whose names contain a dot. A fleet plays only one such game."""


def environment_of(config: Config, game: str) -> Environment:
    """The benchmark of a run. Atari and MinAtar share names of games; the configuration decides."""
    if "." in game:
        return OWN
    if isinstance(config, MinAtarConfig):
        return ENVIRONMENTS["minatar"]
    others = (one for name, one in ENVIRONMENTS.items() if name != "minatar")
    # Games of no benchmark, such as those of tests, are read as Atari's are.
    return next((one for one in others if game in one.games), ENVIRONMENTS["atari100k"])
