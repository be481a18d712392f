"""Flags and errors, the same for every program.

A user's mistake ends the program with one line and exit code 2, before anything is overwritten.
"""

import contextlib
import difflib
import os
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from absl import app, flags

import rcrl_jax
from rcrl_jax import words
from rcrl_jax.config import fields, presets
from rcrl_jax.programs import commands

# `--help` lists the flags of the program's own module. Flags defined here count as the caller's.
flags.disclaim_key_flags()

USAGE_ERROR = 2
DEVICES = pathlib.Path("/dev")
"""Holds `nvidia0`, or in a container another number, if there is a GPU of NVIDIA."""

MOST_EPISODES = 10_000  # of an evaluation
_MOST_SEEDS = 1000  # a slip like 0:99999999 must not fill the memory
_FIELD = "config."  # begins the name of a field's flag
_SUFFIXES = {"k": "e3", "M": "e6"}
_GROUP = "hyperparameters of the preset"  # a heading of --help

Config = TypeVar("Config")


class _Integer(flags.IntegerParser):
    """An integer, also as 1e5, 100k or 1M."""

    def convert(self, argument: int | str) -> int:
        try:
            return super().convert(argument)
        except ValueError:
            with contextlib.suppress(ValueError):
                number = float(re.sub(r"(?<=\d)([kM])$", lambda m: _SUFFIXES[m[1]], argument))
                if number.is_integer():
                    return int(number)
            raise


class _Names(flags.ArgumentParser):
    """Names with commas between them, also as Python writes a tuple: () is the empty one."""

    def parse(self, argument: str | tuple[str, ...]) -> tuple[str, ...]:
        if isinstance(argument, str):
            text = argument.strip()
            if text == "()":
                return ()
            if text.startswith("(") and text.endswith(")"):
                text = text[1:-1].strip().removesuffix(",")  # Python's tuple of one name has one
            names = [name.strip(" '\"") for name in text.split(",")]
            # A typo must not silently drop one task or all.
            if not all(re.fullmatch(r"[^\s'\"()]+", name) for name in names):
                raise ValueError("expected names with commas between them, or () for none")
            return tuple(names)
        return tuple(argument)


_PARSERS = {
    int: flags.IntegerParser,
    float: flags.FloatParser,
    str: flags.ArgumentParser,
    tuple: _Names,
}


def define_config(presets: Mapping[str, Config], default: str, argv: list[str]) -> None:
    """Defines --preset, and a flag for every field of the preset that `argv` names."""
    flags.DEFINE_enum(
        "preset", default, list(presets), "which agent; docs/contents.md describes each"
    )
    # `--help` lists it, whichever module has called this.
    flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS["preset"])
    # The preset must be known before its fields can be flags.
    ahead = flags.FlagValues()
    flags.DEFINE_string("preset", default, "", flag_values=ahead)
    with _refusing():
        ahead(argv, known_only=True)
    define_fields(presets.get(ahead["preset"].value, presets[default]))


def define_fields(preset: Config) -> None:
    """Defines a flag --config.<name> for every field of `preset`, whose values are the defaults."""
    unused = fields.without_effect(preset)
    for field in fields.named_fields(preset):
        kind = typing.get_origin(field.type) or field.type
        meaning = f"{field.metadata['meaning']} (source: {field.metadata['source']})"
        if field.name in unused:
            meaning += f"; without effect unless {unused[field.name]}"
        name = _FIELD + field.name
        if kind is bool:  # which has a --no form
            flags.DEFINE_bool(name, field.value, meaning, module_name=_GROUP)
        else:
            flags.DEFINE(_PARSERS[kind](), name, field.value, meaning, module_name=_GROUP)


def changed_fields() -> dict[str, Any]:
    """Dotted name -> value of each field that the command line sets."""
    given = [name for name in flags.FLAGS if name.startswith(_FIELD) and flags.FLAGS[name].present]
    return {name.removeprefix(_FIELD): flags.FLAGS[name].value for name in given}


def read_config(presets: Mapping[str, Config]) -> Config:
    """The preset that the flags name, with the fields that they change.

    Raises:
      ValueError: a value is out of range; the message names the field.
    """
    return fields.replace(presets[flags.FLAGS.preset], changed_fields())


def read_numbers(name: str, most: int) -> list[int]:
    """The numbers that a list flag names.

    Raises:
      ValueError: they are not whole numbers from 1 to `most`.
    """
    texts = flags.FLAGS[name].value
    try:
        return [_Integer(1, most).parse(text) for text in texts]
    except ValueError:
        raise ValueError(
            f"--{name}: expected numbers from 1 to {most}, got {','.join(texts)!r}"
        ) from None


def count_devices() -> int:
    """The devices that JAX finds.

    Raises:
      ValueError: it finds none, as where JAX_PLATFORMS names one that is not there.
    """
    import jax  # late: a program sets up the host's memory before JAX starts its threads

    try:
        return jax.device_count()
    except (RuntimeError, AssertionError) as error:  # JAX asserts that a device exists
        asked = f"no device of JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
        raise ValueError(
            f"JAX: {error if str(error) else asked}; JAX_PLATFORMS=cpu trains on the CPU; "
            "make GPU=cuda13 (or cuda12, tpu) atari, or pip install 'rcrl-jax[cuda13]', "
            "installs JAX for an accelerator"
        ) from error


def idle_gpu(backend: str) -> str:
    """What to do about a GPU that JAX does not use; '' if there is none, or if that was asked for.

    Args:
      backend: the one that JAX uses.
    """
    if backend != "cpu" or os.environ.get("JAX_PLATFORMS"):
        return ""
    if not any(DEVICES.glob("nvidia[0-9]*")):
        return ""
    return (
        "JAX does not use the GPU here: make .venv/accelerator-cuda13 (or -cuda12), "
        "or pip install 'rcrl-jax[cuda13]'"
    )


def parse_seeds(value: Any, where: str = "--seeds") -> tuple[int, ...]:
    """The seeds that a text like 0,1,2 or 0:5 (0 to 4) names, or that a list holds.

    Args:
      value: text or list.
      where: where it stands, for the message.

    Raises:
      ValueError: they are not between 1 and 1000 different seeds.
    """
    seeds = value
    if isinstance(value, str) and re.fullmatch(r"\d{1,10}:\d{1,10}", value, re.ASCII):
        first, end = map(int, value.split(":"))
        seeds = list(range(first, min(end, first + _MOST_SEEDS + 1)))
    elif isinstance(value, str) and re.fullmatch(r"\d{1,10}( *, *\d{1,10})*", value, re.ASCII):
        seeds = [int(seed) for seed in value.split(",")]
    if (
        not isinstance(seeds, list)
        or not 1 <= len(seeds) <= _MOST_SEEDS
        or not all(type(seed) is int and 0 <= seed <= fields.LARGEST_INT for seed in seeds)
        or len(set(seeds)) != len(seeds)
    ):
        raise ValueError(
            f"{where}: expected different seeds like 0,1,2 or a range like 0:5, "
            f"at most {_MOST_SEEDS}, got {value!r}"
        )
    return tuple(seeds)


def say_if_one_seed(text: str) -> None:
    """Says what a lone number given to --seeds means, if it may be meant as a number of seeds."""
    if text.strip().isdecimal() and (number := int(text)) > 1:
        words.say(f"--seeds={number} is seed {number} alone: {number} seeds are --seeds=0:{number}")


def asks_for_help(argv: list[str]) -> bool:
    """Whether a command line asks what the program does, rather than to do it."""
    words = {argument.lstrip("-") for argument in argv[1:] if argument.startswith("-")}
    return bool(words & {"help", "helpshort", "helpfull", "h", "?"})


def parse(argv: list[str]) -> list[str]:
    """A flags parser for `absl.app.run`: --help exits with 0, a mistake with 2."""
    if asks_for_help(argv):
        in_full = "--helpfull" in argv or "-helpfull" in argv
        main = sys.modules["__main__"]
        main.__doc__ = commands.as_typed(main.__doc__ or "")
        app.usage(shorthelp=not in_full, writeto_stdout=True)
        if _GROUP in flags.FLAGS.flags_by_module_dict():
            print("" if in_full else f"{flags.FLAGS.module_help(_GROUP)}\n")
            for source, meaning in fields.SOURCES.items():
                print(f"source {source}: {meaning}")
        sys.exit(0)
    if "--version" in argv[1:]:
        print(rcrl_jax.__version__)
        sys.exit(0)
    for flag in map(flags.FLAGS.__getitem__, flags.FLAGS):
        if type(flag.parser) is flags.IntegerParser:
            flag.parser = _Integer(flag.parser.lower_bound, flag.parser.upper_bound)
    with _refusing():
        # Before the user's flags. Without it the checkpoint library logs every save.
        rest = flags.FLAGS([argv[0], "--verbosity=-1", *argv[1:]])
    if len(rest) > 1:
        refuse(f"unexpected argument {rest[1]!r}: flags look like --game=Pong")
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if flag.present and flag.value in ("", []):
            refuse(f"--{name}: names nothing; leave the flag out or give it a value")
        # A program would take '' for the current directory, or for a name.
        if flag.present and isinstance(flag.value, list) and not all(map(str.strip, flag.value)):
            refuse(f"--{name}: an item of {','.join(flag.value)!r} is empty")
    return rest


def run(program: Callable[[flags.FlagValues], None]) -> NoReturn:
    """Runs a program on its flags; every ValueError and OSError is a refusal."""

    def main(argv: list[str]) -> None:
        del argv
        try:
            program(flags.FLAGS)
        except (ValueError, OSError) as error:
            refuse(str(error))

    app.run(main, flags_parser=parse)


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Refuses a command line that the flag library cannot read."""
    try:
        yield
    except flags.UnrecognizedFlagError as error:
        name, near = error.flagname, _flags_like(error.flagname)
        meant = f"did you mean {' or '.join(f'--{one}' for one in near)}? " if near else ""
        refuse(f"unknown flag --{name}: {meant}see --help")
    except Exception as error:  # parsers of values raise more than the library's own errors
        if hint := _hint(str(error)):
            refuse(hint)
        refuse(f"{str(error).removeprefix('ERROR:: ') or type(error).__name__}; see --help")


def _flags_like(name: str) -> list[str]:
    """The flags that a mistyped name may mean, at most two.

    Similar flags of the same group come first. If the name has a known group, flags of
    unrelated groups are left out.
    """
    if f"{_FIELD}{name}" in flags.FLAGS:
        return [f"{_FIELD}{name}"]
    own, _, last = name.rpartition(".")
    groups = {flag: flag.rpartition(".")[0] for flag in flags.FLAGS}
    near = [
        flag
        for flag, group in groups.items()
        if own not in groups.values() or group.startswith(own) or (group and own.startswith(group))
        # Only the last part and its last word are compared: fields of a group share the rest.
        if difflib.get_close_matches(last, {flag.rpartition(".")[2], re.split("[._]", flag)[-1]})
    ]
    of_group = [flag for flag in near if groups[flag] == own]
    return difflib.get_close_matches(name, of_group or near, n=2, cutoff=0)


def _hint(error: str) -> str:
    """What the flag that the library refused is meant for; '' if that is not known."""
    if seed := re.search(r"flag --seed=(\d*[:,][\d:,]*): ", error):
        return f"--seed={seed[1]}: names one seed; several are --seeds={seed[1]}"
    if preset := re.search(r"flag --preset=(\S+): ", error):
        for family, program in (
            (presets.atari_presets(), "experiments.atari100k"),
            (presets.control_presets(), "experiments.dmc"),
        ):
            if preset[1] in family:
                return f"--preset={preset[1]}: is a preset of {program}"
    return ""


@contextlib.contextmanager
def refusing_lack_of_memory(of_host: str, of_device: str) -> Iterator[None]:
    """Refuses work that does not fit into the memory; for each memory, one text says what to do."""
    import jax  # late: --help needs no JAX

    try:
        yield
    except MemoryError as error:
        refuse(f"too little memory: {error}; {of_host}")
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        refuse(f"too little device memory: {error}; {of_device}")


def refuse(message: str) -> NoReturn:
    """Prints one line and ends the program with exit code 2."""
    fail(message, USAGE_ERROR)


def fail(message: str, code: int) -> NoReturn:
    """Prints one line and ends the program."""
    with contextlib.suppress(OSError):  # the terminal may be gone
        print(f"error: {words.one_line(commands.as_typed(message), 500)}", file=sys.stderr)
    sys.exit(code)
