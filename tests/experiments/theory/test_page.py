"""Tables in a Markdown page, and the check for their markers."""

import json
import pathlib

import pytest

from experiments.theory import page

ROOT = pathlib.Path(__file__).parents[3]


def test_table_rounds_numbers_and_marks_missing_values():
    rows = [{"n": 10, "error": 0.12345}, {"n": 20, "error": None}]
    lines = ["| n | error |", "| --- | --- |", "| 10 | 0.123 |", "| 20 | — |"]
    assert page.table(rows).splitlines() == lines


def test_page_without_markers_raises(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("nothing here")
    with pytest.raises(ValueError, match="measured"):
        page.check(path, ["one"])
    path.write_text("<!-- measured:one -->\nold\n<!-- end -->")
    page.check(path, ["one"])
    with pytest.raises(ValueError, match="no table one"):
        page.check(path, ["two"])


def test_the_page_of_the_repository_has_known_tables_alone():
    results = json.loads((ROOT / "results" / "theory" / "theory.json").read_text())["results"]
    page.check(ROOT / "docs" / "theory.md", results)
