"""What all tests share."""

import os
import tempfile

import pytest

# Most of the tests' time would be the compiler's. Set before JAX is imported: small programs that
# run for seconds need no optimised code (`test_fleet_devices.py` holds the exactness of fleets at
# the default level), and a compiled program is kept for as long as the tests run, for processes of
# their own as well.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
_CACHE = tempfile.TemporaryDirectory(prefix="compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"


@pytest.fixture
def renderer() -> str:
    """What DMControl renders with; a test that needs it is skipped where nothing does."""
    return _found_or_skipped("find_renderer")


@pytest.fixture
def envpool_renderer() -> str:
    """What envpool renders with; a test that needs it is skipped where it does not."""
    return _found_or_skipped("find_envpool_renderer")


def _found_or_skipped(find: str) -> str:
    from rcrl_jax.envs import dmc

    try:
        return getattr(dmc, find)()
    except dmc.RendererUnavailable as unavailable:
        pytest.skip(str(unavailable))
