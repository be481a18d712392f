"""The kernels split their work between the cores, which changes no number."""

import os
import subprocess
import sys

import pytest

from rcrl_jax.ops import native
from tests.training.toy import ROOT

PROGRAM = """
import os, sys
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
import hashlib
import jax, numpy as np
from rcrl_jax.ops import adam, convolution
from tests.ops.kernels import test_encoder
from tests.ops import test_adam, test_convolution

pixels, weights, gradient = test_encoder.whole_numbers(70, 100)
weights = [w * np.float32(0.37) for w in weights]
arrays = test_convolution.inputs(19, 6, 31, 32, 40, 1)
optimizer, params = adam.make_adam(0.01, max_norm=1.0), test_adam.draw(0)
for found in (
    test_encoder.by_kernels(pixels, weights, gradient),
    test_convolution.results(convolution.convolve, arrays, 1, True),
    optimizer.step(test_adam.draw(1), optimizer.init(params), params),
):
    octets = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(found))
    print(hashlib.sha256(octets).hexdigest())
"""


@pytest.mark.skipif(
    not all(map(native.get, ("encoder", "convolution", "adam"))), reason="kernels are missing"
)
@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two cores",
)
def test_numbers_do_not_depend_on_the_number_of_cores():
    one, two = (
        subprocess.check_output([sys.executable, "-c", PROGRAM, cores], cwd=ROOT, text=True)
        for cores in ("1", "2")
    )
    assert len(set(one.split())) == 3
    assert one == two
