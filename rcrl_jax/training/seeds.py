"""Reads seeds, from a flag or from a list."""

import re
from typing import Any

LARGEST_SEED = 2**31 - 1
_MOST_SEEDS = 1000  # a slip like 0:99999999 must not fill the memory


def parse(value: Any) -> tuple[int, ...]:
    """The seeds that a text like 0,1,2 or 0:5 (0 to 4) names, or that a list holds.

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
            "expected different seeds like 0,1,2 or a range like 0:5, "
            f"at most {_MOST_SEEDS}, got {value!r}"
        )
    return tuple(seeds)
