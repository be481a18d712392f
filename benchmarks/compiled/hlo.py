"""Reads the text of a program in XLA's HLO, and finds how often each of its instructions runs.

`module` parses it. `executed` walks from the entry computation into calls, branches and loops. The
number of iterations of a loop is what the compiler notes as known, or is found by evaluating the
integers that the loop's condition depends on.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_BITS = {
    "pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "s16": 16, "u16": 16, "bf16": 16, "f16": 16,
    "s32": 32, "u32": 32, "f32": 32, "s64": 64, "u64": 64, "f64": 64, "c64": 64, "c128": 128,
}  # fmt: skip
_ARRAY = re.compile(r"\b(" + "|".join(_BITS) + r")\[([\d,]*)\](?:\{([^}]*)\})?")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) (?:\(.*\) -> .* )?\{$")
_INSTRUCTION = re.compile(r"\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([\w\-]+)\(")
_CALLED = re.compile(r"(?:calls|to_apply)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_LONGEST = 1_000_000  # iterations that are evaluated


class Unknown(ValueError):
    """How often a loop runs cannot be told from the program and the given arguments."""


class Array(NamedTuple):
    """An array's type; a padded one fills the tiles of its layout on a TPU."""

    kind: str
    shape: tuple[int, ...]
    layout: str

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * _BITS[self.kind] // 8

    @property
    def memory_bytes(self) -> int:
        """Bytes that it takes of the device's memory, padded; 0 in a memory on the chip."""
        if re.search(r"S\([1-9]", self.layout):
            return 0
        order, _, tiles = self.layout.partition(":")
        tile = re.match(r"T\(([\d,]+)\)", tiles)
        if not tile or not order:
            return self.bytes
        shape = [self.shape[int(axis)] for axis in order.split(",")]  # minor first
        for axis, side in enumerate(reversed(tile[1].split(","))):
            if axis < len(shape):
                shape[axis] = -(-shape[axis] // int(side)) * int(side)
        return int(np.prod(shape, dtype=np.int64)) * _BITS[self.kind] // 8


class Instruction(NamedTuple):
    """One line of a computation.

    Attributes:
        name: unique in its computation.
        result: its arrays, more than one for a tuple; nested tuples are flat.
        operation: `fusion`, `dot`, ...
        operands: names of instructions of the same computation.
        inside: the text between the parentheses, for constants and parameters.
        attributes: the text behind them.
    """

    name: str
    result: tuple[Array, ...]
    operation: str
    operands: tuple[str, ...]
    inside: str
    attributes: str

    @property
    def bytes(self) -> int:
        """Bytes of its result."""
        return sum(array.bytes for array in self.result)

    @property
    def called(self) -> str | None:
        """Name of the computation that it calls."""
        match = _CALLED.search(self.attributes)
        return match[1] if match else None

    @property
    def source(self) -> str:
        """The JAX operation that it comes from, as a path; empty if the text does not say."""
        match = re.search(r'op_name="([^"]*)"', self.attributes)
        return match[1] if match else ""

    def attribute(self, name: str) -> str:
        """What stands between the braces of an attribute `name={...}`; empty if it is not there."""
        match = re.search(name + r"=\{([^}]*)\}", self.attributes)
        return match[1] if match else ""


class Computation(NamedTuple):
    """A function of a module: its instructions by name, in order, and the one it returns."""

    instructions: dict[str, Instruction]
    root: str

    @property
    def parameters(self) -> dict[int, str]:
        """Names of the parameters, by number."""
        own = self.instructions.values()
        return {int(i.inside): i.name for i in own if i.operation == "parameter"}


class Loop(NamedTuple):
    """A loop that is started `times` times, and runs `iterations` times each time."""

    name: str
    source: str  # the JAX operation that it comes from
    iterations: int
    times: int


Module = Mapping[str, Computation]
"""Computations by name; the entry computation as ENTRY."""


def arrays(text: str) -> tuple[Array, ...]:
    """All arrays that a type names."""
    return tuple(
        Array(kind, tuple(int(n) for n in shape.split(",") if n), layout)
        for kind, shape, layout in _ARRAY.findall(text)
    )


def module(text: str) -> Module:
    """Parses the text of a module, before or after the compiler's passes."""
    found: dict[str, Computation] = {}
    instructions: dict[str, Instruction] | None = None
    for line in text.splitlines():
        if match := _COMPUTATION.match(line):
            name, instructions, root = "ENTRY" if match[1] else match[2], {}, ""
        elif line.startswith("}") and instructions is not None:
            found[name], instructions = Computation(instructions, root), None
        elif instructions is not None and (match := _INSTRUCTION.match(line)):
            end = _closing(line, match.end())
            inside = line[match.end() : end]
            parts = re.sub(r"/\*.*?\*/", "", inside).split(",")
            names = (part.strip().split(" ")[-1].lstrip("%") for part in parts)
            operands = tuple(n for n in names if n in instructions)
            instructions[match[2]] = Instruction(
                match[2], arrays(match[3]), match[4], operands, inside, line[end + 1 :]
            )
            root = match[2] if match[1] else root
    return found


def _closing(line: str, start: int) -> int:
    """Position of the parenthesis that closes the one before `start`."""
    depth = 1
    for position in range(start, len(line)):
        depth += {"(": 1, ")": -1}.get(line[position], 0)
        if not depth:
            return position
    raise ValueError(f"a parenthesis is not closed: {line[:80]}")


class Scope:
    """A computation that is called with some arguments, of which integers are evaluated lazily."""

    def __init__(
        self, module: Module, name: str, parameters: Sequence[Callable[[], Any]] | Mapping[int, int]
    ) -> None:
        """Evaluates nothing yet; `parameters` are functions, or known integers by number."""
        self.module, self.computation = module, module[name]
        self._parameters = parameters
        self._values: dict[str, Any] = {}

    def value(self, name: str) -> Any:
        """An integer, a truth value, or a tuple's elements as functions.

        Raises:
            Unknown: it depends on something else.
        """
        if name not in self._values:
            self._values[name] = self._evaluate(self.computation.instructions[name])
        return self._values[name]

    def root(self) -> Any:
        """The value that the computation returns."""
        return self.value(self.computation.root)

    def lazily(self, names: Sequence[str]) -> list[Callable[[], Any]]:
        """Functions that return the values."""
        return [lambda name=name: self.value(name) for name in names]

    def _evaluate(self, instruction: Instruction) -> Any:
        operation, operands = instruction.operation, instruction.operands
        if operation == "parameter":
            return self._parameter(int(instruction.inside))
        if operation == "constant" and instruction.inside in ("true", "false"):
            return instruction.inside == "true"
        if operation == "constant" and re.fullmatch(r"-?\d+", instruction.inside):
            return int(instruction.inside)
        if operation == "tuple":
            return self.lazily(operands)
        if operation == "get-tuple-element":
            index = int(re.search(r"index=(\d+)", instruction.attributes)[1])
            return self.value(operands[0])[index]()
        if operation == "copy-start":
            return self.lazily(operands)  # the first element is the copy
        if operation == "custom-call" and "xla.sdy." in instruction.attributes:  # of `shard_map`
            return self.lazily(operands) if len(operands) > 1 else self.value(operands[0])
        if operation == "copy-done":
            return self.value(operands[0])[0]()
        if operation in ("fusion", "call"):
            return Scope(self.module, instruction.called, self.lazily(operands)).root()
        if operation == "while":
            return self.carried(instruction)
        if operation in _SAME and (operation == "opt-barrier" or _is_scalar(instruction)):
            return self.value(operands[0])
        if operation == "compare":
            direction = re.search(r"direction=(\w+)", instruction.attributes)[1]
            return _COMPARISONS[direction](*(self.value(o) for o in operands))
        if operation in _ARITHMETIC and _is_scalar(instruction):
            return _ARITHMETIC[operation](*(self.value(o) for o in operands))
        raise Unknown(f"{instruction.name}, a {operation}")

    def _parameter(self, number: int) -> Any:
        if isinstance(self._parameters, Mapping):
            if number not in self._parameters:
                raise Unknown(f"argument {number} of the program")
            return self._parameters[number]
        return self._parameters[number]()

    def carried(self, loop: Instruction) -> list[Callable[[], Any]]:
        """What a loop carries, in each of its iterations: elements that it changes are unknown."""

        def changed():
            raise Unknown(f"what {loop.name} changes")

        body = self.module[_of(loop, "body")]
        root = body.instructions[body.root]
        before = self.value(loop.operands[0])
        if root.operation != "tuple":
            return [changed] * len(before)
        return [
            same if _passes(body, name, index) else changed
            for index, (name, same) in enumerate(zip(root.operands, before, strict=True))
        ]

    def iterations(self, loop: Instruction) -> int:
        """How many times the body of a `while` runs.

        Raises:
            Unknown: it depends on more than constants and known arguments.
        """
        if known := re.search(r"known_trip_count\W+n\W+(\d+)", loop.attributes):
            return int(known[1])
        body, condition = _of(loop, "body"), _of(loop, "condition")
        state = self.value(loop.operands[0])
        for count in range(_LONGEST):
            if not Scope(self.module, condition, [lambda now=state: now]).root():
                return count
            state = Scope(self.module, body, [lambda now=state: now]).root()
        raise Unknown(f"{loop.name}, which runs more than {_LONGEST} times")


_SAME = ("copy", "bitcast", "convert", "reshape", "opt-barrier")
_ARITHMETIC = {
    "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "multiply": lambda a, b: a * b,
    "minimum": min, "maximum": max, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "not": lambda a: not a, "select": lambda c, a, b: a if c else b,
}  # fmt: skip
_COMPARISONS = {
    "LT": lambda a, b: a < b, "LE": lambda a, b: a <= b, "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b, "EQ": lambda a, b: a == b, "NE": lambda a, b: a != b,
}  # fmt: skip


def _is_scalar(instruction: Instruction) -> bool:
    return all(np.prod(array.shape) == 1 for array in instruction.result)


def _of(instruction: Instruction, role: str) -> str:
    return re.search(role + r"=%?([\w.\-]+)", instruction.attributes)[1]


def _passes(body: Computation, name: str, index: int) -> bool:
    """Whether an instruction is element `index` of the parameter, unchanged."""
    instruction = body.instructions[name]
    while instruction.operation in ("copy", "bitcast"):
        instruction = body.instructions[instruction.operands[0]]
    if instruction.operation != "get-tuple-element":
        return False
    source = body.instructions[instruction.operands[0]]
    own = re.search(r"index=(\d+)", instruction.attributes)[1]
    return source.operation == "parameter" and int(own) == index


def executed(
    parsed: Module, arguments: Mapping[int, int]
) -> Iterator[tuple[Instruction, Computation, int] | Loop]:
    """Every instruction that runs, with its computation and how many times; and the loops.

    Fusions are not entered: each is one kernel. If a branch depends on data, the longer one is
    taken. `arguments` are integers that are known, by number of the entry's parameter.

    Raises:
        Unknown: a loop's number of iterations is unknown.
    """
    yield from _walk(Scope(parsed, "ENTRY", arguments), 1)


def _walk(scope: Scope, times: int) -> Iterator[tuple[Instruction, Computation, int] | Loop]:
    parsed = scope.module
    for instruction in scope.computation.instructions.values():
        arguments = scope.lazily(instruction.operands)
        if instruction.operation == "while":
            try:
                count = scope.iterations(instruction)
            except Unknown as error:
                raise Unknown(f"the iterations of {instruction.name} depend on {error}") from None
            yield Loop(instruction.name, instruction.source, count, times)
            inner = [lambda i=instruction: scope.carried(i)]
            yield from _walk(Scope(parsed, _of(instruction, "body"), inner), count * times)
        elif instruction.operation in ("call", "async-start"):
            yield from _walk(Scope(parsed, instruction.called, arguments), times)
        elif instruction.operation == "conditional":
            yield from _branch(scope, instruction, times)
        else:
            yield instruction, scope.computation, times


def _branch(scope, instruction, times):
    if match := _BRANCHES.search(instruction.attributes):
        names = [name.strip().lstrip("%") for name in match[1].split(",")]
        operands = instruction.operands[1:]
    else:  # the condition is a truth value; the true branch's operand comes first
        names = [_of(instruction, "false_computation"), _of(instruction, "true_computation")]
        operands = instruction.operands[:0:-1]
    walks = []
    for name, operand in zip(names, operands, strict=True):
        walks.append(list(_walk(Scope(scope.module, name, scope.lazily([operand])), times)))
    try:
        index = int(scope.value(instruction.operands[0]))
    except Unknown:
        index = max(range(len(walks)), key=lambda i: len(walks[i]))
    yield from walks[index if 0 <= index < len(walks) else -1]  # as XLA defines it
