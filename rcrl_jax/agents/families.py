"""Which agent a configuration is of."""

from rcrl_jax.agents import rainbow, sac
from rcrl_jax.agents.agent import Agent
from rcrl_jax.config import Config, SacConfig
from rcrl_jax.envs.protocol import EnvironmentSpec


def make_agent(config: Config, spec: EnvironmentSpec) -> Agent:
    """The agent of a preset, of whatever family, for an environment."""
    family = sac if isinstance(config, SacConfig) else rainbow
    return family.make_agent(config, spec)
