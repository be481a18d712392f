"""What a model knows: its likelihood against a slow loop, differences by hand, a whole run."""

import types

import jax
import numpy as np
import pytest

from experiments.simple import measure, rollouts
from experiments.simple.rollouts import Rollouts
from rcrl_jax import files
from rcrl_jax.agents.simple import model as simple_model
from rcrl_jax.training import nulls
from tests.experiments.simple.test_rollouts import FITTED
from tests.training import toy_simple

STEPS = 3


def random_rollouts(number):
    config, rng = toy_simple.make_config(), np.random.default_rng(0)
    frames = rng.integers(0, 256, (number, 2 + STEPS, *config.frame_shape), np.uint8)
    frames[:, 3] = frames[:, 2]  # a frame in which nothing changes
    return Rollouts(
        stack=frames[:, :2],
        action=rng.integers(0, 3, (number, STEPS), np.int32),
        frame=frames[:, 2:],
        reward=rng.integers(-1, 2, (number, STEPS)),
    )


def test_what_the_model_says_equals_a_slow_loop_that_feeds_it_its_own_frames(monkeypatch):
    monkeypatch.setattr(measure, "_AT_ONCE", 2)  # three rollouts, so that the last part is shorter
    config = toy_simple.make_config(overrides={"precision": "float32"})
    world = simple_model.make_deterministic(config, 3)
    params = jax.jit(world.init)(jax.random.key(0))
    one = random_rollouts(3)
    scores = measure.make_scorer(config, 3)(params, one)
    predict = jax.jit(lambda stacks, action: world.step(params, (), stacks, action, None)[0])
    for n in range(3):
        stack, before = one.stack[n : n + 1].astype(np.float32), one.stack[n, -1]
        for k in range(STEPS):
            prediction = predict(stack, one.action[n : n + 1, k])
            frame, reward = one.frame[n, k], one.reward[n, k]
            pixels = np.asarray(jax.nn.log_softmax(prediction.pixels[0]))
            expected = sum(
                pixels[(*at, frame[at])] for at in np.ndindex(*config.frame_shape)
            )  # fmt: skip
            assert scores.pixels[n, k] == pytest.approx(expected, rel=1e-5)
            rewards = np.asarray(jax.nn.log_softmax(prediction.reward[0]))
            assert scores.reward[n, k] == pytest.approx(rewards[reward + 1], rel=1e-4)
            assert scores.reward_right[n, k] == (rewards.argmax() - 1 == reward)
            changed = frame != before
            assert scores.changed[n, k] == changed.sum() and changed.any() == (k != 1)
            right = pixels.argmax(-1)[changed] == frame[changed]
            assert scores.changed_right[n, k] == right.sum()
            stack = np.concatenate([stack[:, 1:], pixels.argmax(-1)[None, None]], axis=1)
            before = frame


def scores_of(pixels, reward):
    """What a model says of `FITTED`: log-likelihoods, one number for each rollout."""
    shape = FITTED.reward.shape
    return measure.RolloutScores(
        pixels=np.array(pixels)[:, None].repeat(2, 1) / 2,
        changed=np.array([[0, 0], [0, 3], [0, 0], [3, 0]]),
        changed_right=np.array([[0, 0], [0, 2], [0, 0], [1, 0]]),
        reward=np.full(shape, reward),
        reward_right=np.array([[1, 1], [1, 0], [1, 1], [1, 0]], bool),
    )


def test_a_still_screen_has_no_share_of_changing_pixels():
    predictors = rollouts.fit(FITTED)
    scores = scores_of([0.0, 0.0, 0.0, 0.0], -0.5)
    scores = scores._replace(changed=0 * scores.changed, changed_right=0 * scores.changed_right)
    found = measure.compare(scores, predictors, FITTED)
    assert found["changing_pixels"]["share"] == 0 and np.isnan(found["changing_pixels"]["right"])
    play = nulls.with_error(np.ones(1))
    play = {"policy": play, "uniform": play, "constant": play, "untrained": play}
    play |= {"difference": {"mean": 0.0, "standard_error": None}, "episodes": 1}
    found = files.to_json_value({"model": {"policy": found}, "play": play})
    lines = measure.report(found)
    assert not any("change" in line for line in lines) and "1 episode)" in lines[-1]


def test_a_comparison_is_with_the_best_predictor_and_has_its_standard_error():
    predictors = rollouts.fit(FITTED)
    totals = {name: x.sum(1) for name, x in rollouts.log_likelihoods(predictors, FITTED).items()}
    best = max(totals, key=lambda name: totals[name].mean())
    assert best == "mixture"
    found = measure.compare(
        scores_of(totals[best] + [1.0, 2.0, 3.0, 6.0], -0.5), predictors, FITTED
    )
    assert found["pixels"]["best_null"] == best and found["rollouts"] == 4
    # Deviations from 3 are -2, -1, 0 and 3: their squares sum to 14.
    assert found["pixels"]["difference"] == pytest.approx(
        {"mean": 3.0, "standard_error": np.sqrt(14 / 3 / 4)}
    )
    by_step = found["pixels"]["by_step"]
    assert by_step.keys() == {"model", "copy", "histogram", "mixture"}
    for name, values in by_step.items():
        assert values.sum() == pytest.approx(found["pixels"]["log_likelihood"][name])
    assert found["changing_pixels"]["share"] == 6 / 24
    assert found["changing_pixels"]["right"] == 0.5
    np.testing.assert_allclose(found["changing_pixels"]["right_by_step"], [1 / 3, 2 / 3])
    # Rewards: always 0, and 1, 1, 0, -1; the rates are those of `test_rollouts`.
    base = [np.log(13 / 15) + np.log(p / 15) for p in (7, 7, 4, 4)]
    assert found["reward"]["log_likelihood"] == pytest.approx(
        {"model": -1.0, "base_rate": np.mean(base)}
    )
    assert found["reward"]["difference"]["mean"] == pytest.approx(-1.0 - np.mean(base))
    assert found["reward"]["right"] == {"model": 6 / 8, "base_rate": 6 / 8}


def test_predictors_are_fitted_on_other_rollouts_of_the_same_player(monkeypatch):
    gathered, compared = [], []

    def gather(plan, player, params, purpose, number):
        gathered.append((player, purpose, number))
        return len(gathered) - 1

    monkeypatch.setattr(measure, "_gather", gather)
    monkeypatch.setattr(measure, "make_scorer", lambda *_: lambda params, rollouts: rollouts)
    monkeypatch.setattr(measure, "fit", lambda rollouts: rollouts)
    monkeypatch.setattr(measure, "compare", lambda *of: compared.append(of))
    monkeypatch.setattr(measure, "uniform_player", lambda fleet: "uniform")
    fleet = types.SimpleNamespace(num_valid_actions=[3])
    params = types.SimpleNamespace(model=np.zeros(1))
    plan = toy_simple.make_plan("")
    measure.measure_model(plan, fleet, params)
    end, sizes = plan.total_steps, (measure.HELD_OUT, measure.FITTED)
    assert gathered == [
        (who, end + 1 + i, sizes[i]) for who in (fleet, "uniform") for i in range(2)
    ]
    assert compared == [(0, 1, 0), (2, 3, 2)]  # scores, fitted predictors, held-out rollouts
