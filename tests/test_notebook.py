"""The notebook runs from its first cell to its last, and the repository holds it with the output of a run."""

import shutil
import warnings
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def notebook():
    import nbformat

    return nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)


def printed(notebook):
    return "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", ()))


def test_the_notebook_was_run(notebook):
    assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")
    assert "load it again" in printed(notebook)


def test_the_notebook_runs(notebook, tmp_path):
    shutil.copytree(EXAMPLES / "fashion-mnist", tmp_path / "fashion-mnist")
    from nbclient import NotebookClient

    with warnings.catch_warnings(action="ignore"):  # of the kernel's libraries
        client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
        assert "the module has changed since it was opened" in printed(client.execute())
    assert [path.name for path in tmp_path.iterdir()] == ["fashion-mnist"]
