"""What an accelerator would run for the whole benchmark: 26 games times 5 seeds in one program.

The programs are lowered for CUDA and for TPUs, not run. They tell what reaches the device's own
compiler, not what it makes of it.
"""

import dataclasses
import math
import re

import jax
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config.presets import ATARI_PRESETS
from rcrl_jax.envs.atari import ATARI_GAMES
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.replay.frames import device_frame_size
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet

RUNS = 130


def make_fleet(precision: str) -> Fleet:
    config = dataclasses.replace(ATARI_PRESETS["rcrl"], precision=precision)
    agent = make_agent(config, discrete_spec((84, 84), 18))
    constants = [agent.run_constants(game) for game in ATARI_GAMES for _ in range(5)]
    runs = types.RunSpec(
        np.full(RUNS, 18, np.int32), jax.tree.map(lambda *of_runs: np.stack(of_runs), *constants)
    )
    return Fleet(agent, range(RUNS), runs, batching="vmap")


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    return make_fleet("tf32")


@pytest.fixture(scope="module")
def frames(fleet) -> jax.ShapeDtypeStruct:
    """Shape of the frames of all runs: 73 GB, which nothing here allocates."""
    agent = fleet.agent
    size = device_frame_size(agent.observations.stored)
    return jax.ShapeDtypeStruct((RUNS, agent.replay.capacity + 2, size), np.uint8)


@pytest.fixture(scope="module")
def batch(fleet) -> types.Batch:
    return prediction.empty_batch(fleet.agent, RUNS, "device")


def trace(fleet: Fleet, batch: types.Batch, frames: jax.ShapeDtypeStruct):
    *arguments, _ = fleet.update_arguments(jax.eval_shape(fleet.init), batch)
    return fleet.programs.update[0].trace(*arguments, frames)


@pytest.fixture(scope="module")
def traced(fleet, batch, frames):
    return trace(fleet, batch, frames)


@pytest.fixture(scope="module", params=["cuda", "tpu"])
def lowered(request, traced) -> str:
    """The update in StableHLO, one operation a line."""
    return traced.lower(lowering_platforms=(request.param,)).as_text()


def test_the_update_has_no_grouped_convolution_and_calls_no_foreign_code(lowered):
    names = set(re.findall(r"stablehlo\.\w+", lowered))
    # vmap over the weights turns a convolution into a grouped one, which GPUs compute slowly.
    assert "stablehlo.dot_general" in names
    assert not names & {"stablehlo.convolution", "stablehlo.custom_call"}


def test_no_operation_copies_the_frames_of_a_run(lowered, frames):
    slots, *frame = frames.shape[1:]
    whole = rf"{RUNS}x(1x)?{slots}x{'x'.join(map(str, frame))}xui8"
    stacks = rf"{RUNS}x\d+x4x{'x'.join(map(str, frame))}xui8"
    reads = [line for line in lowered.splitlines()[2:] if f"x{slots}x" in line]
    gathers = [line for line in reads if "stablehlo.gather" in line]
    # Observations of the transitions before and after, and of the three sides of the contrast.
    assert len(gathers) == 5
    for line in reads:
        if line in gathers:
            assert re.search(rf"-> tensor<{stacks}>$", line), line
        else:  # an axis of length one is added to the whole array, which moves nothing
            assert re.search(rf"stablehlo\.(broadcast_in_dim|reshape) .*-> tensor<{whole}>$", line)


def test_the_update_overwrites_every_array_of_the_learner_states(lowered, fleet):
    header = next(line for line in lowered.splitlines() if "func.func public @main" in line)
    assert header.count("tf.aliasing_output") == len(jax.tree.leaves(jax.eval_shape(fleet.init)))


def test_the_update_is_one_call_on_host_arrays(fleet, batch):
    placed = fleet.place(batch)
    # One device takes host arrays as they are: no transfer is a call of its own.
    assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(placed))


def test_a_step_moves_less_than_six_megabytes_between_host_and_device(fleet, batch, traced):
    agent = fleet.agent
    stack = math.prod(agent.observations.network.stack_shape(agent.observations.frame_stack))
    new_frames = RUNS * (math.prod(agent.observations.stored.stored_shape) + 4)
    result = jax.tree.map(lambda x: x.size * x.dtype.itemsize, traced.out_info[1])
    moved = {
        "observations to act on": RUNS * stack,
        "new frames and their slots": new_frames,
        "batch": sum(x.nbytes for x in jax.tree.leaves(batch)),
        "actions": RUNS * 4,
        "losses and metrics": sum(jax.tree.leaves(result)),
    }
    assert 4e6 < sum(moved.values()) <= 6e6, moved


def test_predicted_memory_is_that_of_the_compiled_update(batch, frames):
    """With the frames of all runs, which are nine tenths of it, and without them.

    In bfloat16, because the CPU has kernels for the others, which need less memory.
    """
    fleet = make_fleet("bfloat16")
    needed = trace(fleet, batch, frames).lower().compile().memory_analysis()
    compiled = (
        needed.argument_size_in_bytes
        + needed.output_size_in_bytes
        - needed.alias_size_in_bytes
        + needed.temp_size_in_bytes
    )
    predicted = prediction.predict_update_memory(fleet, "device")
    assert predicted == pytest.approx(compiled, rel=0.1)
    frame_bytes = math.prod(frames.shape)
    assert predicted - frame_bytes == pytest.approx(compiled - frame_bytes, rel=0.1)
