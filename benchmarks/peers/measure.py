"""The programs in turns, and the tables of what they took."""

import json
import pathlib
import statistics
import subprocess
import sys
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from benchmarks.compiled import counting
from rcrl_jax.programs import markdown

STEP, UPDATE, TURN = "agent step with its update", "update", "turn of the replay"


class Pair(NamedTuple):
    """Our program, another code base's, and what a step of both is."""

    ours: str
    theirs: str
    step: str


# `erainbow`, `curl` and `curl_sac` are the same algorithms as the peers in PyTorch. We know no
# public code of RCRL, which has the same base agent as CURL. The pairs with peers in JAX compute
# algorithms of one kind; `rainbow_der` has Dopamine's settings, and its network without padding.
PAIRS = (
    Pair("erainbow", "kaixhin", STEP),
    Pair("curl", "curl_rainbow", STEP),
    Pair("rcrl", "curl_rainbow", STEP),
    Pair("curl_sac", "curl_control", UPDATE),
    Pair("rcrl_sac", "curl_control", UPDATE),
    Pair("rainbow_der", "dopamine_der", STEP),
    Pair("rainbow_der", "dopamine_drq", STEP),
    Pair("erainbow", "dopamine_der", STEP),
    Pair("der_plus", "dopamine_drq", STEP),
    Pair("rainbow_der_update", "cleanrl", UPDATE),
    Pair("sac_aug", "jaxrl_drq", UPDATE),
    Pair("state_sac", "jaxrl_sac", UPDATE),
    Pair("replay_1", "flashbax_1", TURN),
    Pair("replay_26", "flashbax_26", TURN),
)


class PeerFailed(Exception):
    """A program does not run."""


class Took(NamedTuple):
    """What steps took: seconds by the clock, and of the process's threads together."""

    wall_s: float
    cpu_s: float


class Process:
    """A process that steps a program, ours or another code base's."""

    def __init__(self, name: str, command: Sequence[str | pathlib.Path]) -> None:
        """Starts it and waits for its first updates; raises PeerFailed if it ends."""
        self._name = name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while not (line := self._line()).startswith("ready "):
            pass
        self.version = line.removeprefix("ready ")  # of PyTorch or JAX

    def advance(self, count: int) -> Took:
        """Takes steps."""
        return Took(*map(float, self._ask(count).split()))

    def flop(self) -> int | None:
        """FLOP of the matrix products of an update, if its program is known.

        They are counted in the program before the compiler's passes, which has no native kernel.
        """
        program = json.loads(self._ask("program"))
        if program is None:
            return None
        text, known = program
        return counting.flop(text, {int(place): value for place, value in known.items()})

    def end(self) -> None:
        """Ends the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, line: object) -> str:
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> str:
        if not (line := self._process.stdout.readline()):
            raise PeerFailed(f"{self._name} has ended with exit code {self._process.wait()}")
        return line.strip()


def our_command(name: str) -> list[str]:
    """What starts one of our programs."""
    return [sys.executable, "-m", "benchmarks.peers.ours", name]


def peer_command(name: str, python: str, directory: str) -> list[str | pathlib.Path]:
    """What starts another code base's program."""
    return [python, pathlib.Path(__file__).with_name("process.py"), name, directory]


class Measured(NamedTuple):
    """A program's times.

    Attributes:
      version: of PyTorch or JAX.
      gflop: of an update's matrix products; None if unknown.
      steps: in each round.
      took: those steps, in each round.
    """

    version: str
    gflop: float | None
    steps: int
    took: list[Took]

    def milliseconds(self, clock: str) -> list[float]:
        """Of a step, in each round."""
        return [1e3 * getattr(took, clock) / self.steps for took in self.took]


def groups(peers: Collection[str]) -> Iterable[list[Pair]]:
    """The pairs with these peers; programs that are compared with one another are together."""
    left = [pair for pair in PAIRS if pair.theirs in peers]
    while left:
        group = [left.pop(0)]
        for pair in group:
            near = [other for other in left if {*other[:2]} & {*pair[:2]}]
            group += near
            left = [other for other in left if other not in near]
        yield group


def in_turns(
    processes: dict[str, Process], rounds: int, steps: int | None, seconds: float
) -> dict[str, Measured]:
    """Steps the programs in turns.

    Args:
      processes: the programs.
      rounds: how often each has a turn.
      steps: of a turn; None: as many as take about `seconds`.
      seconds: see `steps`.
    """
    measured = {}
    for name, process in processes.items():
        flop = process.flop()
        count = steps or max(1, round(seconds / process.advance(1).wall_s))
        gflop = None if flop is None else flop / 1e9
        measured[name] = Measured(process.version, gflop, count, [])
    for _ in range(rounds):
        for name, process in processes.items():
            measured[name].took.append(process.advance(measured[name].steps))
    return measured


def ratios(measured: dict[str, Measured], pair: Pair) -> dict[str, list[float]]:
    """How many times as fast ours is within each round: by the clock, by CPU time, per FLOP."""
    ours, theirs = measured[pair.ours], measured[pair.theirs]

    def times(clock):
        both = zip(ours.milliseconds(clock), theirs.milliseconds(clock), strict=True)
        return [their / own for own, their in both]

    found = {"wall": times("wall_s"), "cpu": times("cpu_s")}
    if ours.gflop and theirs.gflop:
        found["per_flop"] = [ratio * ours.gflop / theirs.gflop for ratio in found["cpu"]]
    return found


def report(measured: dict[str, Measured], pairs: Sequence[Pair]) -> str:
    """Two tables of Markdown: the programs, and the pairs; medians of the rounds, with ranges."""
    step = {name: pair.step for pair in pairs for name in pair[:2]}
    programs = []
    for name, own in measured.items():
        cpu = own.milliseconds("cpu_s")
        rate = own.gflop and own.gflop / statistics.median(cpu) * 1e3
        programs.append([
            f"`{name}`", step[name], _median(own.milliseconds("wall_s")), _median(cpu),
            "–" if own.gflop is None else f"{own.gflop:.3f}", f"{rate:.0f}" if rate else "–",
        ])  # fmt: skip
    compared = []
    for pair in pairs:
        found = ratios(measured, pair)
        cells = [_median(found[kind]) if kind in found else "–" for kind in KINDS]
        compared.append([f"`{pair.ours}` / `{pair.theirs}`", *cells])
    heads = (
        ["program", "a step", "wall ms", "CPU ms", "GFLOP an update", "GFLOP/s of CPU time"],
        ["times as fast", "wall", "CPU time", "per FLOP"],
    )
    return "\n\n".join(map(markdown.table, heads, (programs, compared)))


KINDS = ("wall", "cpu", "per_flop")


def _median(values: Sequence[float]) -> str:
    middle, least, most = (
        f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
        for value in (statistics.median(values), min(values), max(values))
    )
    return f"{middle} ({least} to {most})"
