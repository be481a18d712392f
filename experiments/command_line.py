"""Flags and errors, the same for every program.

A user's mistake ends the program with one line and exit code 2, before anything is overwritten.
"""

import contextlib
import dataclasses
import difflib
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, TypeVar

from absl import app, flags
from ml_collections import config_flags

from rcrl_jax.config import fields

# `--help` lists the flags of the program's own module. Flags defined here belong to the caller's.
flags.disclaim_key_flags()

USAGE_ERROR = 2

LARGEST_SEED = 2**31 - 1
_MOST_SEEDS = 1000  # a slip like 0:99999999 must not fill the memory

Config = TypeVar("Config")


def define_config(presets: Mapping[str, Config], default: str, argv: list[str]) -> None:
    """Defines --preset, and --config with every field of the preset that `argv` names.

    The names of fields on the command line are checked here, because the flag library reads them
    as soon as --config is defined.
    """
    flags.DEFINE_enum("preset", default, list(presets), "row of the paper's table")
    # The preset must be known before its fields can be flags.
    name = read_ahead(argv, "preset").get("preset", default)
    define_fields(presets.get(name, presets[default]), name, argv)


def read_ahead(argv: list[str], *names: str) -> dict[str, str]:
    """Flag -> text, of those among `names` that `argv` sets, before the other flags are defined.

    Ends the program if `argv` cannot be read.
    """
    ahead = flags.FlagValues()
    for name in names:
        flags.DEFINE_string(name, None, "", flag_values=ahead)
    with _refusing():
        ahead(argv, known_only=True)
    return {name: ahead[name].value for name in names if ahead[name].value is not None}


def define_fields(preset: Config, name: str, argv: list[str]) -> None:
    """Defines --config with every field of `preset`, named `name`; checks fields in `argv`."""
    names = [field.name for field in fields.named_fields(preset)]
    for argument in argv[1:]:
        flag = argument.partition("=")[0].lstrip("-").removeprefix("no")
        field = flag.removeprefix("config.")
        if flag.startswith("config.") and field not in names:
            near = difflib.get_close_matches(field, names, n=1)
            hint = f"did you mean {near[0]}?" if near else "--help lists them"
            refuse(f"unknown field {field!r} in {argument!r}: {hint}")
    with _refusing():
        config_flags.DEFINE_config_dataclass(
            "config",
            _mutable_twin(preset),
            f"hyperparameters of the preset ({name}):\n{fields.describe_fields(preset)}\n"
            f"{fields.describe_sources()}",
            sys_argv=argv,
        )


def read_config(presets: Mapping[str, Config]) -> Config:
    """The preset that the flags name, with their overrides.

    Raises:
      ValueError: a value is out of range; the message names the field.
    """
    return fields.replace(presets[flags.FLAGS.preset], fields.values(flags.FLAGS.config))


def read_overrides(preset: Config) -> dict[str, Any]:
    """Dotted name -> value of each field that --config changes; `preset` is what defined it."""
    values = fields.values(preset)
    given = fields.values(flags.FLAGS.config)
    return {name: value for name, value in given.items() if value != values[name]}


def read_numbers(name: str, most: int) -> list[int]:
    """The numbers that a list flag names.

    Raises:
      ValueError: there is none, or they are not whole numbers from 1 to `most`.
    """
    texts = flags.FLAGS[name].value
    if not texts or not all(text.isdecimal() and 1 <= int(text) <= most for text in texts):
        raise ValueError(f"--{name}: expected numbers from 1 to {most}, got {','.join(texts)!r}")
    return [int(text) for text in texts]


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
        or not all(type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in seeds)
        or len(set(seeds)) != len(seeds)
    ):
        raise ValueError(
            f"{where}: expected different seeds like 0,1,2 or a range like 0:5, "
            f"at most {_MOST_SEEDS}, got {value!r}"
        )
    return tuple(seeds)


def parse(argv: list[str]) -> list[str]:
    """A flags parser for `absl.app.run`: --help exits with 0, a mistake with 2."""
    asked = {argument.lstrip("-") for argument in argv[1:]}
    if asked & {"help", "helpshort", "helpfull", "?"}:
        app.usage(shorthelp="helpfull" not in asked, writeto_stdout=True, exitcode=0)
    with _refusing():
        # Before the user's flags. Without it the checkpoint library logs every save.
        rest = flags.FLAGS([argv[0], "--verbosity=-1", *argv[1:]])
    if len(rest) > 1:
        refuse(f"unexpected argument {rest[1]!r}: flags look like --game=Pong")
    for name in flags.FLAGS:
        flag = flags.FLAGS[name]
        if flag.present and flag.value in ("", []):
            refuse(f"--{name}: names nothing; leave the flag out or give it a value")
    return rest


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Refuses a command line that the flag library cannot read."""
    try:
        yield
    except Exception as error:  # parsers of values raise more than the library's own errors
        refuse(f"{str(error).removeprefix('ERROR:: ') or type(error).__name__}; see --help")


def refuse(message: str) -> NoReturn:
    """Prints one line and ends the program with exit code 2."""
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def _mutable_twin(config: Any) -> Any:
    """A mutable copy with the same fields: the flag library assigns to attributes."""
    twins = []
    for field in dataclasses.fields(config):
        value, kind = getattr(config, field.name), field.type
        if dataclasses.is_dataclass(value):
            twin = _mutable_twin(value)
            default, kind = dataclasses.field(default_factory=lambda twin=twin: twin), type(twin)
        else:
            default = dataclasses.field(default=value, metadata=field.metadata)
        twins.append((field.name, kind, default))
    return dataclasses.make_dataclass(type(config).__name__, twins)()
