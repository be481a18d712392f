r"""Trains rows of the paper's Atari table: one run, or a whole fleet in one program.

    python -m experiments.atari100k --game=Pong --seed=0
    python -m experiments.atari100k --games=Pong,Alien --seeds=0:5

The same command in the same work directory resumes. Every hyperparameter of the preset is a flag,
--config.batch_size=64; --preset=simple --help lists those of `simple`.

--preset=simple has not been trained in full yet. A game with the deterministic model costs 80
PFLOP: at least 9 minutes of an H200, 13 of an H100, 23 of an A100, 15 of a TPU v5p, 13 of a v6e, 22
of a v5e (bounds, `benchmarks.compiled`), days of a few CPU cores. The stochastic model costs 570
PFLOP, counted by hand: months of a few CPU cores.
"""

from absl import flags

from rcrl_jax.envs import atari
from rcrl_jax.programs import launch
from rcrl_jax.training.environments import ENVIRONMENTS

PROGRAM = launch.define(
    launch.Program(
        ENVIRONMENTS["atari100k"],
        "rcrl",
        "Pong",
        steps_help="agent steps to train for, 4 emulator frames each; of simple: all rounds",
        backend_help="Atari emulators; auto: envpool, or else ale",
        read_name=atari.plain_name,
    )
)
flags.adopt_module_key_flags(launch)

if __name__ == "__main__":
    launch.start(PROGRAM)
