r"""Counts page faults and processor time of an update, with and without `keep_freed_memory`.

    python -m benchmarks.page_faults                  # as training runs it
    python -m benchmarks.page_faults --nokeep         # with the C library's defaults

`--preset` names the agent.
"""

import resource
import sys

from absl import app, flags

from experiments import command_line
from rcrl_jax.config import presets
from rcrl_jax.training import host_memory

_KEEP = flags.DEFINE_bool("keep", True, "keep freed memory, as training does")
_UPDATES = flags.DEFINE_integer("updates", 50, "updates to count over", lower_bound=1)


def main(argv: list[str]) -> None:
    """Runs updates of one run on arrays of zeros and prints the cost of one."""
    del argv
    settings = command_line.read_config(presets.ATARI_PRESETS)
    if _KEEP.value:
        host_memory.keep_freed_memory(large_blocks=settings.needs_large_blocks)
    import jax
    import numpy as np

    from rcrl_jax import types
    from rcrl_jax.agents.make_agent import make_agent
    from rcrl_jax.envs.protocol import discrete_spec
    from rcrl_jax.training import prediction
    from rcrl_jax.training.fleet import Fleet

    agent = make_agent(settings, discrete_spec((84, 84), 6))
    constants = jax.tree.map(lambda x: x[None], agent.run_constants("Alien"))
    fleet = Fleet(agent, (0,), types.RunSpec(np.full(1, 6, np.int32), constants))
    batch = prediction.empty_batch(agent, 1, "host")

    learner = fleet.init()
    for update in range(3 + _UPDATES.value):
        if update == 3:  # the first ones compile and touch their memory for the first time
            jax.block_until_ready(learner)
            before = resource.getrusage(resource.RUSAGE_SELF)
        learner, _ = fleet.update(learner, batch)
        jax.block_until_ready(learner)
    after = resource.getrusage(resource.RUSAGE_SELF)
    for name, unit, scale in (
        ("ru_minflt", "page faults", 1.0),
        ("ru_utime", "ms of user time", 1e3),
        ("ru_stime", "ms of kernel time", 1e3),
    ):
        each = scale * (getattr(after, name) - getattr(before, name)) / _UPDATES.value
        print(f"{each:10.1f} {unit} an update")


if __name__ == "__main__":
    command_line.define_config(presets.ATARI_PRESETS, "rcrl", sys.argv)
    app.run(main, flags_parser=command_line.parse)
