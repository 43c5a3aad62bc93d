"""`ars-engine covers`: whether a perturbed input is inside the certified region of an input."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from support.engine_runs import certify, refused, write_manifest
from support.stores import forged

from ars.engine.cli import main
from ars.engine.records.covers import _compare
from ars.engine.records.store import read_records

pytestmark = pytest.mark.usefixtures("files")

SCALE = np.full((1, 4, 4), 0.1, np.float32)
SCALE[0, 1:3] = 0.4


def covers(idx=3, perturbed="perturbed.npy", *arguments):
    return CliRunner().invoke(main, ["covers", "run.sqlite", "--input", str(idx), "--perturbed", perturbed, *arguments])


def write(delta, idx=3):
    """The input moved by delta, in float64, so that what is read back is rounded to float32 only once."""
    np.save("perturbed.npy", np.load("data.npz")["x"][idx].astype(np.float64) + delta)


def certificate(idx=3):
    return next(record.certificate for record in read_records(Path("run.sqlite")) if record.idx == idx)


def along(pixel, length):
    delta = np.zeros((1, 4, 4))
    delta[0].flat[pixel] = length
    return delta


@pytest.fixture
def run(files):
    """A run with one map for all inputs, whose region is four times as wide along the middle rows."""
    np.savez("maps.npz", mean=np.zeros_like(SCALE), scale=SCALE)
    base = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--n", "1000", "--batch", "64"]
    result = CliRunner().invoke(main, [*base, "--noise", "maps.npz", "--out", "run.sqlite"])
    assert result.exit_code == 0, result.output
    assert "average volume-equivalent radius" in result.stdout
    assert "scope global" in result.stdout
    made = certificate()
    assert made.radius == pytest.approx(0.1 * made.K)
    assert not made.abstained


@pytest.mark.usefixtures("run")
def test_a_perturbation_inside_the_region_and_outside_the_ball_is_covered():
    made = certificate()
    write(along(5, 3.9 * made.radius))
    result = covers()
    assert result.exit_code == 0, result.output
    assert "perturbed.npy is covered: it is inside the certified region, though outside the ball, of input 3" in (
        result.stdout
    )
    assert f"the smoothed classifier answers class {made.predicted} with confidence 0.999; scope global" in (
        result.stdout
    )
    assert result.stdout.count("\n") == 1


@pytest.mark.usefixtures("run")
def test_the_same_length_along_a_pixel_of_small_scale_is_not_covered():
    write(along(0, 3.9 * certificate().radius))
    result = covers()
    assert result.exit_code == 1, result.output
    assert "perturbed.npy is not covered: it is outside the certified region of input 3" in result.stdout


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("pixel", [0, 5])
def test_just_inside_is_covered_and_just_outside_is_not(pixel):
    made, x = certificate(), np.load("data.npz")["x"][3].astype(np.float64).ravel()[pixel]
    edge = made.K * float(SCALE.flat[pixel])
    # The last float32 whose distance is below the edge, and the next one.
    inside = np.float32(x + edge)
    while float(inside) - x >= edge * (1 - 1e-12):
        inside = np.nextafter(inside, np.float32(-9))
    outside = np.nextafter(inside, np.float32(9))
    for value, status in ((inside, 0), (outside, 1)):
        write(along(pixel, float(value) - x))
        result = covers()
        assert result.exit_code == status, result.output
    write(0)
    assert "region and ball of input 3" in covers().stdout


@pytest.mark.usefixtures("run")
def test_the_answer_is_about_the_whole_perturbation():
    """Each pixel alone is well inside, all together are outside: a check of the largest pixel would be fooled."""
    made = certificate()
    for share, status in ((0.99, 0), (1.01, 1)):
        write(share * made.K * SCALE.astype(np.float64) / 4)  # 16 pixels: the weighted norm is share * K
        assert covers().exit_code == status


def test_a_wider_map_than_the_certificates_is_refused(run):
    """Maps with the same smallest scale and a larger region, put in the place of the run's."""
    wider = SCALE.copy()
    wider[0, 1:3] = 40
    write(along(5, 20 * certificate().radius))
    assert covers().exit_code == 1
    np.savez("maps.npz", mean=np.zeros_like(SCALE), scale=wider)
    refused(covers(), "maps.npz", "the noise maps of the run are not there", "--noise")
    with pytest.raises(ValueError, match="a map of other values"):
        certificate().covers(along(5, 0.1), wider)


def test_images_arrays_and_archives_are_read_as_the_engine_reads_them(run):
    x = np.load("data.npz")["x"][3]
    np.savez("perturbed.npz", x=x[np.newaxis])
    assert covers(3, "perturbed.npz").exit_code == 0
    pixels = np.round(x[0] * 255).astype(np.uint8)
    Image.fromarray(pixels).save("near.png")
    difference = pixels.astype(np.float32) / np.float32(255) - x
    assert certificate().covers(difference, SCALE)
    assert covers(3, "near.png").exit_code == 0
    Image.fromarray(255 - pixels).save("far.png")
    assert covers(3, "far.png").exit_code == 1


def test_what_cannot_be_compared_is_refused(run):
    write(0)
    refused(covers(99), "input = 99 is not valid", "run.sqlite has no certificate of it")
    refused(covers(3, "absent.png"), "absent.png: there is no such file")
    Path("note.txt").write_text("x")
    refused(covers(3, "note.txt"), "note.txt", "not supported")
    np.save("flat.npy", np.zeros(16, np.float32))
    refused(covers(3, "flat.npy"), "flat.npy: its shape is (16,), and the input has (1, 4, 4)")
    np.savez("other.npz", y=np.zeros(3))
    refused(covers(3, "other.npz"), "it has no array x")
    np.save("bad.npy", np.full((1, 4, 4), np.nan))
    refused(covers(3, "bad.npy"), "not finite")
    Path("broken.npy").write_bytes(b"no array")
    refused(covers(3, "broken.npy"), "broken.npy: it cannot be read")


def test_the_input_must_be_the_certified_one(run):
    write(0)
    with forged("run.sqlite") as database:
        database.execute("UPDATE certificates SET input_sha256 = 'another' WHERE idx = 3")
    refused(covers(), "input 3 of data.npz is not what it was when it was certified")


def test_files_that_have_moved(run):
    write(0)
    Path("new").mkdir()
    shutil.move("data.npz", "new/data.npz")
    refused(covers(), "data.npz", "--data")
    assert covers(3, "perturbed.npy", "--data", "new/data.npz").exit_code == 0
    shutil.move("maps.npz", "new/maps.npz")
    refused(covers(3, "perturbed.npy", "--data", "new/data.npz"), "--noise")
    refused(covers(3, "perturbed.npy", "--data", "new/data.npz", "--noise", "gone.npz"), "gone.npz")
    assert covers(3, "perturbed.npy", "--data", "new/data.npz", "--noise", "new/maps.npz").exit_code == 0


def test_isotropic_noise_needs_no_model():
    assert certify().exit_code == 0
    Path("model.onnx").unlink()
    write(0)
    result = covers()
    assert result.exit_code == 0, result.output


def test_a_frozen_certificate_says_what_it_is_about():
    write_manifest()
    base = ["certify", "--engine", "model.onnx", "--data", "data.npz", "--n", "200", "--batch", "64"]
    assert CliRunner().invoke(main, [*base, "--out", "run.sqlite"]).exit_code == 0
    idx = next(record.idx for record in read_records(Path("run.sqlite")) if not record.certificate.abstained)
    write(0, idx)
    result = covers(idx)
    assert result.exit_code == 0, result.output
    assert "scope frozen, that is, the classifier whose noise is frozen at the maps" in result.stdout
    assert "l1 norm of delta / scale" in result.stdout
    Path("new").mkdir()
    for name in ("model.onnx", "model.noise.onnx", "model.json"):
        shutil.move(name, f"new/{name}")
    refused(covers(idx), "--engine")
    assert covers(idx, "perturbed.npy", "--engine", "new/model.onnx").exit_code == 0


def test_an_abstention_covers_nothing():
    assert certify("--sigma", "5", n=20).exit_code == 0
    idx = next(record.idx for record in read_records(Path("run.sqlite")) if record.certificate.abstained)
    write(0, idx)
    result = covers(idx)
    assert result.exit_code == 1, result.output
    assert "abstained and claims nothing" in result.stdout


def test_texts_show_which_number_is_smaller():
    assert _compare(0.5, 1.25) == ("0.5000", "1.2500")
    assert _compare(2.00001, 1) == ("2.0001", "1.0000")
    low, high = _compare(0.1, np.nextafter(0.1, 1))
    assert low < high
