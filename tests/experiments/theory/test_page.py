"""Tables in a Markdown page, the check for their markers, and the links of docs/theory.md."""

import pathlib
import re

import pytest

from experiments.theory import page

THEORY = (pathlib.Path(__file__).parents[3] / "docs" / "theory.md").read_text()


def anchors():
    """The anchors that GitHub gives to the headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", THEORY, flags=re.DOTALL), re.M)
    return [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]


def test_links_within_the_page_lead_to_one_heading():
    links = set(re.findall(r"\]\(#([^)]+)\)", THEORY))
    assert links and links <= set(anchors())
    assert len(anchors()) == len(set(anchors()))


def test_contents_list_every_section():
    sections = re.findall(r"^## (.*)$", THEORY, re.M)
    listed = re.findall(r"^\* \[(.*)\]\(#", THEORY, re.M)
    assert listed == [section for section in sections if section != "Contents"]


def test_every_statement_has_its_class_a_quote_and_evidence():
    _, section = THEORY.split("\n## In short\n")
    rows = [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in section.partition("\n## ")[0].splitlines()
        if line.startswith("| ")
    ][2:]
    assert len(rows) > 10
    for quote, kind, _, evidence in rows:
        assert re.search('"[^"]+"', quote)
        assert kind in ("holds", "needs a condition", "fails as printed")
        assert re.search(r"\[(proof|exact|simulation)\]\(#", evidence)
        if kind != "holds":
            assert re.search(r"\[(proof|exact)\]\(#", evidence)


def test_table_rounds_numbers_and_marks_missing_values():
    rows = [{"n": 10, "error": 0.12345}, {"n": 20, "error": None}]
    lines = ["| n | error |", "| --- | --- |", "| 10 | 0.123 |", "| 20 | — |"]
    assert page.table(rows).splitlines() == lines


def test_page_without_markers_raises(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("nothing here")
    with pytest.raises(ValueError, match="measured"):
        page.check(path)
    path.write_text("<!-- measured:one -->\nold\n<!-- end -->")
    page.check(path)
