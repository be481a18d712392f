"""All products of an agent have the configured precision, and it is what its name says anywhere.

What a program asks for is read from StableHLO; what a TPU does, from its compiler where that is.
"""

import dataclasses
import functools
import importlib.util
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core

from rcrl_jax import types
from rcrl_jax.agents.agent import TRAINING
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.agents.rainbow.encoders import data_efficient as encoders
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.ops import device_convolutions, precision
from rcrl_jax.training import prediction
from tests.training import toy

COMPILERS = toy.ROOT / ".compilers" / "tpu"


def products(jaxpr):
    """The precisions of all matrix products, including those of inner programs."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield equation.params["precision"]
        for inner in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda x: hasattr(x, "eqns")
        ):
            if isinstance(inner, core.ClosedJaxpr):
                yield from products(inner.jaxpr)
            elif hasattr(inner, "eqns"):
                yield from products(inner)


def test_all_products_of_an_agent_have_its_precision():
    """In tf32, which differs between platforms."""
    expected = {(jax.lax.Precision.HIGH,) * 2, jax.lax.DotAlgorithmPreset.TF32_TF32_F32}
    config = dataclasses.replace(ATARI_PRESETS["rcrl"], precision="tf32")
    agent = make_agent(config, discrete_spec((84, 84), 6))
    constants = agent.run_constants("Alien")
    run, key = types.RunSpec(np.int32(6), constants), jax.random.key(0)
    state = jax.eval_shape(agent.init, run, key)
    batch = jax.tree.map(lambda x: x[0], prediction.empty_batch(agent, 1, "host"))
    updating = list(products(jax.make_jaxpr(agent.update)(run, state, batch).jaxpr))
    # Five passes through encoder and head, most of them differentiated.
    assert len(updating) > 40 and set(updating) == expected

    observation = batch.transitions.observation
    acting = jax.make_jaxpr(agent.act, static_argnums=5)(
        run, state.params.agent, observation, (), key, TRAINING, np.int32(0)
    )
    assert set(products(acting.jaxpr)) == expected


def product(x, y):
    return x @ y


def with_gradients(function, *arguments):
    """The sum of outputs, and its gradients by all arguments but the images, which come first."""
    by = tuple(range(1, len(arguments)))
    return jax.value_and_grad(lambda *a: function(*a).sum(), argnums=by)(*arguments)


def encode(pixels, *kernels):
    return encoders.encode_each((pixels,), *kernels)[0]


def convolve(pixels, *parameters):
    layers = list(zip(parameters[::2], parameters[1::2], strict=True))
    return device_convolutions.encode(pixels, layers)


def shapes(*of_floats, pixels=None):
    own = [] if pixels is None else [jax.ShapeDtypeStruct(pixels, jnp.uint8)]
    return [*own, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in of_floats)]


FUNCTIONS = {
    "product": (product, shapes((256, 512), (512, 384))),
    "pixels": (
        encode,
        shapes((5, 5, 4, 32), (32,), (5, 5, 32, 64), (64,), pixels=(64, 225, 4, 25)),
    ),
    "convolution": (
        convolve,
        shapes((3, 3, 9, 32), (32,), (3, 3, 32, 32), (32,), pixels=(32, 40, 40, 9)),
    ),
}

ASKED = {
    ("float32", "cuda"): "precision = [HIGHEST, HIGHEST]",
    ("float32", "tpu"): "precision = [HIGHEST, HIGHEST]",
    ("tf32", "cuda"): "lhs_precision_type = tf32, rhs_precision_type = tf32, "
    "accumulation_type = f32",
    ("tf32", "tpu"): "precision = [HIGH, HIGH]",
    ("bfloat16", "cuda"): "lhs_precision_type = bf16, rhs_precision_type = bf16, "
    "accumulation_type = f32",
    ("bfloat16", "tpu"): "lhs_precision_type = bf16, rhs_precision_type = bf16, "
    "accumulation_type = f32",
}
# Of a convolution nothing else can be asked: [DEFAULT] is TF32 with cuDNN.
ASKED_OF_CONVOLUTIONS = {
    ("float32", "cuda"): "HIGHEST",
    ("float32", "tpu"): "HIGHEST",
    ("tf32", "cuda"): "DEFAULT",
    ("tf32", "tpu"): "HIGH",
}


@functools.cache
def traced(name: str, setting: str):
    function, arguments = FUNCTIONS[name]
    function = precision.at_precision(functools.partial(with_gradients, function), setting)
    return jax.jit(function).trace(*arguments)


def lines_of_products(name: str, setting: str, platform: str) -> list[str]:
    text = traced(name, setting).lower(lowering_platforms=(platform,)).as_text()
    return [line for line in text.splitlines() if re.search(r"dot_general|convolution\(", line)]


@pytest.mark.parametrize("name", ["product", "pixels"])
@pytest.mark.parametrize("setting, platform", ASKED)
def test_a_product_asks_each_platform_for_its_precision(name, setting, platform):
    lines = lines_of_products(name, setting, platform)
    assert lines and all(ASKED[setting, platform] in line for line in lines)


@pytest.mark.parametrize("setting, platform", ASKED_OF_CONVOLUTIONS)
def test_a_convolution_asks_each_platform_for_its_precision(setting, platform):
    lines = lines_of_products("convolution", setting, platform)
    # Printed as `#stablehlo<precision HIGH>`; nothing is printed where nothing is asked.
    asked = {tuple(re.findall(r"<precision (\w+)>", line)) or ("DEFAULT",) * 2 for line in lines}
    assert lines and asked == {(ASKED_OF_CONVOLUTIONS[setting, platform],) * 2}


@pytest.mark.parametrize("setting, platform", ASKED)
def test_a_gpu_keeps_the_first_layer_in_float16_where_products_are_in_tf32(setting, platform):
    text = traced("pixels", setting).lower(lowering_platforms=(platform,)).as_text()
    assert ("xf16>" in text) == ((setting, platform) == ("tf32", "cuda"))


# Compiles a product for a TPU, small enough that its kernel has no loop over parts of it.
COMPILE = """
import sys

import jax, numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from rcrl_jax.ops import precision

topology = topologies.get_topology_desc(platform="tpu", topology_name="v5e:2x2")
mesh = Mesh(np.array(topology.devices[:1]), "x")
here = NamedSharding(mesh, PartitionSpec())
shapes = [jax.ShapeDtypeStruct(s, np.float32, sharding=here) for s in ((64, 128), (128, 128))]
product = jax.jit(precision.at_precision(lambda x, y: x @ y, sys.argv[1]))
product.trace(*shapes).lower(lowering_platforms=("tpu",)).compile()
"""


def passes_of_a_tpu(setting: str, folder) -> float:
    """How often the rows of a product's left side enter the matrix units of a v5e."""
    environment = {
        "PATH": "", "JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1", "PYTHONPATH": f"{toy.ROOT}:{COMPILERS}",
        "LIBTPU_INIT_ARGS": f"--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true",
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", COMPILE, setting], env=environment, check=True, capture_output=True
    )
    texts = [
        path.read_text(errors="replace")
        for path in folder.glob("*fusion*-final_bundles.txt")
        if "schedule" not in path.name
    ]
    # An instruction takes 8 rows of float32, which the unit rounds, or 16 of bfloat16.
    rows = sum(8 * t.count("vmatmul.f32") + 16 * t.count("vmatmul.bf16") for t in texts)
    return rows / 64


@pytest.mark.skipif(
    not COMPILERS.exists() and not importlib.util.find_spec("libtpu"), reason="libtpu is missing"
)
def test_a_tpu_takes_passes_of_bfloat16(tmp_path):
    assert passes_of_a_tpu("tf32", tmp_path) == 3
