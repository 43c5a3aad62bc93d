"""The field's Smooth and ours: the command that compares them, and the field's scripts with one import changed."""

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from support.export_runs import SHAPE, write_model

from ars.bench.cli import main
from ars.bench.field import Agreement, FieldSmooth

SCRIPTS = Path(__file__).parents[2] / "examples" / "field"
OURS, THEIRS = "from ars import Smooth", "from ars.bench.field import FieldSmooth as Smooth"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("field")
    write_model(folder / "model.pt")
    x = np.random.default_rng(0).random((6, *SHAPE), dtype=np.float32)
    np.savez(folder / "images.npz", x=x, y=np.zeros(6, int))
    return folder


def run(folder, script, smooth, *arguments):
    """Run one of the scripts, with this import of Smooth."""
    text = (SCRIPTS / script).read_text()
    assert text.count(OURS) == 1
    changed = folder / f"changed-{script}"
    changed.write_text(text.replace(OURS, smooth))
    given = ["images.npz", "model.pt", "0.01", "out.tsv", "--skip", "2", "--max", "4", "--batch", "100", *arguments]
    ended = subprocess.run([sys.executable, changed, *given], cwd=folder, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    header, *lines = (line.split("\t") for line in (folder / "out.tsv").read_text().splitlines())
    return header, lines


@pytest.mark.parametrize(
    ("script", "arguments"), [("certify.py", ["--N0", "50", "--N", "2000"]), ("predict.py", ["--N", "500"])]
)
def test_the_scripts_of_the_field_need_one_other_import(files, script, arguments):
    header, ours = run(files, script, OURS, *arguments)
    same, theirs = run(files, script, THEIRS, *arguments)
    assert (
        header == same == ["idx", "label", "predict", *(["radius"] if "--N0" in arguments else []), "correct", "time"]
    )
    assert [line[0] for line in ours] == [line[0] for line in theirs] == ["0", "2"]
    for one, other in zip(ours, theirs, strict=True):
        assert one[2] == other[2]
        if "--N0" in arguments:  # with so little noise, nearly all votes are for one class
            assert float(one[3]) == pytest.approx(float(other[3]), abs=0.006)
            assert float(one[3]) > 0.02


def test_the_scripts_take_a_part_of_the_data_as_the_fields_do(files):
    with zipfile.ZipFile(files / "images.zip", "w") as archive:
        for part, number in (("train", 6), ("test", 4)):
            for index in range(number):
                image = io.BytesIO()
                Image.new("L", SHAPE[:0:-1], index).save(image, "PNG")
                archive.writestr(f"{part}/cat/{index}.png", image.getvalue())
    for part, expected in (("train", ["0", "2", "4"]), ("test", ["0", "2"])):
        given = ["images.zip", "model.pt", "0.01", "out.tsv", "--skip", "2", "--split", part, "--N", "100"]
        script = [sys.executable, SCRIPTS / "predict.py", *given]
        subprocess.run(script, cwd=files, check=True, capture_output=True, timeout=300)
        assert [line.split("\t")[0] for line in (files / "out.tsv").read_text().splitlines()[1:]] == expected


def test_the_command_shows_radii_and_rates(files):
    given = ["field", files / "model.pt", "--data", files / "images.npz", "--inputs", 3, "--n", 200, "--rounds", 3]
    result = CliRunner().invoke(main, [*map(str, given), "--sigma", "0.1"])
    assert result.exit_code == 0, result.output
    assert "of 3 inputs have the same answer" in result.output
    assert "ars.Smooth is " in result.output
    assert "ars.load, module is " in result.output
    result = CliRunner().invoke(main, [*map(str, given[:4]), "--inputs", "7"])
    assert result.exit_code == 2
    assert "inputs = 7 is not valid" in result.output


def test_the_difference_is_ours_minus_theirs():
    mean, error = Agreement(3, [0.0, 1.0, 2.0], [1.0, 1.0, 2.5]).difference
    assert (mean, error) == (pytest.approx(0.5), pytest.approx(0.5 / np.sqrt(3)))


def test_the_field_abstains_where_its_algorithm_does():
    smooth = FieldSmooth(torch.nn.Flatten(), 4, 0.1)
    x = torch.zeros(1, 2, 2)  # all four classes are equally likely
    assert smooth.certify(x, 50, 500, 0.001, 100) == (-1, 0.0)
    assert smooth.predict(x, 500, 1e-9, 100) == -1
    x[0, 1, 1] = 9
    predicted, radius = smooth.certify(x, 50, 500, 0.001, 100)
    assert (predicted, smooth.predict(x, 500, 0.001, 100)) == (3, 3)
    assert 0.2 < radius < 0.23
