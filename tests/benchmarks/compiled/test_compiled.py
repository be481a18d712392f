"""Programs compiled for devices that are not here, and the counting."""

import json
import pathlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.compiled import counting, devices, hlo, pace, table
from benchmarks.compiled import programs as of_a_fleet
from rcrl_jax import types
from rcrl_jax.agents.make_agent import make_agent
from rcrl_jax.config import presets
from rcrl_jax.envs.protocol import discrete_spec
from rcrl_jax.training import prediction
from tests.programs import programs
from tests.programs.test_command_line import assert_mistake

# Two runs of a loop whose bound is an argument, as `map` has it. By hand, in bytes:
#   rows      reads 3 of 8 frames of 10 bytes, and 3 indices:      3 * 10 + 3 * 4 + 30   =    72
#   whole     copies all frames:                                   80 + 80               =   160
#   body, twice:
#     product reads [4, 6] and [6, 5], writes [4, 5], float32:     96 + 120 + 80         =   296
#     row     puts a row of 6 into [2, 6]:                         24 + 4 + 24           =    52
MAP = """HloModule jit_batched, is_scheduled=true

%gather_rows (frames: u8[8,10], slots: s32[3]) -> u8[3,10] {
  %frames = u8[8,10]{1,0} parameter(0)
  %slots = s32[3]{0} parameter(1)
  ROOT %taken = u8[3,10]{1,0} gather(%frames, %slots), offset_dims={1}, slice_sizes={1,10}
}

%put_row (rows: f32[2,6], row: f32[6], i: s32[]) -> f32[2,6] {
  %rows = f32[2,6]{1,0} parameter(0)
  %row = f32[6]{0} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  %one_row = f32[1,6]{1,0} bitcast(%row)
  ROOT %put = f32[2,6]{1,0} dynamic-update-slice(%rows, %one_row, %i, %zero)
}

%body (carried: (s32[], s32[], f32[2,6], f32[4,6], f32[6,5], f32[6])) -> (s32[], s32[], f32[2,6], f32[4,6], f32[6,5], f32[6]) {
  %carried = (s32[], s32[], f32[2,6]{1,0}, f32[4,6]{1,0}, f32[6,5]{1,0}, /*index=5*/f32[6]{0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%carried), index=0
  %n.1 = s32[] get-tuple-element(%carried), index=1
  %rows.1 = f32[2,6]{1,0} get-tuple-element(%carried), index=2
  %left = f32[4,6]{1,0} get-tuple-element(%carried), index=3
  %right = f32[6,5]{1,0} get-tuple-element(%carried), index=4
  %row.1 = f32[6]{0} get-tuple-element(%carried), index=5
  %product = f32[4,5]{1,0} dot(%left, %right), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %rows.2 = f32[2,6]{1,0} fusion(%rows.1, %row.1, %i.1), kind=kLoop, calls=%put_row
  %one = s32[] constant(1)
  %next = s32[] add(%i.1, %one)
  ROOT %again = (s32[], s32[], f32[2,6]{1,0}, f32[4,6]{1,0}, f32[6,5]{1,0}, /*index=5*/f32[6]{0}) tuple(%next, %n.1, %rows.2, %left, %right, /*index=5*/%row.1)
}

%is_less (a: s32[], b: s32[]) -> pred[] {
  %a = s32[] parameter(0)
  %b = s32[] parameter(1)
  ROOT %less = pred[] compare(%a, %b), direction=LT
}

%condition (carried.1: (s32[], s32[], f32[2,6], f32[4,6], f32[6,5], f32[6])) -> pred[] {
  %carried.1 = (s32[], s32[], f32[2,6]{1,0}, f32[4,6]{1,0}, f32[6,5]{1,0}, /*index=5*/f32[6]{0}) parameter(0)
  %i.2 = s32[] get-tuple-element(%carried.1), index=0
  %n.2 = s32[] get-tuple-element(%carried.1), index=1
  ROOT %goes_on = pred[] fusion(%i.2, %n.2), kind=kLoop, calls=%is_less
}

ENTRY %main (runs_here: s32[], stored: u8[8,10], indices: s32[3], rows.0: f32[2,6], left.0: f32[4,6], right.0: f32[6,5], row.0: f32[6]) -> f32[2,6] {
  %runs_here = s32[]{:T(128)} parameter(0)
  %stored = u8[8,10]{1,0} parameter(1)
  %indices = s32[3]{0} parameter(2)
  %rows.0 = f32[2,6]{1,0} parameter(3)
  %left.0 = f32[4,6]{1,0} parameter(4)
  %right.0 = f32[6,5]{1,0} parameter(5)
  %row.0 = f32[6]{0} parameter(6)
  %rows = u8[3,10]{1,0} fusion(%stored, %indices), kind=kLoop, calls=%gather_rows
  %whole = u8[8,10]{0,1} copy(%stored)
  %fetch = (f32[6,5]{1,0:T(8,128)S(1)}, f32[6,5]{1,0:T(8,128)}, u32[]) copy-start(%right.0)
  %fetched = f32[6,5]{1,0:T(8,128)S(1)} copy-done(%fetch)
  %zero.0 = s32[] constant(0)
  %start = (s32[], s32[], f32[2,6]{1,0}, f32[4,6]{1,0}, f32[6,5]{1,0}, /*index=5*/f32[6]{0}) tuple(%zero.0, %runs_here, %rows.0, %left.0, %right.0, /*index=5*/%row.0)
  %loop = (s32[], s32[], f32[2,6]{1,0}, f32[4,6]{1,0}, f32[6,5]{1,0}, /*index=5*/f32[6]{0}) while(%start), condition=%condition, body=%body, metadata={op_name="jit(batched)/while"}
  ROOT %out = f32[2,6]{1,0} get-tuple-element(%loop), index=2
}
"""  # noqa: E501
ADDITION = 4 + 4 + 4  # of the counter, once an iteration


def count(text, arguments, slots=1000, elements=10):
    return counting.count(hlo.module(text), arguments, slots, elements)


def launches(counts):
    return {k.name: (k.times, k.traffic.logical) for k in counts.kernels}


def test_kernels_of_a_map_of_two_runs_by_hand():
    counts = count(MAP, {0: 2})
    assert launches(counts) == {
        "rows": (1, 72),
        "whole": (1, 160),
        "fetch": (1, 240),
        "fetched": (1, 0),
        "product": (2, 296),
        "rows.2": (2, 52),
        "next": (2, ADDITION),
    }
    assert counting.total(counts.kernels, copies=False).logical == 72 + 160 + 2 * (
        296 + 52 + ADDITION
    )
    assert counting.total(counts.kernels, copies=True).logical == 240
    assert counts.loops == [hlo.Loop("loop", "jit(batched)/while", 2, 1)]
    flops = [p.flops for p in counting.products(hlo.module(MAP), {0: 2})]
    assert flops == [2 * (2 * 4 * 5 * 6)]


def test_asynchronous_copies_count_what_they_take_of_the_memory():
    # [6, 5] fills a tile of [8, 128] in the device's memory; the copy lies on the chip.
    traffic = counting.total(count(MAP, {0: 2}).kernels, copies=True)
    assert traffic.memory == 8 * 128 * 4


def test_an_unknown_number_of_iterations_is_an_error():
    with pytest.raises(hlo.Unknown, match="loop depend on argument 0"):
        count(MAP, {})


def test_a_loop_whose_length_changes_is_an_error():
    def program(n, x):
        def call(i, y):
            return jax.lax.fori_loop(0, i, lambda _, z: z + 1, y)

        return jax.lax.fori_loop(0, n, call, x)

    text = jax.jit(program).lower(np.int32(0), jnp.zeros(3)).as_text("hlo")
    with pytest.raises(hlo.Unknown, match="changes"):
        list(hlo.executed(hlo.module(text), {0: 3}))


def test_a_number_of_iterations_that_the_compiler_knows_is_taken():
    known = '"known_trip_count":{"n":"7"}'
    counts = count(
        MAP.replace("metadata={op_name", f"backend_config={{{known}}}, metadata={{op_name"), {}
    )
    assert counts.loops[0].iterations == 7 and launches(counts)["product"] == (7, 296)


def test_a_copy_of_the_stored_frames_is_found():
    assert count(MAP, {0: 2}, slots=8, elements=10).store_copies == ["whole = u8[8,10]"]
    assert not count(MAP, {0: 2}, slots=9, elements=10).store_copies


@pytest.mark.parametrize("runs", [1, 2, 5])
def test_flops_of_a_loop_over_runs_as_the_fleet_has_it(runs):
    def program(runs_here, x):
        def once(_, y):
            return y @ y

        def call(i, y):
            new = jax.lax.fori_loop(0, jnp.minimum(runs_here, 1), once, y[i])
            return y.at[i].set(new)

        return jax.lax.fori_loop(0, runs_here, call, x)

    lowered = jax.jit(program).lower(np.int32(0), jnp.zeros((5, 3, 3)))
    for text in (lowered.as_text("hlo"), lowered.compile().as_text()):
        loops = [s for s in hlo.executed(hlo.module(text), {0: runs}) if isinstance(s, hlo.Loop)]
        assert [(loop.iterations, loop.times) for loop in loops] == [(runs, 1), (1, runs)]
    products = counting.products(hlo.module(lowered.as_text("hlo")), {0: runs})
    assert sum(p.flops for p in products) == runs * 2 * 3**3


@pytest.mark.parametrize(
    "settings, taps",
    [
        ({"padding": [(0, 0)]}, 4 * 3),
        ({"padding": [(1, 1)]}, 6 * 3 - 2),  # two taps outside
        ({"padding": [(0, 0)], "window_strides": (2,)}, 2 * 3),
        ({"padding": [(0, 0)], "lhs_dilation": (2,)}, 5 + 4 + 5),  # holes between the pixels
        ({"padding": [(0, 0)], "rhs_dilation": (2,)}, 2 * 3),
    ],
)
def test_a_convolution_counts_taps_inside_the_image(settings, taps):
    def convolve(image, kernel):
        return jax.lax.conv_general_dilated(
            image, kernel, **{"window_strides": (1,), **settings},
            dimension_numbers=("NWC", "WIO", "NWC"),
        )  # fmt: skip

    text = jax.jit(convolve).lower(jnp.zeros((2, 6, 4)), jnp.zeros((3, 4, 5))).as_text("hlo")
    (product,) = counting.products(hlo.module(text), {})
    ones = convolve(jnp.ones((1, 6, 1)), jnp.ones((3, 1, 1)))
    assert ones.sum() == taps
    assert product.flops == 2 * taps * 2 * 4 * 5


@pytest.mark.parametrize(
    "text, size",
    [
        ("f32[2,25]{1,0:T(8,128)}", 8 * 128 * 4),
        ("f32[2,25]{0,1:T(8,128)}", 32 * 128 * 4),
        ("u8[3,10,5]{2,1,0:T(8,128)(4,1)}", 3 * 16 * 128),
        ("f32[2,25]{1,0:T(8,128)S(1)}", 0),
        ("f32[2,25]{1,0}", 200),
        ("s32[]{:T(128)}", 4),
    ],
)
def test_memory_of_an_array_is_padded_to_tiles(text, size):
    (array,) = hlo.arrays(text)
    assert array.memory_bytes == size


def test_grouped_convolutions_and_collectives_are_found():
    line = "  %whole = u8[8,10]{0,1} copy(%stored)"
    planted = MAP.replace(
        line,
        "  %sum = f32[2,6]{1,0} all-reduce(%rows.0), to_apply=%is_less\n"
        "  %grouped = f32[2,6]{1,0} custom-call(%rows.0), feature_group_count=2",
    )
    counts = count(planted, {0: 2})
    assert counts.collectives == ["sum"] and counts.grouped == ["grouped in ENTRY"]
    assert not count(MAP, {0: 2}).grouped and not count(MAP, {0: 2}).collectives


ROW = {
    "device": "h200", "preset": "rcrl", "runs": 2, "batching": "vmap", "program": "update",
    "runs_on_each_device": 2, "updates_a_step": 1.0, "precision": "tf32", "flops": 494.7e9,
    "activations": 10 * 2**20, "commit": "0" * 40, "arguments": 1e9, "temporaries": 1e8,
    "results": 0, "kernels": 7, "copies": 2, "bytes": 4.8e9, "copied_bytes": 0.0,
    "memory_bytes": 4.8e9, "compiler": {"flops": None, "bytes accessed": None},
    "least": {"gradients, written and read": 0.0, "frames of the batch, read": 80 * 2**20},
    "loops": [], "store_copies": [], "collectives": [], "grouped": [], "largest": [],
    "transfers": {"batch": 63e6}, "own_loops": [],
}  # fmt: skip
LOOP = {"name": "filter", "source": "b", "iterations": 50}
PADDED = {"name": "copy", "operation": "copy", "times": 2, "logical": 60e6, "memory": 180e6}


@pytest.mark.parametrize(
    "change, found",
    [
        ({}, None),
        ({"store_copies": ["copy.1 = u8[2]"]}, "copies stored frames: copy.1 = u8[2]"),
        ({"loops": [{"name": "a", "source": "b", "iterations": 64}]}, "loop of 64 iterations: a"),
        ({"loops": [{"name": "a", "source": "b", "iterations": 2}]}, None),
        ({"loops": 2 * [LOOP], "own_loops": [50, 50]}, None),
        ({"loops": 3 * [LOOP], "own_loops": [50, 50]}, "loop of 50 iterations: filter"),
        ({"collectives": ["all-reduce.1"]}, "collective operation: all-reduce.1"),
        ({"grouped": ["c in d"]}, "grouped convolution: c in d"),
        # 1.5 x (10 + 80) MiB and 4 MiB of each of two runs
        ({"temporaries": 143 * 2**20}, None),
        ({"temporaries": 143 * 2**20 + 1}, "143 MiB of temporaries, goal 143"),
        # A tenth of 4.8 GB, and at least 64 MiB.
        ({"largest": [PADDED | {"memory": 301e6}]}, "layouts fill up 0.5 of 4.8 GB"),
        ({"largest": [PADDED | {"memory": 299e6}]}, None),
        ({"largest": [PADDED | {"memory": 601e6, "times": 1}, PADDED]}, "layouts fill up 0.5 of"),
        ({"largest": [PADDED | {"logical": 1e6, "memory": 30e6}], "memory_bytes": 1e8}, None),
        ({"failed": "out of memory"}, "does not compile: out of memory"),
    ],
)
def test_findings_name_each_defect(change, found):
    lines = table.findings(ROW | change)
    if found is None:
        assert not lines
    else:
        assert len(lines) == 1
        assert lines[0].startswith(f"h200 rcrl update, 2 runs: {found}")


def test_bounds_by_hand():
    assert table.bound_s(ROW) == pytest.approx(1e-3)
    assert table.bound_s(ROW | {"flops": 2 * 494.7e9}) == pytest.approx(2e-3)
    assert table.bound_s(ROW | {"precision": "float32"}) == pytest.approx(494.7 / 66.9e3)
    assert table.runs_that_fit(ROW) == int(141e9 / 0.55e9)
    assert table.runs_that_fit(ROW | {"batching": "map"}) == int(140.9e9 / 0.5e9)
    four = ROW | {"device": "4xh200", "runs": 8}
    assert table.runs_that_fit(four) == 4 * int(141e9 / 0.55e9)
    rows = [ROW | {"program": name} for name in ("act", "write")]
    assert table.step_bound_s(rows, ROW) is None
    for updates, bound in ((0.25, 2.25e-3), (0.2, 2.2e-3), (100.0, 102e-3)):
        row = ROW | {"updates_a_step": updates}
        assert table.step_bound_s([*rows, ROW], row) == pytest.approx(bound)
    assert table.step_bound_s([*rows, ROW], ROW | {"updates_a_step": None}) is None


@pytest.mark.parametrize(
    "host, moved, device, pace_of, least",
    [
        ((3.0, 13.0), 0, 0.001, "host's thread", 5.5),
        ((3.0, 23.0), 0, 0.001, "emulators", 8.0),
        ((3.0, 13.0), 10e6, 0.001, "transfers", 10.0),
        ((3.0, 13.0), 0, 0.006, "device", 6.0),
    ],
)
def test_the_slowest_part_sets_the_pace(host, moved, device, pace_of, least):
    measured = dict(zip(("thread", "process"), host, strict=True))
    step = pace.step_of(measured, 4, 26, moved, device, 1e9)
    assert step.pace == pace_of and step.least == pytest.approx(least)
    alone = pace.step_of(measured, 64, 1, moved, device, 1e9)
    assert alone.emulators == host[1] - host[0]  # one emulator runs on one core


def test_devices_are_read_with_their_number():
    assert devices.parse("8xv5e") == (8, devices.KINDS["v5e"])
    assert devices.parse("h200")[0] == 1
    for wrong in ("h300", "0xh200", "3xv5e", "xv5e"):
        with pytest.raises(ValueError, match=wrong):
            devices.parse(wrong)


def test_a_missing_compiler_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(devices, "COMPILERS", tmp_path / ".compilers")
    for kind in devices.KINDS.values():
        with pytest.raises(devices.Missing, match="^.compilers/.* is missing: `make compilers`"):
            devices.environment(kind)


def test_a_mistake_is_refused(tmp_path):
    ended = programs.call("benchmarks.compiled", "--devices=h300", f"--output={tmp_path / 'out'}")
    assert_mistake(ended, ["h300"], tmp_path)


def test_a_program_is_compiled_for_a_tpu_without_a_finding(tmp_path):
    try:
        devices.environment(devices.KINDS["v5e"])
    except devices.Missing as error:
        pytest.skip(str(error))
    process = programs.run(
        "benchmarks.compiled", "--check", "--devices=v5e", "--presets=rcrl",
        "--programs=act,write", f"--output={tmp_path}",
    )  # fmt: skip
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout == "2 programs, no finding\n"


CONDITION = """
%kept (number: s32[]) -> s32[] {
  %number = s32[] parameter(0)
  ROOT %same = s32[] multiply(%number, %number)
}

%doubled (number.1: s32[]) -> s32[] {
  %number.1 = s32[] parameter(0)
  ROOT %twice = s32[] add(%number.1, %number.1)
}

%of_a_pair (pair: (s32[], s32[])) -> s32[] {
  %pair = (s32[], s32[]) parameter(0)
  %second = s32[] get-tuple-element(%pair), index=1
  ROOT %inner = s32[] conditional(%second, %second, %second), branch_computations={%kept, %doubled}
}

ENTRY %main (one: s32[], two: s32[]) -> s32[] {
  %one = s32[] parameter(0)
  %two = s32[] parameter(1)
  %is_less = pred[] compare(%one, %two), direction=LT
  %both = (s32[], s32[]) tuple(%one, %two)
  ROOT %outer = s32[] conditional(%is_less, %both, %one), true_computation=%of_a_pair, \
false_computation=%kept
}
"""


@pytest.mark.parametrize("one, runs", [(1, "twice"), (3, "same")])
def test_the_branches_of_a_truth_value_have_their_own_operands(one, runs):
    ran = hlo.executed(hlo.module(CONDITION), {0: one, 1: 2})
    assert {"twice", "same"} & {entry[0].name for entry in ran} == {runs}


@pytest.mark.parametrize(
    "preset, program, lengths",
    [
        ("rcrl", "update", []),
        ("dreamer", "update", [14, 14, 15, 15, 50, 50]),
        ("planet", "update", [50, 50]),
        ("planet", "act", [10, 12]),
        ("slac", "update", [9, 9, 9]),
        ("slac", "update_1", [9, 9]),
        ("simple", "update_1", [29, 199, 200]),
        ("simple", "update_2", [7, 49, 50]),
    ],
)
def test_loops_of_an_agent_s_arithmetic(preset, program, lengths):
    assert sorted(of_a_fleet.own_loops(presets.all_presets()[preset], program)) == lengths


def test_a_full_run_of_simple_adds_up_its_three_kinds_of_updates():
    simple = ROW | {"preset": "simple", "runs": 1, "memory_bytes": 4.8e9}  # a millisecond each
    rows = [simple | {"program": name} for name in ("update", "update_1", "update_2")]
    (text, table) = pace.full_runs("h200", rows)
    flops = 274_032 * ROW["flops"] / 1e15
    assert f"{flops:.1f} PFLOP, at least {274.032 / 60:.1f} minutes" in text
    assert "| simple update_2 | 19,000 |" in table
    assert not pace.full_runs("h200", rows[:2])
    failed = {name: value for name, value in rows[2].items() if name != "memory_bytes"}
    assert not pace.full_runs("h200", [*rows[:2], failed | {"failed": "it does not compile"}])


def test_the_help_of_simple_has_the_counted_cost():
    root = pathlib.Path(__file__).parents[3]
    told = (root / "rcrl_jax" / "programs" / "atari100k.py").read_text()
    told_of = {
        "h200": " minutes of an H200", "h100": " of an H100", "a100": " of an A100",
        "v5p": " of a TPU v5p", "v6e": " of a v6e", "v5e": " of a v5e",
    }  # fmt: skip
    for device, said in told_of.items():
        found = json.loads((root / "results" / "compiled" / f"{device}.json").read_text())
        (text, _) = pace.full_runs(device, found["programs"].values())
        minutes = float(re.search(r"79.8 PFLOP, at least ([\d.]+) minutes", text)[1])
        assert f" {round(minutes)}{said}" in told.split('"""')[1].replace("\n", " ")


def test_flop_of_an_update_are_those_of_its_products_by_hand():
    """The first layer's ten columns of zeros do not count; two columns hold the bias."""
    agent = make_agent(presets.all_presets()["erainbow"], discrete_spec((84, 84), 6))
    run = types.RunSpec(np.int32(6), agent.run_constants("Pong"))
    state = agent.init(run, jax.random.key(0))
    batch = jax.tree.map(lambda x: x[0], prediction.empty_batch(agent, 1, "host"))
    text, known = of_a_fleet.update_text(agent, run, state, batch)
    # Three forwards; backwards to all weights, and to the inputs of all layers but the first.
    first, second = 4 * 32 * 225 * 102 * 32, 5 * 32 * 9 * 800 * 64
    streams = 5 * 32 * (2 * 576 * 256 + (1 + 6) * 256 * 51)
    assert counting.flop(text, known) == 2 * (first + second + streams)
