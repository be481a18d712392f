"""Settings and fixtures of all tests."""

import gc
import os
import pathlib
import signal
import sys

import hypothesis
import pytest

from rcrl_jax import compilation

_ROOT = pathlib.Path(__file__).parents[1]

# Set before JAX is imported; tests that start processes pass them on.
# Compilation would take most of the time of the tests. Small programs that run for seconds need no
# optimised code (`test_fleet_devices.py` checks exactness at the default level), and all processes
# share compiled programs, with later runs on the same processor too; `make clean` deletes them.
FAST_COMPILATION = (
    "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false "
    "--xla_cpu_parallel_codegen_split_count=1"
)
os.environ.setdefault("XLA_FLAGS", FAST_COMPILATION)
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(compilation.folder(_ROOT / ".pytest_cache" / "compiled"))
)
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.1"
# An operation on arrays of different rank is an error unless one is a scalar: the added axis must
# be written, because a batch axis would otherwise align with the wrong one unnoticed.
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")
# Tracing makes so many objects that last that the collector, at its default of 700 new ones, takes
# an eighth of the time of a test that traces.
gc.set_threshold(200_000, 50, 100)


# Modules that train, start programs or compile many updates; `make test-fast` leaves them out.
SLOW = {
    "agents": ("test_world_models",),
    "benchmarks": ("test_base", "test_benchmarks", "test_claim", "test_first_look", "test_peers"),
    "compiled": ("test_compiled",),
    "endurance": ("test_exactness", "test_kills", "test_soak"),
    "envs": ("test_atari", "test_dmc"),
    "kernels": ("test_cores", "test_encoder", "test_threefry"),
    "ops": ("test_convolution", "test_device_convolutions", "test_precision"),
    "rainbow": ("test_agent", "test_network"),
    "recurrent": ("test_network",),
    "programs": (
        "test_atari100k", "test_commands", "test_dmc", "test_doctor", "test_evaluate",
        "test_first_run", "test_refusals", "test_report", "test_sweep",
        "test_sweep_driver", "test_sweep_ray",
    ),
    "representation": ("test_analysis", "test_program"),
    "runs": ("test_checkpoints",),
    "sac": ("test_agent", "test_on_devices"),
    "simple": ("test_agent", "test_network", "test_program"),
    "slac": ("test_network",),
    "tables": ("test_claims", "test_commands", "test_page", "test_statistics"),
    "tasks": ("test_new_task",),
    "tests": ("test_docs", "test_notebooks", "test_rooms", "test_site"),
    "theory": (
        "test_return_distributions", "test_studies", "test_theory_command", "test_z_learning",
    ),
    "training": (
        "test_control", "test_control_learning", "test_damage", "test_device_programs",
        "test_experiment", "test_fleet", "test_fleet_devices", "test_golden", "test_learning",
        "test_loop", "test_portable", "test_scoring", "test_simple_training", "test_world_models",
    ),
}  # fmt: skip

# Each takes minutes. Started last, one of them would run alone at the end.
LONGEST = ("training/test_world_models", "training/test_portable", "simple/test_agent")


def _is_slow(path: pathlib.Path) -> bool:
    return path.stem in SLOW.get(path.parent.name, ())


def pytest_ignore_collect(collection_path, config):
    """Without slow tests their modules are not imported, which would take seconds."""
    return True if config.option.markexpr == "not slow" and _is_slow(collection_path) else None


def pytest_collection_modifyitems(items):
    """Marks the tests of slow modules; the longest modules come first, then other slow ones."""
    for item in items:
        if _is_slow(item.path):
            item.add_marker(pytest.mark.slow)
    items.sort(  # keeps the order within each of the three
        key=lambda item: (item.path.as_posix()[:-3].endswith(LONGEST), _is_slow(item.path)),
        reverse=True,
    )


def pytest_collection_finish():
    """Exempts what is imported by now from collection: it lasts, and there is a lot of it."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def bounded_memory():
    """Frees compiled programs after each module: they would add up to gigabytes."""
    yield
    if jax := sys.modules.get("jax"):
        jax.clear_caches()
        gc.collect()


@pytest.fixture
def hangup():
    """SIGHUP as programs of a terminal have it; what `nohup` starts, and all below, ignores it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def renderer() -> str:
    """The renderer of DMControl; skips the test where there is none."""
    return _found_or_skipped("find_renderer")


@pytest.fixture
def envpool_renderer() -> str:
    """The renderer of envpool; skips the test where there is none."""
    return _found_or_skipped("find_envpool_renderer")


def _found_or_skipped(find: str) -> str:
    from rcrl_jax.envs import dmc_rendering

    try:
        return getattr(dmc_rendering, find)()
    except dmc_rendering.RendererUnavailable as unavailable:
        pytest.skip(str(unavailable))
