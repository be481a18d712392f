"""The command line, the figures and the page of `python -m experiments.theory`."""

import json
import pathlib

import pytest

from experiments.theory import figures, page
from tests.experiments import programs
from tests.experiments.test_command_line import assert_mistake

ROOT = pathlib.Path(__file__).parents[3]


@pytest.mark.parametrize(
    "arguments",
    [["--seeds=0"], ["--seeds=many"], ["--unknown=1"], ["stray"], ["--page=README.missing"]],
)
def test_wrong_arguments_print_one_line_and_exit_with_code_2(arguments, tmp_path):
    done = programs.call("experiments.theory", f"--output={tmp_path}", *arguments)
    assert_mistake(done, [], tmp_path)


def test_stored_results_give_the_figures_and_the_tables_of_the_page(tmp_path):
    report = json.loads((ROOT / "results/theory/theory.json").read_text())
    figures.draw_all(report["results"], tmp_path)
    for drawn in tmp_path.glob("*.png"):
        assert (ROOT / "results/theory" / drawn.name).is_file()
        assert drawn.stat().st_size < 150_000
    copy = tmp_path / "theory.md"
    copy.write_text((ROOT / "docs/theory.md").read_text())
    page.fill(copy, report)
    # The page in the repository already holds the numbers of the stored results.
    assert copy.read_text() == (ROOT / "docs/theory.md").read_text()
