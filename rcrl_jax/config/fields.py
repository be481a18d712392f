"""Fields of a configuration: their meaning, source and range, and the functions that use them."""

import dataclasses
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

Config = TypeVar("Config")

# Returns None for a valid value, else what a valid value must be, for the error message.
Check = Callable[[Any], str | None]

SOURCES = {
    "K": "github.com/Kaixhin/Rainbow, the codebase RCRL builds on, with its data-efficient flags",
    "RCRL": "Liu et al., Return-Based Contrastive Representation Learning for RL, ICLR 2021",
    "C": "github.com/aravindsrinivas/curl_rainbow, the code behind CURL's Atari scores",
    "CURL": "Srinivas et al., CURL, ICML 2020, tables of the appendix; where they are silent, "
    "github.com/MishaLaskin/curl, the codebase that RCRL uses for DMControl",
    "AE": "Yarats et al., Improving Sample Efficiency in Model-Free RL from Images (SAC+AE)",
    "D": "github.com/google/dopamine, labs/atari_100k: DER.gin and DrQ_eps.gin",
    "DR": "github.com/google-research/dreamer, the code behind Dreamer (Hafner et al., 2020)",
    "PL": "github.com/google-research/planet, the code behind PlaNet (Hafner et al., 2019)",
    "SL": "github.com/alexlee-gk/slac, the code behind SLAC (Lee et al., 2020)",
    "SP": "github.com/tensorflow/tensor2tensor of May 2019, the code behind SimPLe (Kaiser et al., "
    "2020)",
    "M": "Young and Tian, MinAtar, 2019 (arXiv 1903.03176)",
    "ours": "our choice, where no source says it; docs/decisions.md gives the reason",
}
"""What the sources of settings stand for."""

LARGEST_INT = 2**31 - 1
"""Counters and sizes are 32-bit integers on the device."""
_SMALLEST_FLOAT, _LARGEST_FLOAT = 1.2e-38, 3.4e38  # of float32, rounded inwards
_LARGEST_BELOW_ONE = 0.9999999  # likewise


class UsedIf(NamedTuple):
    """When a field affects training."""

    test: Callable[[Mapping[str, Any]], bool]  # of the values of all fields by dotted name
    wanted: str  # in words, for messages

    def __and__(self, other: "UsedIf") -> "UsedIf":
        """Both conditions must hold."""
        return UsedIf(
            lambda values: self.test(values) and other.test(values),
            f"{self.wanted} and {other.wanted}",
        )


def when(name: str, *choices: Any) -> UsedIf:
    """The field has an effect only if the field `name` has one of the values."""
    wanted = f"{name} is {' or '.join(map(repr, choices))}"
    return UsedIf(lambda values: values.get(name) in choices, wanted)


def above_zero(name: str) -> UsedIf:
    """The field has an effect only if the field `name`, which is never negative, is above 0."""
    return UsedIf(lambda values: values.get(name) != 0, f"{name} is above 0")


def with_task(name: str) -> UsedIf:
    """The field has an effect only with this auxiliary task."""
    holds = UsedIf(lambda values: name in values.get("auxiliary", ()), f"auxiliary holds {name!r}")
    return holds & above_zero("auxiliary_weight")


def setting(
    default: Any,
    meaning: str,
    source: str,
    check: Check | None = None,
    used_if: UsedIf | None = None,
    measures: bool = False,
) -> Any:
    """A dataclass field with its one-line `meaning` (unit included), `source` and range.

    `used_if` says when the field affects training; `measures`, whether measurements read it, too.
    """
    metadata = {"meaning": meaning, "source": source, "check": check, "measures": measures}
    return dataclasses.field(default=default, metadata=metadata | {"used_if": used_if})


def group(default: Any, used_if: UsedIf) -> Any:
    """A dataclass field that groups fields, which have an effect only under a condition."""
    return dataclasses.field(default=default, metadata={"used_if": used_if})


def with_default(config: type, name: str, default: Any, used_if: UsedIf | None = None) -> Any:
    """The field `name` of another configuration with another default, and maybe a condition."""
    metadata = dict(config.__dataclass_fields__[name].metadata)
    if used_if is not None:
        metadata["used_if"] = used_if
    return dataclasses.field(default=default, metadata=metadata)


def precision(stored: str = "") -> Any:
    """The field `precision`; `stored` says what else has that precision."""
    return setting(
        "tf32",
        "precision of the inputs of matrix products: 'float32', 'tf32' (10 bits of mantissa) or "
        f"'bfloat16' (7){stored}; parameters and sums are float32; with 'tf32', a CPU rounds less "
        "or not at all",
        "ours",
        one_of("float32", "tf32", "bfloat16"),
    )


def one_of(*choices: str) -> Check:
    """The value is one of `choices`."""
    return name_in(choices)


def name_in(choices: Collection[str]) -> Check:
    """The value is one of `choices`, which may grow."""
    return lambda value: None if value in choices else f"one of {', '.join(choices)}"


def some_of(choices: Collection[str]) -> Check:
    """The value is a tuple of different `choices`, maybe empty."""

    def check(value: tuple[str, ...]) -> str | None:
        if any(not isinstance(name, str) or name not in choices for name in value):
            return f"names out of {', '.join(choices)}"
        return names(value)

    return check


def names(value: tuple[str, ...]) -> str | None:
    """The value is a tuple of different strings, maybe empty."""
    if not all(isinstance(name, str) for name in value) or len(set(value)) < len(value):
        return "names that differ from each other"
    return None


def between(least: int, most: int) -> Check:
    """The value lies in [least, most]."""

    def check(value: int) -> str | None:
        if value < least:
            return f"at least {least}"
        return f"at most {most}" if value > most else None

    return check


def at_least(least: int) -> Check:
    """The value is `least` or more, and a 32-bit integer."""
    return between(least, LARGEST_INT)


frames = between(1, 100)
"""The value is a number of frames of a stack or a window."""


def finite(value: float) -> str | None:
    """The value is finite in float32."""
    return None if abs(value) <= _LARGEST_FLOAT else "finite in float32"


def positive(value: float) -> str | None:
    """The value is above 0, and float32 holds it."""
    return None if _SMALLEST_FLOAT <= value <= _LARGEST_FLOAT else "positive and finite in float32"


def not_negative(value: float) -> str | None:
    """The value is 0 or more, and float32 holds it."""
    return None if 0 <= value <= _LARGEST_FLOAT else "0 or more and finite in float32"


def fraction(value: float) -> str | None:
    """The value lies in [0, 1]."""
    return None if 0 <= value <= 1 else "in [0, 1]"


def below_one(value: float) -> str | None:
    """The value lies in [0, 1), also in float32."""
    return None if 0 <= value <= _LARGEST_BELOW_ONE else "in [0, 1) in float32"


class NamedField(NamedTuple):
    """One field of a configuration or of one of its groups."""

    name: str  # as on the command line: `batch_size` or `return_contrast.batch_size`
    value: Any
    type: Any
    metadata: Mapping[str, Any]
    conditions: tuple[UsedIf, ...]  # all must hold for the field to affect training


def named_fields(config: Any) -> Iterator[NamedField]:
    """Yields every field of `config`, those of its groups with a dotted name."""
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        used_if = field.metadata.get("used_if")
        conditions = () if used_if is None else (used_if,)
        if dataclasses.is_dataclass(value):
            for inner in named_fields(value):
                yield inner._replace(
                    name=f"{field.name}.{inner.name}", conditions=conditions + inner.conditions
                )
        else:
            yield NamedField(field.name, value, field.type, field.metadata, conditions)


def values(config: Any) -> dict[str, Any]:
    """The value of every field of `config` by its dotted name."""
    return {field.name: field.value for field in named_fields(config)}


def value_of(name: str, value: Any, kind: Any, check: Check | None = None) -> Any:
    """A value from a call or from TOML as the type `kind` of a field: 1e5 is 100000.

    Raises:
      ValueError: the value is of another type or fails the check; the message begins with `name`.
    """
    import numpy as np  # late: most programs that read configurations start without it

    kind = typing.get_origin(kind) or kind
    if isinstance(value, np.generic):
        value = value.item()
    if kind is float and type(value) is int:
        value = float(value)
    elif kind is int and type(value) is float and value.is_integer():
        value = int(value)
    elif isinstance(value, list):
        value = tuple(value)
    if type(value) is not kind:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
        raise ValueError(f"{name}: expected {names.get(kind, 'a list')}, got {value!r}")
    if check and (wanted := check(value)):
        raise ValueError(f"{name}: must be {wanted}, got {value}")
    return value


def without_effect(config: Any) -> dict[str, str]:
    """The fields that neither training nor measurements read, each with what it would need."""
    known = values(config)
    return {
        field.name: condition.wanted
        for field in named_fields(config)
        for condition in field.conditions
        if not field.metadata["measures"] and not condition.test(known)
    }


def replace_used(config: Config, changes: Mapping[str, Any]) -> Config:
    """Like `replace`, but leaves out changes that would have no effect."""
    unused = without_effect(replace(config, changes))
    return replace(config, {name: x for name, x in changes.items() if name not in unused})


def flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by dotted name."""
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def check_fields(config: Any) -> None:
    """Checks every field of `config` and of its groups against its range.

    Raises:
      ValueError: a value lies outside; the message begins with the field's name.
    """
    for field in named_fields(config):
        check = field.metadata["check"]
        wanted = None if check is None else check(field.value)
        if wanted is not None:
            raise ValueError(f"{field.name}: must be {wanted}; got {field.value!r}")


def replace(config: Config, changes: Mapping[str, Any]) -> Config:
    """A copy of `config` with changed fields, by their dotted names.

    Raises:
      ValueError: a value lies outside its range, or two fields exclude each other; the message
        begins with a field's name.
      AttributeError, TypeError: there is no such field.
    """
    changed: dict[str, Any] = {}
    in_groups: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        group, dot, inner = name.partition(".")
        if dot:
            in_groups.setdefault(group, {})[inner] = value
        else:
            changed[name] = value
    for group, inner_changes in in_groups.items():
        changed[group] = replace(getattr(config, group), inner_changes)
    return dataclasses.replace(config, **changed)
