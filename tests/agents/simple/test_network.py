"""SimPLe's networks: convolutions against XLA's, parts by hand, bits, numbers of parameters."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax.agents.simple import bits as simple_bits
from rcrl_jax.agents.simple import layers as simple_layers
from rcrl_jax.agents.simple import model as simple_model
from rcrl_jax.agents.simple import network as simple
from rcrl_jax.agents.simple.config import SimpleConfig

KEY = jax.random.key(0)


def unet(bits=None):
    return simple.UNet(
        8, compress_steps=1, double_steps=1, middle_layers=1, dropout=0.1, residual_dropout=0.5,
        bits=bits,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("side", "stride", "height", "width"),
    [(4, 2, 6, 8), (5, 2, 105, 80), (3, 1, 2, 5), (8, 4, 105, 9), (8, 4, 7, 80)],
)
def test_convolutions_equal_xla_s_with_padding_same(side, stride, height, width):
    x = jax.random.normal(KEY, (2, height, width, 3))
    layer = simple_layers.Convolution(4, side, stride)
    params = layer.init(KEY, x)
    params["params"]["bias"] = jnp.arange(4.0)
    expected = jax.lax.conv_general_dilated(
        x, params["params"]["kernel"], (stride, stride), "SAME",
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    ) + jnp.arange(4.0)[None, None, None]  # fmt: skip
    np.testing.assert_allclose(layer.apply(params, x), expected, rtol=1e-4, atol=1e-4)


def test_transposed_convolutions_are_the_transposes_of_convolutions():
    x = jax.random.normal(KEY, (2, 3, 4, 5))
    layer = simple_layers.TransposedConvolution(6)
    params = layer.init(KEY, x)
    kernel = params["params"]["kernel"].transpose(0, 1, 3, 2)

    def convolve(image):
        return jax.lax.conv_general_dilated(
            image, kernel, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )

    (expected,) = jax.linear_transpose(convolve, jnp.zeros((2, 6, 8, 6)))(x)
    np.testing.assert_allclose(layer.apply(params, x), expected, rtol=1e-4, atol=1e-5)


def test_frames_are_standardised_one_by_one_and_a_uniform_one_becomes_zero():
    frames = jnp.stack([jnp.zeros((2, 2, 3)), jnp.arange(12.0).reshape(2, 2, 3)])
    found = simple.standardise(frames)
    assert not found[0].any()
    column = (np.array([0, 3, 6, 9]) - 4.5) / np.sqrt(11.25)
    np.testing.assert_allclose(found[1, ..., 2].reshape(-1), column, rtol=1e-5)
    almost = jnp.zeros((2, 2, 3)).at[0, 0].set(0.4)  # a deviation of less than 1 / sqrt(4 pixels)
    assert simple.standardise(almost).max() == pytest.approx(0.3 / 0.5)


def test_the_timing_signal_has_sines_and_cosines_of_row_and_column():
    found = simple_layers.timing_signal(
        3, 4, 9
    )  # two timescales: 1 and 10,000 pixels; a channel is left
    assert found.shape == (3, 4, 9)
    slow = 2 / 10_000
    row = [np.sin(2), np.sin(slow), np.cos(2), np.cos(slow)]
    column = [np.sin(3), np.sin(3 / 10_000), np.cos(3), np.cos(3 / 10_000)]
    np.testing.assert_allclose(found[2, 3], [*row, *column, 0], rtol=1e-6)


def test_an_action_gates_images_and_adds_to_them_and_action_0_is_the_zero_vector():
    embedding = simple_layers.ActionEmbedding(3, 4)
    params = embedding.init(KEY, jnp.array([0]))
    vectors = embedding.apply(params, jnp.array([0, 2]))
    table = params["params"]["table"]
    assert not vectors[0].any()
    np.testing.assert_allclose(vectors[1], 2 * table[2], rtol=1e-6)  # times the root of 4
    more = simple_layers.ActionEmbedding(5, 4).init(KEY, jnp.array([0]))["params"]["table"]
    np.testing.assert_array_equal(more[:3], table)

    injection = simple_layers.Injection()
    x = jnp.ones((1, 1, 1, 2))
    params = injection.init(KEY, x, vectors[1:])["params"]
    params["multiply"] = {"kernel": jnp.zeros((4, 2)), "bias": jnp.array([0.0, 100.0])}
    params["add"] = {"kernel": jnp.ones((4, 2)), "bias": jnp.array([0.0, -1.0])}
    found = injection.apply({"params": params}, x, jnp.full((1, 4), 0.25))
    np.testing.assert_allclose(found.reshape(-1), [0.5 + 1.0, 1.0 + 0.0], rtol=1e-6)


def test_units_are_dropped_in_training_alone():
    frames = 255 * jax.random.uniform(KEY, (1, 4, 8, 8, 3))
    action = jnp.array([1])
    model = simple.DeterministicModel(3, 8, unet())
    params = model.init(KEY, frames, action)
    first, second = (
        model.apply(params, frames, action, True, rngs={"dropout": jax.random.key(seed)}).pixels
        for seed in (1, 2)
    )
    assert not np.allclose(first, second)
    np.testing.assert_array_equal(
        model.apply(params, frames, action).pixels, model.apply(params, frames, action).pixels
    )


def test_a_tpu_finds_the_most_likely_by_argmax():
    logits = np.zeros((2, 5, 256), np.float32)
    on_tpu = jax.jit(simple.most_likely).trace(logits).lower(lowering_platforms=("tpu",))
    assert "argmax" in on_tpu.as_text(debug_info=True)


def test_a_tpu_computes_a_frame_colour_by_colour():
    arrays = (np.zeros(s, np.float32) for s in ((2, 3, 4, 5), (5, 768), (768,), (2, 3)))
    prediction = simple.Prediction(*arrays)
    traced = jax.jit(lambda prediction: prediction.frame).trace(prediction)
    on_cpu, on_tpu = (traced.lower(lowering_platforms=(name,)).as_text() for name in ("cpu", "tpu"))
    assert "2x3x4x768xf32" in on_cpu and "2x3x4x768xf32" not in on_tpu


@pytest.mark.parametrize("number", [1, 2, 5, 12])
@pytest.mark.parametrize("most", [2, 256])
def test_the_median_colour_is_the_upper_one_in_the_middle(number, most):
    frames = np.random.default_rng(number).integers(0, most, (number, 1, 3))
    expected = np.sort(frames, axis=0)[number // 2, 0]
    found = jax.jit(simple.median_colour)(frames.astype(np.float32))
    np.testing.assert_array_equal(found, expected)


def test_a_layer_of_many_outputs_equals_a_dense_one_with_its_gradients():
    rng = np.random.default_rng(0)
    x, kernel = rng.normal(size=(2, 3, 3, 4)), rng.normal(size=(4, 50))
    weights = rng.normal(size=(2, 3, 3, 50))

    def of(product):
        return jax.value_and_grad(lambda *xs: jnp.sum(product(*xs) * weights), (0, 1))(x, kernel)

    found, expected = of(simple_layers.multiply), of(jnp.matmul)
    chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-4)


def test_noisy_pixels_take_the_median_colour_of_the_batch():
    frames = jnp.tile(jnp.array([10.0, 20.0, 30.0]), (2, 4, 30, 30, 1))
    frames = frames.at[0, 0].set(200.0)  # an eighth of all pixels
    found = np.asarray(simple.with_pixel_noise(frames, KEY, 0.05))
    changed = (found != frames).any(-1)
    np.testing.assert_array_equal(found[changed], np.tile([10, 20, 30], (changed.sum(), 1)))
    assert not changed[1].any() and 0.02 < changed[0, 0].mean() < 0.09


# --- bits -----------------------------------------------------------------------------------


def test_symbols_are_eight_bits_the_first_of_which_counts_one():
    bits = jnp.array([[1.0] + [-1.0] * 7 + [-1.0, 1.0] + [-1.0] * 5 + [1.0]])
    symbols = simple_bits.to_symbols(bits)
    np.testing.assert_array_equal(symbols, [[1, 2 + 128]])
    np.testing.assert_array_equal(simple_bits.to_bits(symbols), bits)


def test_gradients_pass_bits_as_if_they_were_tanh():
    x = jnp.linspace(-2, 2, 9)[None]

    def bits(x, share, flips):
        return simple_bits.noisy_bits(x, KEY, flips, jnp.float32(share))

    noise_key = jax.random.split(KEY, 3)[0]
    noise = 0.2 * jax.random.truncated_normal(noise_key, -2.0, 2.0, x.shape)
    discrete, soft = bits(x, 1.0, 0.0), bits(x, 0.0, 0.0)
    np.testing.assert_allclose(soft, np.tanh(x + noise), rtol=1e-6)
    np.testing.assert_array_equal(discrete, np.where(x + noise > 0, 1.0, -1.0))
    slope = 1 - np.tanh(x + noise) ** 2
    for share in (0.0, 1.0):
        found = jax.grad(lambda x, share=share: bits(x, share, 0.0).sum())(x)
        np.testing.assert_allclose(found, slope, rtol=1e-5)
    np.testing.assert_array_equal(bits(x, 1.0, 1.0), -discrete)
    np.testing.assert_allclose(jax.grad(lambda x: bits(x, 1.0, 1.0).sum())(x), -slope, rtol=1e-5)
    many = np.asarray(simple_bits.noisy_bits(jnp.full((100, 100), 9.0), KEY, 0.1, jnp.float32(0.5)))
    assert np.mean(many == -1) == pytest.approx(0.05, abs=0.01)


def test_the_loss_of_bits_is_the_cross_entropy_of_each_symbol_given_those_before():
    """The LSTM in NumPy, with the biases of TensorFlow's cell; without dropped units."""
    predictor = simple_bits.BitPredictor(16, 5)
    x = jax.random.normal(KEY, (1, 2, 2, 3))
    bits = simple_bits.to_bits(jnp.array([[7, 200]]))
    rngs = {"params": KEY, "dropout": KEY, "noise": KEY}
    params = predictor.init(rngs, x, bits, method="loss")["params"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simple_bits, "_LSTM_DROPOUT", 0.0)
        found = predictor.apply({"params": params}, x, bits, method="loss", rngs={"dropout": KEY})

    def dense(name, x):
        return x @ np.asarray(params[name]["kernel"]) + np.asarray(params[name]["bias"])

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    flat = np.asarray(x).reshape(-1)
    read, cell, output = (dense(name, flat) for name in ("first", "cell_start", "output_start"))
    surprise = []
    for symbol in (7, 200):
        i, j, f, o = np.split(dense("gates", np.concatenate([read, output])), 4)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j)
        output = sigmoid(o) * np.tanh(cell)
        logits = dense("symbols", output)
        surprise.append(np.log(np.exp(logits).sum()) - logits[symbol])
        read = dense("embedding", np.eye(256)[symbol])
    assert found == pytest.approx(np.mean(surprise), rel=1e-5)
    drawn = predictor.apply({"params": params}, x, method="draw", rngs={"noise": KEY})
    assert drawn.shape == (1, 16) and np.isin(drawn, [-1, 1]).all()


def stochastic(**changes):
    settings = {
        "number": 8, "flip_rate": 0.0, "ramp": 10, "most_predicted": 0.0, "most_used": 1.0,
        "predictor_size": 4,
    }  # fmt: skip
    bits = simple_bits.BitInjection(hidden=8, **settings | changes)
    return simple.StochasticModel(3, 8, 5, unet(bits))


@pytest.fixture
def frames(monkeypatch):
    monkeypatch.setattr(simple_bits, "_SUMMARY_FILTERS", (2, 3))
    return 255 * jax.random.uniform(KEY, (3, 2, 9, 8, 3))


def initial(model, frames):
    rngs = {"params": KEY, "dropout": KEY, "noise": KEY}

    def init(frames):
        state, action = model.start(frames[0]), jnp.array([0, 1])
        return model.init(rngs, state, frames[0], action, True, frames[1], jnp.float32(0))

    return jax.jit(init)(frames)


def test_the_state_gates_frames_by_hand(frames):
    model = stochastic()
    params = initial(model, frames)
    start = model.start(frames[0])
    assert start.shape == (2, 9, 8, 5) and not start.any()
    state = 0.5 * jnp.ones_like(start)
    found = model.apply(params, state, frames[0], method="advance")
    both = jnp.concatenate([state, simple.standardise(frames[0])], axis=-1)
    gates = simple_layers.Convolution(10, 3).apply({"params": params["params"]["gates"]}, both)
    keep = 1 / (1 + np.exp(-gates[..., :5]))
    expected = 0.5 * keep + np.tanh(gates[..., 5:]) * (1 - keep)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_bits_are_read_off_the_next_frame_in_training_and_drawn_otherwise(frames):
    params = initial(stochastic(), frames)
    action = jnp.array([0, 1])

    def predict(model):
        @jax.jit
        def apply(params, seed, *training):
            rngs = {"dropout": jax.random.key(1), "noise": jax.random.key(seed)}
            state = model.start(frames[0])
            more = (True, *training) if training else ()
            return model.apply(params, state, frames[0], action, *more, rngs=rngs)

        return lambda seed, *training: apply(params, seed, *training)

    late = jnp.float32(10)
    model = predict(stochastic())
    told, loss, _ = model(0, frames[1], late)
    assert np.any(told.pixels != model(0, frames[2], late)[0].pixels) and loss > 0
    unused = predict(stochastic(most_used=0.0))
    assert np.any(told.pixels != unused(0, frames[1], late)[0].pixels)
    np.testing.assert_array_equal(
        unused(0, frames[1], late)[0].pixels, unused(0, frames[2], late)[0].pixels
    )
    assert np.any(model(0)[0].pixels != model(1)[0].pixels)


# --- policy and sizes -----------------------------------------------------------------------


def test_the_policy_s_logits_do_not_depend_on_how_many_actions_there_are():
    frames = 255 * jax.random.uniform(KEY, (2, 1, 11, 8, 3))
    found = []
    for number in (3, 18):
        policy = simple.Policy(number)
        params = jax.jit(policy.init)(KEY, frames)
        found.append(policy.apply(params, frames))
        kernel = np.asarray(params["params"]["logits"]["kernel"])
        np.testing.assert_allclose(kernel.T @ kernel, 1.5**2 * np.eye(number), atol=1e-5)
    np.testing.assert_allclose(found[0][0], found[1][0][:, :3], rtol=1e-5)
    np.testing.assert_array_equal(found[0][1], found[1][1])


def count(init):
    """Parameters that `init` makes from its keys."""
    rngs = {"params": KEY, "dropout": KEY, "noise": KEY}
    return sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(init, rngs)))


def unet_size(inputs, hidden, doubles, action):
    """Parameters of the U-Net, layer by layer."""
    widths = [hidden * 2 ** min(i, doubles) for i in range(7)]
    total = inputs * hidden + hidden
    for i in range(6):  # a convolution, a layer norm
        total += 16 * widths[i] * widths[i + 1] + widths[i + 1] + 2 * widths[i + 1]
    middle = widths[6]
    total += 2 * (action + 1) * middle  # the action
    total += 2 * (9 * middle * middle + middle) + 2 * middle
    for i in range(6, 0, -1):  # the action, a transposed convolution, a layer norm
        out = hidden * 2 ** min(i - 1, doubles)
        total += 2 * (action + 1) * widths[i] + 16 * widths[i] * out + out + 2 * out
    return total + (hidden + 1) * 768 + (middle + hidden + 1) * 128 + 3 * 128


def test_full_sizes_are_those_of_the_layers_of_the_source():
    frames = jnp.zeros((1, 4, 105, 80, 3))
    model = simple_model.make_deterministic(SimpleConfig(), 6)
    assert count(lambda rngs: model.init(KEY)) == 6 * 64 + unet_size(12, 64, 2, 64)
    # Two 5x5 convolutions, 27 x 20 x 32 numbers to 128, logits and value.
    policy = 25 * 12 * 32 + 32 + 25 * 32 * 32 + 32 + 17_280 * 128 + 128 + 129 * 7
    assert count(lambda rngs: simple.Policy(6).init(rngs, frames)) == policy == 2_248_135


def test_the_full_stochastic_model_has_the_layers_of_the_source():
    model = simple_model.make_stochastic(SimpleConfig(model="stochastic"), 6)
    middle = 2 * 2 * 768  # numbers that the LSTM starts from
    lstm = 3 * (middle + 1) * 128 + (256 + 1) * 512 + (128 + 1) * 256 + (256 + 1) * 128
    summaries = sum(64 * 96 * f + f + (f + 1) * 4 + (5 * f + 1) * 2 * f for f in (128, 512))
    bits = (6 + 1) * 96 + 2 * (96 + 1) * 96 + summaries + (1280 + 1) * 128
    told = 2 * (128 + 1) * 768
    gates = 9 * 67 * 128 + 128
    size = 6 * 96 + unet_size(67, 96, 3, 96) + lstm + bits + told + gates
    assert count(lambda rngs: model.init(KEY)) == size


def test_u_net_and_policy_equal_their_layers_one_after_the_other():
    def layer(module, name, *x):
        return module.apply({"params": p[name]}, *x)

    x, action = jax.random.normal(KEY, (2, 9, 8, 5)), jax.random.normal(KEY, (2, 4))
    net = simple.UNet(8, 1, 1, 2, 0.1, 0.5)
    params = jax.jit(net.init, static_argnums=3)(KEY, x, action, False)
    found, _ = net.apply(params, x, action, False)
    p, relu, norm = params["params"], jax.nn.relu, simple_layers.layer_norm()
    conv, timing = simple_layers.Convolution, simple_layers.with_timing
    skip = timing(layer(simple_layers.embed(8), "embed", x))
    x = timing(jnp.pad(skip, ((0, 0), (0, 1), (0, 0), (0, 0))))
    x = layer(norm, "down_norm_0", relu(layer(conv(16, 4, 2), "down_0", x)))
    x = middle = layer(simple_layers.Injection(), "action_middle", x, action)
    x = relu(layer(conv(16, 3), "middle_0", x))
    x = layer(norm, "middle_norm_1", x + relu(layer(conv(16, 3), "middle_1", x)))
    x = layer(simple_layers.Injection(), "action_0", x, action)
    x = relu(layer(simple_layers.TransposedConvolution(8), "up_0", x))[:, :9, :8]
    x = timing(layer(norm, "up_norm_0", x + skip))
    pixels = layer(simple_layers.dense(768), "pixels", x)
    np.testing.assert_allclose(found.pixels.reshape(pixels.shape), pixels, rtol=1e-4, atol=1e-4)
    means = jnp.concatenate([middle.mean((1, 2)), x.mean((1, 2))], axis=-1)
    hidden = relu(layer(simple_layers.dense(128), "reward_hidden", means))
    np.testing.assert_allclose(found.reward, hidden @ p["reward"]["kernel"], rtol=1e-4, atol=1e-4)

    frames = 255 * jax.random.uniform(KEY, (2, 2, 11, 8, 3))
    params = jax.jit(simple.Policy(3).init)(KEY, frames)
    p = params["params"]
    x = jnp.concatenate([frames[:, 0], frames[:, 1]], axis=-1) / 255.0
    for i in range(2):
        x = relu(layer(conv(32, 5, 2), f"Convolution_{i}", x))
    hidden = relu(x.reshape(2, -1) @ p["Dense_0"]["kernel"])
    logits, value, last = simple.Policy(3).apply(params, frames)
    for one, other in (
        (last, hidden), (logits, hidden @ p["logits"]["kernel"]),
        (value, (hidden @ p["value"]["kernel"])[:, 0]),
    ):  # fmt: skip
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
