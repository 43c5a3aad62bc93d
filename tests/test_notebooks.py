"""The notebooks run from their first cell to their last, and the repository holds them with the output of a run."""

import shutil
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "own-model.ipynb": "the module has changed since it was opened",
    "explore-a-run.ipynb": "more votes of 2,000 would have certified",
}
"""What a run of each prints, beside other things."""


def read(name):
    import nbformat

    return nbformat.read(EXAMPLES / name, as_version=4)


def outputs(notebook):
    return [output for cell in notebook.cells for output in cell.get("outputs", ())]


def printed(notebook):
    return "".join(output.get("text", "") for output in outputs(notebook))


def pictures(notebook):
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_every_notebook_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == SAYS.keys()


@pytest.mark.parametrize("name", SAYS)
def test_the_repository_has_a_notebook_with_its_output(name):
    notebook = read(name)
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert SAYS[name] in printed(notebook)


@pytest.mark.parametrize("name", SAYS)
def test_a_notebook_runs(name, tmp_path):
    shutil.copytree(EXAMPLES / "fashion-mnist", tmp_path / "fashion-mnist")
    from nbclient import NotebookClient

    before = read(name)
    with warnings.catch_warnings(action="ignore"):  # of the kernel's libraries
        client = NotebookClient(read(name), timeout=300, resources={"metadata": {"path": str(tmp_path)}})
        after = client.execute()
    assert SAYS[name] in printed(after)
    assert pictures(after) == pictures(before)
    assert [path.name for path in tmp_path.iterdir()] == ["fashion-mnist"]
