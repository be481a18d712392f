"""Tables in a Markdown page, the check for their markers, and the links of docs/theory.md."""

import json
import pathlib
import re

import pytest

from experiments.theory import page

ROOT = pathlib.Path(__file__).parents[3]
THEORY = (ROOT / "docs" / "theory.md").read_text()


def anchors():
    """The anchors that GitHub gives to the headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", THEORY, flags=re.DOTALL), re.M)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_links_within_the_page_lead_to_one_heading():
    links = set(re.findall(r"\]\(#([^)]+)\)", THEORY))
    assert links and links <= set(anchors())
    assert len(anchors()) == len(set(anchors()))


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
