"""Words of messages."""

import contextlib


def count(noun: str, number: int) -> str:
    """A number of things: `1 run`, `3 runs`."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def say(line: str) -> None:
    """Prints a line and flushes it, since the process may be killed.

    If the terminal was closed, work goes on.
    """
    with contextlib.suppress(OSError):
        print(printable(line), flush=True)


def one_line(what: object, longest: int = 300) -> str:
    """Text, or the message of an exception, as one line that a terminal can show.

    Args:
        what: the text; control characters in it are escaped.
        longest: characters of the line; libraries print whole trees. Both ends of longer text are
            kept.
    """
    line = " ".join(str(what).split()) or type(what).__name__
    if len(line) > longest:
        line = f"{line[: longest // 2 - 10]} ... {line[10 - longest // 2 :]}"
    return printable(line)


def printable(text: str) -> str:
    """`text` with unprintable characters escaped; line breaks stay.

    These include marks that reverse the direction of writing, and halves of a surrogate pair,
    which no file can hold.
    """
    return "".join(
        c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text
    )
