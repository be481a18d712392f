"""What SAC's update lowers to on accelerators."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import fields
from rcrl_jax.config.presets import DMC_PRESETS
from rcrl_jax.envs.protocol import control_spec
from rcrl_jax.training import prediction
from rcrl_jax.training.fleet import Fleet
from tests.agents.sac.test_agent import EVERY_TASK

RUNS = 2
# Per layer: the forward pass of each set of parameters, the gradient by the kernel, and that by
# the images of all layers but the first; the decoder.
CONVOLUTIONS = 16 + 4 + 3 + 12


@pytest.fixture(scope="module")
def traced():
    """The update of two runs with frames on the device, shapes alone."""
    config = fields.replace(DMC_PRESETS["rcrl_curl_sac"], EVERY_TASK)
    agent = make_agent(config, control_spec((100, 100, 3), 6, action_repeat=8))
    constants = [agent.run_constants("cartpole_swingup")] * RUNS
    runs = types.RunSpec(
        np.full(RUNS, 1, np.int32), jax.tree.map(lambda *of_runs: np.stack(of_runs), *constants)
    )
    fleet = Fleet(agent, range(RUNS), runs, batching="map")
    batch = prediction.empty_batch(agent, RUNS, "device")
    *arguments, _ = fleet.update_arguments(jax.eval_shape(fleet.init), batch)
    frames = jax.ShapeDtypeStruct((RUNS, agent.replay.capacity + 2, 30080), jnp.uint8)
    return fleet.programs.update[0].trace(*arguments, frames)


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_equal_parameters_encode_in_one_convolution_a_layer_without_groups(traced, platform):
    lowered = traced.lower(lowering_platforms=(platform,)).as_text()
    found = [line for line in lowered.splitlines() if "stablehlo.convolution" in line]
    assert len(found) == CONVOLUTIONS
    groups = {n for line in found for n in re.findall(r"group_count = (\d+)", line)}
    assert groups == {"1"}
    if platform == "tpu":  # slices no image at a place of its own: gathers take whole frames
        gathers = [line for line in lowered.splitlines() if "stablehlo.gather" in line]
        images = [line for line in gathers if "xui8>" in line.partition("->")[2]]
        assert images
        for line in images:
            assert re.search(r"slice_sizes = array<i64: 1, 1, 30080>", line), line
