r"""Trains small agents on MinAtar's five games: one run, or a whole fleet in one program.

    python -m experiments.minatar --game=Breakout --seed=0
    python -m experiments.minatar --games=Breakout,Asterix --seeds=0:15

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=64.
"""

from absl import flags

from rcrl_jax.programs import launch
from rcrl_jax.training.environments import ENVIRONMENTS

PROGRAM = launch.define(launch.Program(ENVIRONMENTS["minatar"], "minatar_rcrl", "Breakout"))
flags.adopt_module_key_flags(launch)

if __name__ == "__main__":
    launch.start(PROGRAM)
