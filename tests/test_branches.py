"""What each platform computes equals a slow reference in float64, gradients included.

A row of `ROWS` for each branch of each `platform_dependent`. All run on the CPU, compiled as users
compile, since fusion decides what a number is rounded to where it is read again. The arguments have
equal rows, zeros, ties and saturated entries.
"""

import ast
import collections
import contextlib
import functools
import pathlib
import sys
import types as pytypes
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import rcrl_jax
from rcrl_jax import augmentation, observations, types
from rcrl_jax.agents.rainbow import loss as c51
from rcrl_jax.agents.rainbow import network as rainbow
from rcrl_jax.agents.rainbow import noisy
from rcrl_jax.agents.rainbow.config import RainbowConfig
from rcrl_jax.agents.rainbow.encoders import data_efficient as encoders
from rcrl_jax.agents.rainbow.encoders import impala, nature
from rcrl_jax.agents.sac import network as sac
from rcrl_jax.agents.simple import model as simple_model
from rcrl_jax.agents.simple import network as simple
from rcrl_jax.config import fields
from rcrl_jax.config.base import ReturnContrastConfig
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.ops import adam, precision, products, strided_convolution
from rcrl_jax.replay.settings import ContrastRule
from rcrl_jax.return_contrast.task import make_return_contrast
from rcrl_jax.tasks import task as auxiliary
from tests.ops import lax

PACKAGE = pathlib.Path(rcrl_jax.__file__).parent
AS_USERS = {"xla_backend_optimization_level": 3, "xla_cpu_use_fusion_emitters": True}


class Case(NamedTuple):
    """A function that reads a branch, and what it should compute."""

    function: Callable[..., Any]
    reference: Callable[..., Any]  # by other means, in float64
    arguments: tuple
    by: tuple[int, ...] = ()  # arguments with a gradient
    error: float = 0.0  # relative to the largest number of an array
    equal_rows: bool = False  # the first two rows of each output, bit for bit


def draw(*shape, seed=0, scale=1.0) -> np.ndarray:
    return (scale * np.random.default_rng(seed).normal(size=shape)).astype(np.float32)


def images(*shape) -> np.ndarray:
    """Two equal images, a black one, a white one, and others."""
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    pixels[1], pixels[2], pixels[3] = pixels[0], 0, 255
    return pixels


def rows_of(*shape) -> np.ndarray:
    """Two equal rows, one of zeros, one of large numbers, and others."""
    x = draw(*shape)
    x[1], x[2], x[3] = x[0], 0, 1e3 * x[3]
    return x


def layer(*shape, seed=0):
    """A kernel and a bias; the first filter is zero, so that its ReLU reads zeros."""
    kernel, bias = draw(*shape, seed=seed, scale=np.prod(shape[:-1]) ** -0.5), draw(shape[-1])
    kernel[..., 0], bias[0] = 0, 0
    return {"kernel": kernel, "bias": bias}


# SAC


def sac_layers(channels):
    sizes = (channels, 8, 8, 8)
    layers = [layer(3, 3, size, 8, seed=i) for i, size in enumerate(sizes)]
    return {"params": {f"_Convolution_{i}": x for i, x in enumerate(layers)}}


def slow_features(params, observation):
    x = jnp.concatenate([observation[:, c] for c in range(3)], -1) / 255.0
    for i, stride in enumerate(sac.STRIDES):
        x = jax.nn.relu(lax.convolve(x, *of_layer(params, f"_Convolution_{i}"), stride))
    return x.reshape(len(x), -1)


def of_layer(params, name):
    return params["params"][name]["kernel"], params["params"][name]["bias"]


def sac_convolutions() -> Case:
    arguments = sac_layers(9), images(6, 3, 22, 22, 3)  # no layer reads the last row and column
    return Case(sac.Convolutions(8).apply, slow_features, arguments, (0,), 1e-5, True)


def sac_product() -> Case:
    dimensions = ((1,), (0,)), ((), ())
    arguments = rows_of(6, 320), draw(320, 5, seed=1)
    return Case(
        lambda x, k: sac._multiply(x, k, dimensions), jnp.matmul, arguments, (0, 1), 1e-5, True
    )


def sac_decoder() -> Case:
    decoder = sac.Decoder(4, 17, 3)
    side = sac.conv_sizes(17)[-1]
    layers = {"Dense_0": layer(5, side * side * 4)}
    for i, channels in enumerate((4, 4, 4, 3)):
        layers[f"_Convolution_{i}"] = layer(3, 3, 4, channels, seed=i)

    def slow(params, psi):
        kernel, bias = of_layer(params, "Dense_0")
        x = jax.nn.relu(psi @ kernel + bias[None]).reshape(-1, side, side, 4)
        for i, stride in enumerate(reversed(sac.STRIDES)):
            parameters = of_layer(params, f"_Convolution_{i}")
            x = lax.convolve(x, *parameters, 1, [(2, 2)] * 2, lhs_dilation=(stride, stride))
            x = jax.nn.relu(x) if stride == 1 else x
        return x

    return Case(decoder.apply, slow, ({"params": layers}, rows_of(6, 5)), (0, 1), 1e-5, True)


def sac_encoding() -> Case:
    """Psi and features of a batch, and psi of another."""
    changes = {"filters": 8, "embedding_size": 5, "hidden_size": 4, "crop_size": 21}
    config = fields.replace(DMC_PRESETS["pixel_sac"], changes)
    formats = pytypes.SimpleNamespace(network_shape=(3, 21, 21, 3))
    model = sac.make_model(config, formats, 2)
    features = sac.conv_sizes(21)[-1] ** 2 * 8

    def embedding(seed):
        dense = layer(features, 5, seed=seed)
        norm = {"scale": 1 + draw(5, seed=seed) / 9, "bias": draw(5)}
        return {"params": {"Dense_0": dense, "LayerNorm_0": norm}}

    critic = sac.CriticParams(sac_layers(9), embedding(7), {})

    def embed(params, x):
        kernel, bias = of_layer(params, "Dense_0")
        x = x @ kernel + bias[None]
        x = (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
        norm = params["params"]["LayerNorm_0"]
        return x * norm["scale"][None] + norm["bias"][None]

    def slow(critic, first, other):
        x, y = (slow_features(critic.convolutions, images) for images in (first, other))
        return embed(critic.embedding, x), x, [embed(critic.embedding, y)]

    pixels = images(10, 3, 21, 21, 3)
    return Case(model.encode, slow, (critic, pixels[:6], pixels[6:]), (0,), 1e-4)


# Networks of Atari


def noise_case() -> Case:
    sizes = {"a": (3, 4), "b": (4, 2)}

    def slow(key):
        inputs, outputs = (
            np.float64(jax.random.normal(k, (7,), jnp.float32)) for k in jax.random.split(key)
        )
        f = [np.sign(x) * np.sqrt(np.abs(x)) for x in (inputs, outputs)]
        return {"a": (f[0][:3], f[1][:4]), "b": (f[0][3:7], f[1][4:6])}

    return Case(lambda key: noisy.draw_noise(key, sizes), slow, (jax.random.key(3),), (), 1e-6)


def nature_convolution() -> Case:
    arguments = rows_of(8, 12, 12, 3), draw(4, 4, 3, 5)

    def slow(x, kernel):
        return lax.convolve(x, kernel, stride=2)

    return Case(lambda x, k: nature.convolve(x, k, 2), slow, arguments, (0, 1), 1e-5, True)


def nature_encoding() -> Case:
    layers, channels = {}, 4
    for i, (filters, side, _) in enumerate(nature._LAYERS, start=1):
        own = layer(side, side, channels, filters, seed=i)
        layers |= {f"conv{i}_{name}": array for name, array in own.items()}
        channels = filters
    stacks = images(5, 4, 84, 84)

    def slow(params, stacks):
        x = jnp.moveaxis(jnp.asarray(stacks), 1, -1) / 255.0
        for i, (_, _, stride) in enumerate(nature._LAYERS, start=1):
            kernel, bias = (params["params"][f"conv{i}_{name}"] for name in ("kernel", "bias"))
            x = jax.nn.relu(lax.convolve(x, kernel, bias, stride))
        return x.reshape(len(x), -1)

    arguments = {"params": layers}, stacks
    return Case(nature.NatureEncoder().apply, slow, arguments, (0,), 1e-4)


def impala_convolution() -> Case:
    """Of which the residual blocks have ReLU in one layer of two."""
    layers = [impala.Convolution(8, relu=relu) for relu in (True, False)]
    params = [{"params": layer(3, 3, 8, 8, seed=i)} for i in range(2)]

    def function(x, *params):
        for module, own in zip(layers, params, strict=True):
            x = module.apply(own, x)
        return x

    def slow(x, first, second):
        (k1, b1), (k2, b2) = ((p["params"]["kernel"], p["params"]["bias"]) for p in (first, second))
        return lax.convolve(jax.nn.relu(lax.convolve(x, k1, b1, 1, "SAME")), k2, b2, 1, "SAME")

    return Case(function, slow, (rows_of(6, 7, 5, 8), *params), (0, 1, 2), 1e-5, True)


def patches_encoding() -> Case:
    layers = {}
    for number, shape in ((1, (5, 5, 4, 32)), (2, (5, 5, 32, 64))):
        own = layer(*shape, seed=number)
        layers |= {f"conv{number}_{name}": array for name, array in own.items()}
    stacks = images(7, 4, 84, 84)
    patches = np.asarray(observations.PATCHES.stack(stacks))

    def encode(params, *batches):
        return encoders.DataEfficientEncoder().apply(params, batches, method="encode_each")

    def slow(params, *_):
        w1, b1, w2, b2 = (
            params["params"][f"conv{i}_{name}"] for i in (1, 2) for name in ("kernel", "bias")
        )
        x = jnp.moveaxis(jnp.asarray(stacks), 1, -1) / 255.0
        x = jax.nn.relu(lax.convolve(x, w1, b1, 5))
        x = jax.nn.relu(lax.convolve(x, w2, b2, 5)).reshape(len(stacks), -1)
        return x[:3], x[3:]

    arguments = {"params": layers}, patches[:3], patches[3:]
    return Case(encode, slow, arguments, (0,), 1e-4)


# SimPLe


def exact_prediction() -> simple.Prediction:
    """Whole numbers, so that many logits are equal; the first two rows, zeros, large logits."""
    rng = np.random.default_rng(0)
    features, kernel, bias = (
        rng.integers(-2, 3, shape).astype(np.float32) for shape in ((4, 3, 2, 5), (5, 768), (768,))
    )
    features[1], features[2], features[3] = features[0], 0, 100 * features[3]
    return simple.Prediction(features, kernel, bias, np.zeros((4, 3), np.float32))


def slow_logits(prediction):
    logits = prediction.features @ prediction.kernel + prediction.bias[None, None, None]
    return logits.reshape(*logits.shape[:-1], 3, 256)


def simple_frame() -> Case:
    def slow(prediction):
        return np.argmax(slow_logits(prediction), -1).astype(np.float64)

    return Case(lambda prediction: prediction.frame, slow, (exact_prediction(),), equal_rows=True)


def simple_most_likely() -> Case:
    """The logits are a product and a sum, which a fusion computes again and may contract."""
    x = np.round(rows_of(6, 4, 256), 1)
    scale, bias = np.full((1, 4, 1), 0.1, np.float32), np.full((1, 4, 1), 0.3, np.float32)

    def function(x, scale, bias):
        return simple.most_likely(x * scale + bias)

    def slow(x, scale, bias):
        return np.argmax(np.asarray(x), -1).astype(np.float64)  # the first of equal numbers

    return Case(function, slow, (x, scale, bias), equal_rows=True)


def simple_loss() -> Case:
    """Saturated logits: their loss is 0 below the cutoff, and has no gradient."""
    prediction = exact_prediction()
    label = np.random.default_rng(1).integers(0, 256, (4, 3, 2, 3), np.int32)
    label[0] = np.argmax(slow_logits(prediction), -1)[0]

    def slow(prediction, label):
        log = jax.nn.log_softmax(slow_logits(prediction))
        own = jnp.take_along_axis(log, label[..., None], axis=-1)[..., 0]
        return jnp.mean(jnp.where(-own > 2.0, -own - 2.0, 0.0))

    return Case(
        lambda p, label: simple_model.loss_of_pixels(p, label, 2.0), slow, (prediction, label),
        (0,), 1e-5,
    )  # fmt: skip


# Others


def small_product() -> Case:
    """Transposes x for the wide weights, the gradient for the narrow ones."""

    def multiply_each(x, narrow, wide):
        return products.multiply(x, narrow), products.multiply(x, wide)

    def slow(x, narrow, wide):
        return x @ narrow, x @ wide

    arguments = rows_of(24, 40), draw(40, 3), draw(40, 80)
    return Case(multiply_each, slow, arguments, (0, 1, 2), 1e-5, True)


def product_in_tf32() -> Case:
    arguments = rows_of(6, 40), draw(40, 5)
    return Case(
        precision.at_precision(jnp.matmul, "tf32"), jnp.matmul, arguments, (0, 1), 1e-5, True
    )


def strided() -> Case:
    def slow(x, kernel, bias):
        return lax.convolve(x, kernel, bias, 2)

    arguments = rows_of(6, 7, 8, 3), draw(4, 4, 3, 5), draw(5)
    return Case(strided_convolution.convolve, slow, arguments, (0, 1, 2), 1e-5, True)


def strided_transposed() -> Case:
    def slow(x, kernel, bias):
        return lax.convolve(x, kernel[::-1, ::-1], bias, 1, [(3, 3)] * 2, lhs_dilation=(2, 2))

    arguments = rows_of(6, 5, 4, 3), draw(4, 4, 3, 5), draw(5)
    return Case(strided_convolution.convolve_transposed, slow, arguments, (0, 1, 2), 1e-5, True)


def crop() -> Case:
    pixels = images(6, 2, 9, 8, 3)
    row, column = np.array([0, 0, 4, 1, 4, 3]), np.array([3, 3, 0, 2, 3, 1])

    def slow(pixels, row, column):
        cut = [p[:, i : i + 5, j : j + 5] for p, i, j in zip(pixels, row, column, strict=True)]
        return np.stack(cut)

    return Case(lambda *a: augmentation._crop(*a, 5), slow, (pixels, row, column), equal_rows=True)


def adam_steps() -> Case:
    """Three steps: of zeros at some places, clipped; not due."""
    params = {"a": draw(4, 3), "b": draw(5, seed=1)}
    gradients = {"a": draw(4, 3, seed=2, scale=9.0), "b": np.zeros(5, np.float32)}
    mine = adam.make_adam(0.1, eps=1e-4, max_norm=1.0)

    def function(params, gradients):
        state, norms = mine.init(params), []
        for due in (True, False, True):
            params, state, norm = mine.step(gradients, state, params, due)
            gradients = jax.tree.map(lambda x: 0.01 * x, gradients)
            norms.append(norm)
        return params, norms

    def slow(params, gradients):
        norms, t = [], 0
        m = {k: np.zeros(x.shape) for k, x in params.items()}
        v = {k: np.zeros(x.shape) for k, x in params.items()}
        for due in (True, False, True):
            norms.append(np.sqrt(sum(np.sum(np.square(g)) for g in gradients.values())))
            t += due
            for k, g in gradients.items() if due else ():
                g = g / max(norms[-1], 1.0)
                m[k], v[k] = 0.9 * m[k] + 0.1 * g, 0.999 * v[k] + 0.001 * g**2
                root = np.sqrt(v[k] / (1 - 0.999**t))
                params = params | {k: params[k] - 0.1 * (m[k] / (1 - 0.9**t)) / (root + 1e-4)}
            gradients = {k: 0.01 * g for k, g in gradients.items()}
        return params, norms

    return Case(function, slow, (params, gradients), (), 1e-5)


def cross_entropy() -> Case:
    """Equal rows, equal values, the largest value at an invalid action, saturated logits."""
    n, actions, atoms = 6, 4, c51.support(2.0, 5)
    logits, target, selector = (draw(n, actions, 5, seed=i, scale=2.0) for i in range(3))
    for x in (logits, target, selector):
        x[1], x[2] = x[0], 0
        x[3] *= 50
    selector[4] = selector[4, :1]  # all actions tie
    selector[5, 3] = np.array([0, 0, 0, 0, 99])
    action = np.array([1, 1, 0, 2, 1, 0], np.int32)
    reward = np.array([0.3, 0.3, -9, 9, 1, 0], np.float32)
    discount = np.array([0.8, 0.8, 0.8, 0.5, 0, 1], np.float32)

    def function(*arguments):
        return c51.double_q_cross_entropy(*arguments, atoms, 3)

    def slow(logits, action, reward, discount, target, selector):
        z, losses = np.linspace(-2.0, 2.0, 5), []
        for i in range(n):
            best = np.argmax(np.sum(jax.nn.softmax(selector[i, :3]) * z[None], -1))
            moved = jnp.clip(reward[i] + discount[i] * z, -2, 2)
            weight = jnp.clip(1 - jnp.abs(moved[:, None] - z[None]), 0, 1)  # the atoms' gap is 1
            projected = jnp.sum(jax.nn.softmax(target[i, best])[:, None] * weight, axis=0)
            losses.append(-jnp.sum(projected * jax.nn.log_softmax(logits[i, action[i]])))
        return jnp.stack(losses)

    arguments = logits, action, reward, discount, target, selector
    return Case(function, slow, arguments, (0,), 1e-5, True)


def contrast(reads: str) -> Case:
    """A quarter of the positives are their anchors; half of the others' components are equal.

    Where components are equal, |x - y| has JAX's derivative at +0: 1 by x and -1 by y.
    """
    n, d = 64, 576
    config = ReturnContrastConfig(discriminator_input=reads)
    parts = auxiliary.AgentParts(
        None, None, lambda vectors, psi, action: psi * jnp.take(vectors, action, axis=0), None,
        d, d, ContrastRule(), n,
    )  # fmt: skip
    task = make_return_contrast(parts, RainbowConfig(return_contrast=config))
    params = jax.tree.map(np.asarray, task.init(jax.random.key(0)))
    psi = [np.maximum(draw(n, d, seed=i), 0) for i in range(3)]
    psi[1][:16] = psi[0][:16]
    psi[1][16:, :288] = psi[0][16:, :288]
    psi[2][:, 288:] = psi[0][:, 288:]
    vectors = np.random.default_rng(3).uniform(0.9, 1.1, (6, d)).astype(np.float32)
    action = np.random.default_rng(4).integers(0, 6, n).astype(np.int32)

    def function(vectors, params, *psi):
        batch = types.Batch(None, types.ContrastBatch(*[types.Pairs(None, action)] * 3))
        view = auxiliary.UpdateView(vectors, None, None, batch, None, psi)
        return task.loss(params, view, None, None)[0]

    def slow(vectors, params, *psi):
        x, *others = (x * vectors[action] for x in psi)
        errors = []
        for y, label in zip(others, (0.0, 1.0), strict=True):
            pair = [x, y]
            if reads == "difference_product":
                pair = [jnp.where(x >= y, 1.0, -1.0) * (x - y), x * y]
            h = jnp.concatenate(pair, axis=-1)
            for i in range(config.discriminator_layers):
                kernel, bias = of_layer(params, f"Dense_{i}")
                h = jax.nn.relu(h @ kernel + bias[None])
            kernel, bias = of_layer(params, f"Dense_{config.discriminator_layers}")
            logit = (h @ kernel + bias[None])[:, 0]
            errors.append(
                jnp.square(jax.nn.sigmoid(logit) - label)
                if config.loss == "squared_error"
                else jax.nn.softplus(-logit if label else logit)
            )
        return jnp.mean(jnp.concatenate(errors))

    return Case(function, slow, (vectors, params, *psi), (0, 1, 2, 3, 4), 1e-5)


def table():
    """Module, function, branch, case."""
    cases = (
        ("agents/sac/network.py", "Convolutions.__call__", "cpu", sac_convolutions),
        ("agents/sac/network.py", "_multiply", "cuda", sac_product),
        ("agents/sac/network.py", "Decoder.__call__", "cpu", sac_decoder),
        ("agents/rainbow/noisy.py", "draw_noise", "cpu", noise_case),
        ("agents/simple/network.py", "Prediction.frame", "tpu", simple_frame),
        ("agents/simple/network.py", "most_likely", "cpu", simple_most_likely),
        ("agents/rainbow/encoders/nature.py", "convolve", "cuda", nature_convolution),
        ("agents/rainbow/encoders/nature.py", "NatureEncoder.__call__", "cpu", nature_encoding),
        ("agents/rainbow/encoders/impala.py", "Convolution.__call__", "cpu", impala_convolution),
        ("ops/precision.py", "at_precision.at_its_precision", "cuda", product_in_tf32),
        ("ops/products.py", "_multiply_backward", "cpu", small_product),
        ("agents/rainbow/encoders/data_efficient.py", "encode_each", "cpu", patches_encoding),
        ("ops/strided_convolution.py", "_for_platforms.either", "cpu", strided),
        ("ops/strided_convolution.py", "_for_platforms.backward", "cpu", strided_transposed),
        ("augmentation.py", "_crop", "tpu", crop),
        ("agents/simple/model.py", "loss_of_pixels", "tpu", simple_loss),
        ("agents/sac/network.py", "make_model.encode", "cpu", sac_encoding),
        ("ops/adam.py", "make_adam.step", "cpu", adam_steps),
        ("agents/rainbow/loss.py", "double_q_cross_entropy", "cpu", cross_entropy),
        *(
            ("return_contrast/task.py", "make_return_contrast.loss", "cpu",
             functools.partial(contrast, reads))
            for reads in ("difference_product", "concatenation")
        ),
    )  # fmt: skip
    return [
        (module, function, branch, case)
        for module, function, named, case in cases
        for branch in (named, "default")
    ]


ROWS = table()


def branches_of_source() -> collections.Counter:
    """Every branch of every `platform_dependent` of the package: module, function, branch."""
    found = collections.Counter()

    def visit(node, module, inside):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inside = (*inside, node.name)
        if isinstance(node, ast.Attribute | ast.Name | ast.alias):
            name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
            name = name or getattr(node, "name", "")
            found["mentions"] += name == "platform_dependent"
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "platform_dependent":
            found["mentions"] -= 1
            found.update((module, ".".join(inside), word.arg) for word in node.keywords)
        for child in ast.iter_child_nodes(node):
            visit(child, module, inside)

    for path in PACKAGE.rglob("*.py"):
        visit(ast.parse(path.read_text()), str(path.relative_to(PACKAGE)), ())
    assert not found.pop("mentions"), "called by another name"
    return found


def test_every_branch_has_a_row():
    assert branches_of_source() == collections.Counter(row[:3] for row in ROWS)


@contextlib.contextmanager
def on_platform(monkeypatch, platform):
    """Takes a platform's branches on the CPU; yields the set of the branches taken."""
    taken = set()

    def choose(*operands, default=None, **branches):
        code = sys._getframe(1).f_code
        module = pathlib.Path(code.co_filename).relative_to(PACKAGE)
        branch = platform if platform in branches else "default"
        taken.add((str(module), code.co_qualname.replace(".<locals>", ""), branch))
        return branches.get(platform, default)(*operands)

    with monkeypatch.context() as patch:
        patch.setattr(jax.lax, "platform_dependent", choose)
        patch.setattr(precision, "_TF32_ON_CUDA", "tensorfloat32")  # which the CPU lacks
        yield taken


def outputs_and_gradients(function, arguments, by):
    """Of a function, and of a fixed weighted sum of all that it returns."""

    def weighted(*learned):
        full = list(arguments)
        for i, x in zip(by, learned, strict=True):
            full[i] = x
        outputs = function(*full)
        leaves = [jnp.asarray(x) for x in jax.tree.leaves(outputs)]
        weights = [draw(*x.shape, seed=i) for i, x in enumerate(leaves)]
        return sum(jnp.sum(x * w) for x, w in zip(leaves, weights, strict=True)), outputs

    if not by:
        return function(*arguments), ()
    learned = [arguments[i] for i in by]
    gradients, outputs = jax.grad(weighted, tuple(range(len(by))), has_aux=True)(*learned)
    return outputs, gradients


def identify(value) -> str:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize("module, function, branch, make", ROWS, ids=identify)
def test_a_branch_equals_its_reference(module, function, branch, make, monkeypatch):
    assert (module, function, branch) in check(make(), branch, monkeypatch)


def test_the_encoder_with_half_of_the_memory_equals_its_reference(monkeypatch):
    """`test_a_gpu_keeps_the_first_layer_in_float16_where_products_are_in_tf32` says where."""
    case = patches_encoding()
    in_tf32 = precision.at_precision(case.function, "tf32")
    check(case._replace(function=in_tf32, error=2e-3), "cuda", monkeypatch)


def check(case, platform, monkeypatch):
    """Compares a case with its reference; returns the branches taken."""
    with on_platform(monkeypatch, platform) as taken:
        traced = jax.jit(lambda *a: outputs_and_gradients(case.function, a, case.by))
        lowered = traced.lower(*case.arguments)
    found = lowered.compile(compiler_options=AS_USERS)(*case.arguments)

    def widen(x):
        is_float = isinstance(x, np.ndarray) and x.dtype == np.float32
        return jnp.asarray(x, jnp.float64) if is_float else x

    with jax.enable_x64(True):
        wide = jax.tree.map(widen, case.arguments)
        expected = outputs_and_gradients(case.reference, wide, case.by)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.float64(a), np.float64(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=case.error * np.abs(b).max())
    for x in jax.tree.leaves(found[0]) if case.equal_rows else ():
        np.testing.assert_array_equal(x[0], x[1])
    return taken


@pytest.mark.parametrize("platform", ["cpu", "cuda", "tpu"])
def test_equal_action_vectors_give_equal_logits(platform, monkeypatch):
    """So all actions tie before the first update, and agents play uniformly."""
    network = rainbow.RainbowNetwork(18, 51, 256, 0.1, "state_action", "data_efficient", "ones")
    patches = observations.PATCHES.stack(images(5, 4, 84, 84))
    key = jax.random.key(0)

    def logits(patches):
        params = network.init(key, patches, 18)
        psi = network.apply(params, patches, method="encode")
        return network.apply(params, psi, 18, network.draw_noise(key), method="logits_of")

    with on_platform(monkeypatch, platform):
        lowered = jax.jit(precision.at_precision(logits, "float32")).lower(patches)
    found = np.asarray(lowered.compile(compiler_options=AS_USERS)(patches))
    np.testing.assert_array_equal(found, np.broadcast_to(found[:, :1], found.shape))
    np.testing.assert_array_equal(found[0], found[1])
    assert np.ptp(found[:, 0], axis=0).max() > 0
