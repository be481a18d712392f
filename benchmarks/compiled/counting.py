"""Counts what a compiled program does: kernels, bytes that they move, operations of its products.

A loop's body counts as often as it runs. A kernel moves its operands and its results, with two
exceptions. If it only takes slices or gathers rows of an operand, only these count. If a result
replaces a part of an operand in place, only that part counts.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.compiled import hlo
from benchmarks.compiled.hlo import Computation, Instruction, Loop, Module

_NO_KERNEL = {
    "parameter", "get-tuple-element", "bitcast", "tuple", "constant", "opt-barrier", "after-all",
    "partition-id", "replica-id",
}  # fmt: skip
# Targets of custom calls that only name memory.
_NAMES_MEMORY = re.compile(r'custom_call_target="(ConcatBitcast|AllocateBuffer)"')
_TAKES = {"dynamic-slice", "slice", "gather"}
_REPLACES = {"dynamic-update-slice": 1, "scatter": 2}  # operation: operand with the new part
_COLLECTIVES = (
    "all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute",
    "collective-broadcast", "ragged-all-to-all",
)  # fmt: skip


class Traffic(NamedTuple):
    """Bytes of one launch.

    Attributes:
        logical: of the arrays' elements.
        memory: with the padding of their layouts, without arrays in a memory on the chip.
    """

    logical: float
    memory: float


class Kernel(NamedTuple):
    """An instruction that is launched, `times` times."""

    name: str
    operation: str
    times: int
    traffic: Traffic  # of one launch
    is_copy: bool  # half of an asynchronous copy: runs beside other kernels


class Counts(NamedTuple):
    """What one execution of a program does on each device."""

    kernels: list[Kernel]
    loops: list[Loop]
    store_copies: list[str]  # kernels that write an array as large as the frames of a run
    collectives: list[str]
    grouped: list[str]  # convolutions


def count(parsed: Module, arguments: Mapping[int, int], slots: int, elements: int) -> Counts:
    """Counts the kernels of a compiled program.

    Args:
        parsed: the program after the compiler's passes.
        arguments: integers that are known, by number of the entry's parameter.
        slots: frames of a run on the device.
        elements: of a frame, without padding.
    """
    counts = Counts([], [], [], [], [])
    size = slots * elements
    for step in hlo.executed(parsed, arguments):
        if isinstance(step, Loop):
            counts.loops.append(step)
            continue
        instruction, computation, times = step
        operation = instruction.operation
        if operation in _NO_KERNEL or _NAMES_MEMORY.search(instruction.attributes):
            continue
        if operation.startswith(_COLLECTIVES):
            counts.collectives.append(instruction.name)
        halves = operation.endswith(("-start", "-done"))
        traffic, results = _traffic(parsed, computation, instruction)
        counts.kernels.append(Kernel(instruction.name, operation, times, traffic, halves))
        written = (array for array in results if not halves or operation.endswith("-start"))
        for array in written:
            held = int(np.prod(array.shape, dtype=np.int64))
            if held >= size and held % slots == 0:
                counts.store_copies.append(f"{instruction.name} = {_short(array)}")
    for name, computation in parsed.items():
        for instruction in computation.instructions.values():
            groups = re.findall(r"(?:feature|batch)_group_count=(\d+)", instruction.attributes)
            if any(int(n) > 1 for n in groups):
                counts.grouped.append(f"{instruction.name} in {name}")
    return counts


def _short(array: hlo.Array) -> str:
    return f"{array.kind}[{','.join(str(n) for n in array.shape)}]"


def _traffic(
    parsed: Module, computation: Computation, instruction: Instruction
) -> tuple[Traffic, list[hlo.Array]]:
    """What a kernel moves, and the arrays that it writes as a whole."""
    operation = instruction.operation
    if operation.endswith("-done"):
        return Traffic(0, 0), []
    operands = [computation.instructions[name] for name in instruction.operands]
    if operation.endswith("-start"):  # results: the copy, what is copied, a counter
        ends = [array for array in instruction.result if array.bytes > 8]
        moved = min((array.bytes for array in ends), default=0)
        shares = [moved / array.bytes * array.memory_bytes for array in ends[:2]]
        return Traffic(2 * moved, sum(shares)), ends[:1]
    inner = parsed[instruction.called] if operation == "fusion" else None
    parts = [Traffic(0, 0)]
    for number, operand in enumerate(operands):
        if inner is None:
            share = _share_read(instruction, number, computation)
        else:
            share = _share_taken(parsed, inner, inner.parameters[number])
        parts.append(_scaled(operand, share))
    whole = []
    if inner is None:
        roots = [(computation, instruction)]
    else:
        root = inner.instructions[inner.root]
        names = root.operands if root.operation == "tuple" else (inner.root,)
        roots = [(inner, inner.instructions[name]) for name in names]
    for array, (owner, root) in zip(instruction.result, roots, strict=False):
        replaced = _replaced(parsed, owner, root, at_top=inner is None)
        share = 1.0 if replaced is None else min(replaced / max(array.bytes, 1), 1.0)
        parts.append(Traffic(share * array.bytes, share * array.memory_bytes))
        if replaced is None:
            whole.append(array)
    return Traffic(*(sum(sizes) for sizes in zip(*parts, strict=True))), whole


def _scaled(instruction: Instruction, share: float) -> Traffic:
    return Traffic(
        share * instruction.bytes, share * sum(array.memory_bytes for array in instruction.result)
    )


def _share_read(instruction: Instruction, number: int, computation: Computation) -> float:
    """Share of an operand that a kernel other than a fusion reads."""
    operand = computation.instructions[instruction.operands[number]]
    if number == 0 and instruction.operation in _TAKES:
        return min(instruction.bytes / max(operand.bytes, 1), 1.0)
    return 0.0 if number == 0 and instruction.operation in _REPLACES else 1.0


def _share_taken(parsed: Module, inner: Computation, name: str) -> float:
    """Share of a parameter that a fusion reads, at most 1."""
    whole = inner.instructions[name].bytes
    taken = 0.0
    for user in inner.instructions.values():
        for number, operand in enumerate(user.operands):
            if operand != name:
                continue
            if user.operation in ("bitcast", "tuple") or (
                user.operation == "reshape" and user.bytes == whole
            ):
                passed = user.operation == "bitcast" or user.operation == "reshape"
                taken += _share_taken(parsed, inner, user.name) * whole if passed else whole
            elif user.operation == "fusion":
                called = parsed[user.called]
                taken += _share_taken(parsed, called, called.parameters[number]) * whole
            elif user.operation in _TAKES and number == 0:
                taken += user.bytes
            elif not (user.operation in _REPLACES and number == 0):
                return 1.0
    return min(taken / max(whole, 1), 1.0)


def _replaced(
    parsed: Module, owner: Computation, root: Instruction, *, at_top: bool
) -> float | None:
    """Bytes that a result replaces of an operand in place; None if all of it is written."""
    while root.operation in ("bitcast", "reshape") and not at_top:
        root = owner.instructions[root.operands[0]]
    if root.operation == "fusion" and not at_top:
        inner = parsed[root.called]
        return _replaced(parsed, inner, inner.instructions[inner.root], at_top=False)
    if root.operation not in _REPLACES:
        return None
    part = owner.instructions[root.operands[_REPLACES[root.operation]]].bytes
    target = owner.instructions[root.operands[0]]
    while target.operation in ("bitcast", "reshape") and not at_top:
        target = owner.instructions[target.operands[0]]
    if at_top or target.operation == "parameter":
        return part
    below = _replaced(parsed, owner, target, at_top=False)  # several parts, one after the other
    return None if below is None else part + below


def total(kernels: Iterable[Kernel], *, copies: bool) -> Traffic:
    """Bytes of all launches: either of asynchronous copies or of all other kernels."""
    own = [k for k in kernels if k.is_copy == copies]
    return Traffic(
        sum(k.times * k.traffic.logical for k in own), sum(k.times * k.traffic.memory for k in own)
    )


class Product(NamedTuple):
    """A matrix product or a convolution, and its FLOP each time: an addition counts as one."""

    instruction: Instruction
    times: int
    flops_each: int

    @property
    def flops(self) -> int:
        """FLOP of all times that it runs."""
        return self.times * self.flops_each


def products(parsed: Module, arguments: Mapping[int, int]) -> Iterator[Product]:
    """Matrix products and convolutions of a program before the compiler's passes."""
    for step in hlo.executed(parsed, arguments):
        if isinstance(step, Loop):
            continue
        instruction, computation, times = step
        if instruction.operation == "dot":
            yield Product(instruction, times, _dot_flops(instruction, computation))
        elif instruction.operation == "convolution":
            flops = _convolution_flops(instruction, computation)
            yield Product(instruction, times, flops)


def flop(text: str, arguments: Mapping[int, int]) -> int:
    """FLOP of all `products` of a program's text."""
    return sum(product.flops for product in products(hlo.module(text), arguments))


def _elements(instruction: Instruction) -> int:
    return int(np.prod(instruction.result[0].shape, dtype=np.int64))


def _dot_flops(instruction: Instruction, computation: Computation) -> int:
    left = computation.instructions[instruction.operands[0]].result[0].shape
    axes = [int(n) for n in instruction.attribute("lhs_contracting_dims").split(",") if n]
    return 2 * _elements(instruction) * int(np.prod([left[axis] for axis in axes], dtype=np.int64))


def _convolution_flops(instruction: Instruction, computation: Computation) -> int:
    """FLOP of a convolution: positions of the kernel outside the image, or in a hole, cost none."""
    image, kernel = (computation.instructions[o].result[0].shape for o in instruction.operands[:2])
    labels = re.search(r"dim_labels=(\w+)_(\w+)->(\w+)", instruction.attributes).groups()
    out = instruction.result[0].shape
    window = dict(
        part.split("=") for part in instruction.attribute("window").split() if "=" in part
    )
    flops = 2 * out[labels[2].index("b")] * out[labels[2].index("f")]
    flops *= kernel[labels[1].index("i")]
    for axis in range(len(labels[0]) - 2):

        def setting(name, default, axis=axis):
            return window[name].split("x")[axis] if name in window else default

        low = int(setting("pad", "0_0").split("_")[0])
        stride, holes = int(setting("stride", "1")), int(setting("lhs_dilate", "1"))
        spread = int(setting("rhs_dilate", "1"))
        inside = image[labels[0].index(str(axis))]
        positions = np.arange(out[labels[2].index(str(axis))])[:, None] * stride - low
        taps = positions + spread * np.arange(kernel[labels[1].index(str(axis))])[None]
        valid = (taps >= 0) & (taps <= (inside - 1) * holes) & (taps % holes == 0)
        flops *= int(valid.sum())
    return flops
