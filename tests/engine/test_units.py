"""The units of sigma and of radii: said in the results, and a warning if they are not those of pixels."""

import math
from pathlib import Path

import numpy as np
import pytest
from support.engine_runs import certify, records

import ars
from ars.engine.records.results import read_results, write_results

pytestmark = pytest.mark.usefixtures("files")


def test_pixels_are_the_unit_of_images_and_nothing_is_said():
    result = certify("--limit", "2")
    assert result.exit_code == 0
    assert "Warning" not in result.stderr
    assert {one.unit for one in read_results(Path("run.sqlite"))} == {"pixels, from 0 to 1"}
    head, first, *_ = "".join(write_results(read_results(Path("run.sqlite")), "csv")).splitlines()
    assert ("unit" in head.split(","), "pixels, from 0 to 1" in first) == (True, True)


def test_normalised_data_is_certified_in_its_own_units_with_a_warning():
    """With x' = (x - 0.5) / 0.5 a radius is twice as large as in pixels, which nobody would notice."""
    x = np.load("data.npz")["x"]
    np.savez("normalised.npz", x=(x - 0.5) / 0.5)
    result = certify("--limit", "2", "--quiet", data="normalised.npz")
    assert result.exit_code == 0
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert warning.startswith("Warning: normalised.npz has values from -0.9884 to 0.9981: ")
    assert "sigma and every radius are in these units" in warning
    assert "ars-export --pixel-mean and --pixel-deviation" in warning
    assert {one.unit.split(", ")[0] for one in read_results(Path("run.sqlite"))} == {"data values"}


def test_from_python_it_is_a_warning():
    np.savez("wide.npz", x=3 * np.load("data.npz")["x"])
    with ars.load("model.onnx", sigma=0.1, batch=16) as classifier, pytest.warns(UserWarning, match="values from"):
        ars.certify_run(classifier, ars.Inputs("wide.npz", limit=1), ars.Plan(n0=10, n=20))


def test_normalisation_in_the_model_gives_radii_in_pixels():
    """By the closed form: the base classifier is linear and the noise Gaussian, so the true radius is the distance to
    the boundary. In normalised units it is 1 / deviation times as long."""
    import onnx
    from support import models
    from support.export_runs import run

    models.linear(Path("mine.onnx"), classes=2)
    (weights,) = (onnx.numpy_helper.to_array(tensor) for tensor in onnx.load("mine.onnx").graph.initializer)
    x = np.load("data.npz")["x"]
    np.savez("calibrate.npz", x=x)
    given = ["--pixel-mean", "0.5", "--pixel-deviation", "0.25", "--sigma", "0.5", "--calibration", "calibrate.npz"]
    assert run("mine.onnx", *given, "--tensorrt", "off").exit_code == 0
    normal = weights[:, 0] - weights[:, 1]
    distances = np.abs(((x.reshape(len(x), -1) - 0.5) / 0.25) @ normal) / np.linalg.norm(normal) * 0.25
    arguments = ["--sigma", "0.5", "--limit", "10", "--n0", "50", "--bounds", "binary"]
    assert certify(*arguments, engine="mine-ars.onnx", data="calibrate.npz", n=20_000).exit_code == 0
    for (_, _, certificate, _, _), distance in zip(records(), distances, strict=False):
        assert certificate.radius <= distance + 1e-9, "alpha = 0.001 for each of 10"
        if not certificate.abstained and distance < 1:
            assert certificate.radius > distance - 0.06, (certificate.radius, distance)
    assert math.isfinite(distances.max())


def test_folders_that_are_not_the_models_classes_are_counted():
    from PIL import Image

    for name in ("cat", "dog"):
        (Path("images") / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(Path("images") / name / "0.png")
    result = certify(data="images")
    assert result.exit_code == 0
    assert "Warning: images has 2 classes, and the model has 3: " in result.stderr
    Path("classes.txt").write_text("dog\nbird\ncat\n")
    result = certify("--classes", "classes.txt", "--out", "named.sqlite", data="images")
    assert "Warning" not in result.stderr
    assert [label for _, label, *_ in records("named.sqlite")] == [0, 2]
