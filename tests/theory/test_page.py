"""Tables in a Markdown page."""

import pytest

from rcrl_jax.theory import page


def test_a_table():
    rows = [{"n": 10, "error": 0.12345}, {"n": 20, "error": None}]
    assert page.table(rows).splitlines() == [
        "| n | error |",
        "| --- | --- |",
        "| 10 | 0.123 |",
        "| 20 | — |",
    ]


def test_a_page_without_a_place_is_refused(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("nothing here")
    with pytest.raises(ValueError, match="measured"):
        page.check(path)
    path.write_text("<!-- measured:one -->\nold\n<!-- end -->")
    page.check(path)
