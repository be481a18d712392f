"""A worker of DMControl whose simulations diverge once: MuJoCo itself raises the physics error."""

from rcrl_jax.envs import dmc_worker


def work(at: int, *arguments) -> None:
    """As `dmc_worker.work`; the `at`-th environment step of each simulation has no valid state."""
    from dm_control.rl import control

    step, counts = control.Environment.step, {}

    def diverging(environment, action):
        counts[id(environment)] = counts.get(id(environment), 0) + 1
        if counts[id(environment)] == at:
            environment.physics.data.qvel[:] = 1e20
        return step(environment, action)

    control.Environment.step = diverging
    dmc_worker.work(*arguments)
