"""The notebooks run from their first cell to their last, and a stop of a cell saves."""

import pathlib
import re

import nbclient
import nbformat
import pytest

ROOT = pathlib.Path(__file__).parents[1]

STOP = """\
import os, pathlib, signal, threading, time

metrics = pathlib.Path("stopped/minatar_rcrl/Breakout/seed_0/metrics.jsonl")

def stop():
    while not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)  # as the button of a notebook does

threading.Thread(target=stop, daemon=True).start()
rcrl_jax.train(
    "minatar_rcrl",
    game="Breakout",
    seeds=range(2),  # like the snippet's, whose programs are compiled
    steps=10**6,
    workdir="stopped",
    settings={"learn_start": 100},
)
"""

DRAWN = """\
assert [panel.get_title() for panel in panels[0]] == ["Breakout"]
assert len(panels[0, 0].lines) == 3, "two seeds and their mean"
"""


@pytest.fixture
def execute(tmp_path, monkeypatch):
    """Executes cells of a notebook in a kernel of their own, in one folder."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))

    def run(notebook):
        place = {"metadata": {"path": str(tmp_path)}}
        nbclient.NotebookClient(notebook, timeout=600, resources=place).execute()
        return notebook.cells

    return run


def read(name):
    return nbformat.read(ROOT / "docs" / name, as_version=4)


def test_the_snippet_of_the_readme_trains_in_a_notebook_and_a_stop_saves(execute):
    notebook = read("first.ipynb")
    (snippet,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert snippet.rstrip() in [cell.source for cell in notebook.cells]
    notebook.cells.append(nbformat.v4.new_code_cell(STOP, metadata={"tags": ["raises-exception"]}))
    _, trained, _, played, stopped = execute(notebook)
    assert "'score': array(" in "".join(output.get("text", "") for output in trained.outputs)
    assert "'episode': array([0, 1, 0, 1])" in played.outputs[-1]["data"]["text/plain"]
    error = stopped.outputs[-1]
    assert error["ename"] == "Interrupted" and "SIGINT, saved at step" in error["evalue"]
    drawing = read("runs.ipynb")
    drawing.cells.append(nbformat.v4.new_code_cell(DRAWN))
    execute(drawing)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs").glob("*.ipynb")), ids=lambda path: path.name
)
def test_a_notebook_holds_no_outputs(path):
    for cell in read(path.name).cells:
        assert cell.cell_type == "markdown" or (cell.outputs == [] and not cell.execution_count)
