"""The figures and the page of `python -m experiments.theory`."""

import json
import pathlib

from experiments.theory import figures, page

ROOT = pathlib.Path(__file__).parents[3]


def test_stored_results_give_the_figures_and_the_tables_of_the_page(tmp_path):
    report = json.loads((ROOT / "results/theory/theory.json").read_text())
    figures.draw_all(report["results"], tmp_path)
    drawn = {path.name: path.stat().st_size for path in tmp_path.glob("*.png")}
    assert drawn.keys() == {path.name for path in (ROOT / "results/theory").glob("*.png")}
    assert max(drawn.values()) < 150_000
    copy = tmp_path / "theory.md"
    copy.write_text((ROOT / "docs/theory.md").read_text())
    page.fill(copy, report)
    # The page in the repository already holds the numbers of the stored results.
    assert copy.read_text() == (ROOT / "docs/theory.md").read_text()
