"""Package definition; `requirements.txt` holds the exact versions the tests run with."""

import importlib.util
import pathlib
import re

from setuptools import Extension, find_packages, setup

ROOT = pathlib.Path(__file__).parent


def read(path: str) -> str:
    """A file of this repository, whatever the locale."""
    return (ROOT / path).read_text(encoding="utf-8")


URL = ""  # of this repository, once it has one; nothing else names an address of it

COMMANDS = re.findall('"(rcrl-.+)":', read("rcrl_jax/programs/commands.py"))
VERSION = re.search(r'__version__ = "(.+)"', read("rcrl_jax/__init__.py"))[1]

# All are optional: without a compiler, or without JAX at the time of the build for those in C++,
# NumPy and XLA do the same more slowly. They also do so if this folder is deleted.
FOLDER = "rcrl_jax/ops/kernels"
HEADERS = [str(path.relative_to(ROOT)) for path in (ROOT / FOLDER).glob("*.h")]
KERNELS = [
    Extension(
        f"rcrl_jax.ops.kernels.{name}",
        [f"{FOLDER}/{name}.c"],
        depends=HEADERS,
        # No fused multiply-add: the kernels give the same bits as NumPy.
        extra_compile_args=["-O2", "-fno-fast-math", "-ffp-contract=off"],
        py_limited_api=True,
        optional=True,
    )
    for name in ("sum_tree", "stacks")
]
jaxlib = importlib.util.find_spec("jaxlib")
if jaxlib and jaxlib.origin:
    INCLUDE = pathlib.Path(jaxlib.origin).parent / "include"
    KERNELS += [
        Extension(
            f"rcrl_jax.ops.kernels._{name}",
            [f"{FOLDER}/{name}.cc"],
            # Those of jaxlib, too: kernels for another version of it cannot be called.
            depends=[*HEADERS, *map(str, (INCLUDE / "xla/ffi/api").glob("*.h"))],
            include_dirs=[str(INCLUDE)],
            extra_compile_args=[
                "-O3",
                "-std=c++17",
                "-fno-fast-math",
                "-fno-math-errno",
                "-Wno-psabi",
                contraction,
            ],
            language="c++",
            py_limited_api=True,
            optional=True,
        )
        for name, contraction in (
            ("convolution", "-ffp-contract=fast"),
            ("encoder", "-ffp-contract=fast"),
            ("adam", "-ffp-contract=off"),
        )
    ]

setup(
    name="rcrl-jax",
    version=VERSION,
    description="Return-based contrastive representation learning for RL in JAX",
    long_description=read("README.md"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    project_urls={"Source": URL} if URL else {},
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["rcrl_jax*"]),
    entry_points={
        "console_scripts": [f"{name} = rcrl_jax.programs.commands:run" for name in COMMANDS]
    },
    ext_modules=KERNELS,
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
    package_data={
        "rcrl_jax": ["py.typed"],
        "rcrl_jax.reference": ["data/*.csv", "README.md"],
        "rcrl_jax.tables": ["data/*", "templates/*"],
    },
    # From the oldest to the newest versions that were tested.
    install_requires=[
        "absl-py>=2.1,<3",
        "ale-py>=0.12,<0.13",
        "chex>=0.1.90,<0.2",
        # Requires labmaze, which has no wheel for Python 3.13.
        'dm-control>=1.0.28,<2; python_version < "3.13"',
        "dm-env>=1.6,<2",
        # Later ones cannot be imported without the system's libEGL, not even for Atari.
        "envpool>=1.2.5,<1.2.6",
        "filelock>=3,<5",  # bounds the folder of compiled programs
        "flax>=0.12,<0.13",
        "gymnasium>=1.1,<2",  # ale-py's vector of environments needs it
        "imageio-ffmpeg>=0.6,<1",
        "jax>=0.10,<0.11",
        "matplotlib>=3.9,<4",
        "mujoco>=3,<4",  # dm-control 1.0.50 fails with mujoco 4
        "numpy>=2,<3",
        "optax>=0.2.8,<0.3",
        "orbax-checkpoint>=0.11,<0.13",
        "pillow>=11,<14",
        "psutil>=6,<8",
        "rich>=15,<16",
        "rlax>=0.1.9,<0.2",
        "scipy>=1.14,<2",
        "tensorboardX>=2.6,<3",
    ],
    extras_require={
        "cuda12": ["jax[cuda12]>=0.10,<0.11"],
        "cuda13": ["jax[cuda13]>=0.10,<0.11"],
        "ray": ["ray>=2.60,<3"],
        # Tables, figures and the page of rcrl_jax/tables/.
        "tables": ["jinja2>=3.1,<4", "markupsafe>=3,<4", "pandas>=3,<4"],
        "tpu": ["jax[tpu]>=0.10,<0.11"],
        "wandb": ["wandb>=0.29,<0.30"],
    },
    classifiers=[
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
    ],
)
