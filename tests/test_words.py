"""Words of messages."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rcrl_jax import words


@pytest.mark.parametrize(
    "number, said", [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1000, "1,000 runs")]
)
def test_things_are_counted(number, said):
    assert words.count("run", number) == said


def test_a_message_is_one_line():
    assert words.one_line(ValueError("a\n  b\tc")) == "a b c"
    assert words.one_line(KeyError()) == "KeyError"  # it has no message
    assert words.one_line("\x1b[31m\u202e\udcff") == r"\x1b[31m\u202e\udcff"


def test_a_name_that_is_no_text_is_said_escaped(monkeypatch):
    """A terminal's stream refuses it."""
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "utf-8"))
    words.say("results in f\udcfc")
    assert written.getvalue() == b"results in f\\udcfc\n"


def test_both_ends_of_a_long_message_are_kept():
    line = words.one_line("begin " + "x" * 1000 + " end", 100)
    assert len(line) <= 100 and line.startswith("begin ") and line.endswith(" end")


@given(st.text(st.characters()))
def test_text_can_be_shown_and_written(text):
    shown = words.printable(text)
    assert all(line.isprintable() for line in shown.split("\n"))
    shown.encode("utf-8")
    assert shown.count("\n") == text.count("\n")
