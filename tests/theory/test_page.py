"""Tables in a Markdown page, and the check for their markers."""

import pytest

from rcrl_jax.theory import page


def test_table_rounds_numbers_and_marks_missing_values():
    rows = [{"n": 10, "error": 0.12345}, {"n": 20, "error": None}]
    assert page.table(rows).splitlines() == [
        "| n | error |",
        "| --- | --- |",
        "| 10 | 0.123 |",
        "| 20 | — |",
    ]


def test_page_without_markers_raises(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("nothing here")
    with pytest.raises(ValueError, match="measured"):
        page.check(path)
    path.write_text("<!-- measured:one -->\nold\n<!-- end -->")
    page.check(path)
