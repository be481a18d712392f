"""What all tests share."""

import os
import tempfile

import pytest

# Most tests of training compile the same small programs, some of them in processes of their own:
# a compiled program is kept for as long as the tests run. Set before JAX is imported.
_CACHE = tempfile.TemporaryDirectory(prefix="compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _CACHE.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.5"


@pytest.fixture
def renderer() -> str:
    """What DMControl renders with; a test that needs it is skipped where nothing does."""
    from rcrl_jax.envs import dmc

    try:
        return dmc.find_renderer()
    except dmc.RendererUnavailable as unavailable:
        pytest.skip(str(unavailable))
