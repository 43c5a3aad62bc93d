"""docs/paper.md is what its command writes from the run stores that are kept."""

import shutil
import zipfile
from pathlib import Path

from click.testing import CliRunner

from ars.bench.cli import main

REPOSITORY = Path(__file__).parents[2]


def test_the_page_follows_from_the_stores_of_its_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(REPOSITORY / "examples" / "cifar10" / "runs.zip") as runs:
        runs.extractall("cifar10-cpu")
    Path("cifar10/test").mkdir(parents=True)
    shutil.copy(REPOSITORY / "docs" / "paper-inputs.png", ".")  # it needs the images of CIFAR-10
    command = ["reproduce", "cifar10", "--data", "cifar10", "--page", "-o", "paper.md"]
    written = CliRunner().invoke(main, command)
    assert written.exit_code == 0, written.output
    assert Path("paper.md").read_text() == (REPOSITORY / "docs" / "paper.md").read_text()
