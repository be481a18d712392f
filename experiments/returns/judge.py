r"""Judges finished runs of the study on their titles' fixed games, and says nothing of the result.

    python -m experiments.returns.judge --spec=campaigns/returns.toml

Keeps the outputs of each discriminator on the fixed pairs, logits.npz, beside its run, so the run's
large parameters.npz need not be kept; likewise games.npz of each title. What is there is left
alone, and titles wait for their run of `erainbow_sa`. `experiments.returns.score` computes from
these files, once all runs have one.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from absl import app, flags

from experiments import command_line, launch
from experiments.returns import arms, games
from experiments.returns.games import Title
from experiments.sweeps import work
from experiments.sweeps.spec import Spec, SweepError, Unit, read_spec
from rcrl_jax import files
from rcrl_jax.return_contrast import instruments


def logits_path(spec: Spec, unit: Unit) -> pathlib.Path:
    """Where the outputs of a run's discriminator are kept."""
    return spec.result_paths(unit).directory / "logits.npz"


def judge(spec: Spec) -> int:
    """Judges all runs that are finished and not judged yet; their number.

    Raises:
      SweepError: the results hold another run in a unit's place.
      Damaged: a file does not hold what it should.
      OSError: a file cannot be read or written.
    """
    finished = [unit for unit in spec.units if work.is_finished(spec, unit)]
    players = [unit for unit in finished if unit.arm.name == arms.PLAYER]
    judged = 0
    for player in players:
        own = [
            unit
            for unit in finished
            if unit.game == player.game and unit != player and not logits_path(spec, unit).exists()
        ]
        if not own and games.path_of(spec, player).exists():
            continue
        title = games.title_of(spec, player)
        for arm in dict.fromkeys(unit.arm for unit in own):
            units = [unit for unit in own if unit.arm == arm]
            for unit, outputs in zip(units, logits(spec, units, title), strict=True):
                same, different = outputs
                with files.replacing(logits_path(spec, unit)) as partial:
                    np.savez_compressed(partial, same=same, different=different, games=title.sha256)
            judged += len(units)
    return judged


def logits(spec: Spec, units: Sequence[Unit], title: Title) -> np.ndarray:
    """`[R, 2, n]` float32: outputs of an arm's runs on pairs of equal and of different returns."""
    _, fleet = games.make_fleet(spec, units, spec.make_config(units[0]))
    anchor, same, different = title.drawn
    compared = instruments.compare(
        fleet,
        games.read_parameters(spec, units, fleet),
        [title.games] * len(units),
        np.tile(np.concatenate([anchor, anchor]), (len(units), 1)),
        np.tile(np.concatenate([same, different]), (len(units), 1)),
    )
    return compared.logit.reshape(len(units), 2, -1)


def main(argv: list[str]) -> None:
    """Judges what can be judged."""
    del argv
    try:
        with launch.ending_cleanly():
            judged = judge(read_spec(flags.FLAGS.spec))
    except SweepError as error:
        command_line.refuse(str(error))
    print(f"{judged} runs judged; their outputs are kept beside them")


def define_flags() -> None:
    """Not at import: tests import this module beside others with flags of the same names."""
    flags.DEFINE_string("spec", "campaigns/returns.toml", "the study's list of runs")


if __name__ == "__main__":
    define_flags()
    app.run(main, flags_parser=command_line.parse)
