"""Data sources: what they give, and what they refuse."""

import gzip
import re
import struct

import numpy as np
import pytest
from PIL import Image
from support.users import unprivileged

from ars.data import ImageSize, idx, open_data, select
from ars.errors import ArgumentError, DataError, UnknownName


@pytest.fixture
def folder(tmp_path):
    """Two classes of three images, 8 x 6."""
    rng = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)).save(tmp_path / name / f"{number}.png")
    return tmp_path


def write_idx(path, values):
    data = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def test_an_npz_of_integers_is_scaled_and_one_of_floats_is_not(tmp_path):
    x, y = np.array([[[0, 255], [51, 102]]], np.uint8), np.array([7])
    np.savez(tmp_path / "a.npz", x=x, y=y)
    np.savez(tmp_path / "b.npz", x=x.astype(np.float64) / 10)
    a, b = open_data(str(tmp_path / "a.npz")), open_data(str(tmp_path / "b.npz"))
    np.testing.assert_allclose(a[0].x, [[0, 1], [0.2, 0.4]], rtol=1e-6)
    assert (a[0].label, b[0].label, a[0].x.dtype, len(a)) == (7, None, np.float32, 1)
    np.testing.assert_allclose(b[0].x, x[0] / 10, rtol=1e-6)
    assert a.fingerprint() != b.fingerprint()


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files_give_images_with_the_labels_beside_them(tmp_path, ending):
    images, labels = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4), np.array([4, 9], np.uint8)
    path = write_idx(tmp_path / f"t10k-images-idx3-ubyte{ending}", images)
    write_idx(tmp_path / f"t10k-labels-idx1-ubyte{ending}", labels)
    data = open_data(str(path))
    assert (len(data), data[1].label, data[1].x.shape) == (2, 9, (1, 3, 4))
    np.testing.assert_allclose(data[1].x[0], images[1] / 255, rtol=1e-6)


def test_fashion_mnist_is_found_where_debian_puts_it(tmp_path, monkeypatch):
    monkeypatch.setattr(idx, "FASHION_MNIST_FOLDER", tmp_path)
    with pytest.raises(DataError, match="apt install dataset-fashion-mnist"):
        open_data("fashion-mnist:test")
    write_idx(tmp_path / "t10k-images-idx3-ubyte.gz", np.zeros((5, 28, 28), np.uint8))
    write_idx(tmp_path / "t10k-labels-idx1-ubyte.gz", np.zeros(5, np.uint8))
    data = open_data("fashion-mnist:test")
    assert (len(data), data.name, data.classes[9]) == (5, "fashion-mnist:test", "Ankle boot")
    with pytest.raises(UnknownName, match="unknown split of fashion-mnist 'tset'; did you mean 'test'"):
        open_data("fashion-mnist:tset")


def test_cifar_batches_are_read_from_a_file_or_their_folder(tmp_path):
    rng = np.random.default_rng(0)
    records = rng.integers(0, 256, (4, 3073), dtype=np.uint8)
    records[:, 0] = [3, 0, 9, 5]
    records.tofile(tmp_path / "test_batch.bin")
    for spec in (tmp_path, tmp_path / "test_batch.bin"):
        data = open_data(str(spec))
        assert (len(data), data[2].label, data.classes[9]) == (4, 9, "truck")
        np.testing.assert_allclose(data[2].x, records[2, 1:].reshape(3, 32, 32) / 255, rtol=1e-6)


def test_a_folder_gives_images_by_class_in_the_order_of_names(folder):
    data = open_data(str(folder))
    assert (len(data), data.classes, [data[i].label for i in range(6)]) == (6, ["cat", "dog"], [0, 0, 0, 1, 1, 1])
    pixels = np.asarray(Image.open(folder / "dog" / "1.png")).transpose(2, 0, 1) / 255
    np.testing.assert_allclose(data[4].x, pixels, rtol=1e-6)
    assert data[4].name == "dog/1.png"


def test_a_file_of_classes_changes_their_order(folder, tmp_path):
    (tmp_path / "classes.txt").write_text("dog\nbird\ncat\n")
    data = open_data(str(folder), classes_file=tmp_path / "classes.txt")
    assert (data.classes, [data[i].label for i in range(6)]) == (["dog", "bird", "cat"], [0, 0, 0, 2, 2, 2])
    (tmp_path / "classes.txt").write_text("dog\n")
    with pytest.raises(DataError, match="does not name the class 'cat'"):
        open_data(str(folder), classes_file=tmp_path / "classes.txt")


def test_images_are_resized_by_their_shorter_side_and_cropped_in_the_middle(folder):
    data = open_data(str(folder), ImageSize(resize=3, crop=2))
    assert data[0].x.shape == (3, 2, 2)
    assert open_data(str(folder), ImageSize(resize=3))[0].x.shape == (3, 3, 4)
    middle = open_data(str(folder), ImageSize(crop=4))[0].x
    np.testing.assert_array_equal(middle, open_data(str(folder))[0].x[:, 1:5, 2:6])
    assert data.fingerprint() != open_data(str(folder)).fingerprint()
    with pytest.raises(DataError, match=r"8 x 6 pixels are smaller than the crop of 7"):
        open_data(str(folder), ImageSize(crop=7))[0]


@pytest.mark.parametrize(("mode", "channels"), [("L", 1), ("LA", 1), ("1", 1), ("RGB", 3), ("RGBA", 3), ("P", 3)])
def test_one_image_is_a_data_source_without_a_label(tmp_path, mode, channels):
    Image.new(mode, (5, 4)).save(tmp_path / "one.png")
    data = open_data(str(tmp_path / "one.png"))
    assert (len(data), data[0].label, data[0].x.shape, data[0].name) == (1, None, (channels, 4, 5), "one.png")


@pytest.mark.parametrize("channels", [1, 3])
def test_images_come_in_the_channels_that_are_asked_for(tmp_path, channels):
    for mode in ("L", "RGB"):
        Image.new(mode, (5, 4)).save(tmp_path / "one.png")
        assert open_data(str(tmp_path / "one.png"), ImageSize(channels=channels))[0].x.shape == (channels, 4, 5)


def test_images_of_more_than_8_bits_and_huge_ones_are_refused(tmp_path, monkeypatch):
    Image.fromarray(np.full((4, 5), 40_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(DataError, match="only 8 bits per channel are supported"):
        open_data(str(tmp_path / "deep.png"))[0]
    Image.new("L", (50, 50)).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match="decompression bomb"):
        open_data(str(tmp_path / "huge.png"))[0]


def test_options_for_images_are_refused_for_other_data(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4)))
    (tmp_path / "cifar").mkdir()
    np.zeros(3073, np.uint8).tofile(tmp_path / "cifar" / "test_batch.bin")
    for spec in ("fashion-mnist:test", str(tmp_path / "cifar"), str(tmp_path / "a.npz")):
        with pytest.raises(DataError, match="--resize, --crop and --classes are for image files"):
            open_data(spec, ImageSize(resize=4))


def test_inputs_are_selected_by_number():
    assert select(10) == list(range(10))
    assert select(10, start=2, limit=3) == [2, 3, 4]
    assert select(500, only="3,17, 200-203,3") == [3, 17, 200, 201, 202, 203]
    assert select(500, only="0-99/40,7") == [0, 40, 80, 7]
    assert select(500, only="3,17,200-203", start=1, limit=2) == [17, 200]
    assert select(100, skip=20, end=61) == [0, 20, 40, 60], "as the field's certify.py does"
    assert select(100, skip=20, start=1, limit=2) == [20, 40]
    with pytest.raises(ArgumentError, match="none of the 10 inputs are left"):
        select(10, start=10)
    for bad in ("7-3", "3,x", "", "10", "-1", "0-9/0", "0-9/", "0-9/-2"):
        with pytest.raises(ArgumentError, match="only = "):
            select(10, only=bad)


def saved(path, **arrays):
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "nowhere", "there is no such file or folder"),
        (lambda p: p, "it has no folders of PNG or JPEG images"),
        (
            lambda p: saved(p / "a.npz", a=np.zeros((2, 2)), b=np.zeros((2, 3))),
            r"it has the arrays a, b; choose one, like a.npz:a",
        ),
        (lambda p: saved(p / "a.npz", a=np.zeros((2, 2)), b=np.zeros(2, int), c=np.zeros(2, int)), "b and c could be"),
        (lambda p: saved(p / "a.npz", x=np.zeros(3)), r"x has the shape \(3,\)"),
        (lambda p: saved(p / "a.npz", x=np.zeros((3, 2)), y=np.zeros(2, int)), r"y is int64 of shape \(2,\) for 3"),
        (lambda p: saved(p / "a.npz", x=np.zeros((3, 2)), y=np.zeros(3)), "y is float64"),
        (lambda p: (p / "a.npz").write_bytes(b"no zip") and p / "a.npz", "it cannot be read"),
        (lambda p: np.save(p / "a.npy", np.zeros(3)) or (p / "a.npy").rename(p / "a.npz"), "it cannot be read"),
        (
            lambda p: (p / "a.bin").write_bytes(bytes(100)) and p / "a.bin",
            "100 bytes are not a multiple of the record size, 3073",
        ),
        (lambda p: (p / "a.bin").write_bytes(bytes([77] * 3073)) and p / "a.bin", "it has the label 77"),
        (lambda p: (p / "a.xyz").write_bytes(b"?") and p / "a.xyz", "files of this kind are not supported"),
        (
            lambda p: (p / "x-images-idx3-ubyte").write_bytes(b"??") and p / "x-images-idx3-ubyte",
            "not an idx3-ubyte file",
        ),
        (lambda p: write_idx(p / "x-images-idx3-ubyte", np.zeros((1, 2, 2), np.uint8)), "x-labels-idx1-ubyte"),
    ],
)
def test_data_that_cannot_be_used_is_refused_with_its_name(tmp_path, make, message):
    path = make(tmp_path)
    with pytest.raises(DataError, match=message) as refused:
        open_data(str(path))
    assert str(tmp_path) in str(refused.value)
    assert "; " in str(refused.value), "what to do"


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.full((1, 4), 256, np.int32), "integer pixels from 256 to 256"),
        (np.full((1, 4), -1, np.int16), "integer pixels from -1 to -1"),
        (np.full((1, 4), np.nan), "pixels that are not finite"),
        (np.full((1, 4), 1j), "its pixels are of type complex128"),
        (np.full((1, 4), 1e300), "pixels that are not finite"),
        (np.zeros((1, 0, 4), np.uint8), "has no pixels"),
    ],
)
def test_pixels_that_make_no_sense_are_refused(tmp_path, x, message):
    with pytest.raises(DataError, match=message):
        open_data(str(saved(tmp_path / "a.npz", x=x)))[0]


def test_an_unreadable_image_is_named_when_it_is_reached(folder):
    (folder / "cat" / "1.png").write_bytes(b"not an image")
    data = open_data(str(folder))
    assert data[0].label == 0
    with pytest.raises(DataError, match=re.escape(str(folder / "cat" / "1.png"))):
        data[1]


def test_a_folder_of_a_class_that_cannot_be_read_is_not_left_out(folder, monkeypatch):
    monkeypatch.chdir(folder)  # the folders above it belong to root
    folder.chmod(0o755)
    (folder / "cat").chmod(0)
    with unprivileged(), pytest.raises(DataError, match=r"^cat: it cannot be read \(Permission denied\); make it"):
        open_data(".")


def test_a_truncated_image_is_refused(folder):
    path = folder / "dog" / "0.png"
    path.write_bytes(path.read_bytes()[:60])
    with pytest.raises(DataError, match="it cannot be used"):
        open_data(str(folder))[3]


def test_truncated_idx_and_gzip_files_are_refused(tmp_path):
    images = write_idx(tmp_path / "a-images-idx3-ubyte.gz", np.zeros((9, 20, 20), np.uint8))
    images.write_bytes(images.read_bytes()[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        open_data(str(images))
    plain = write_idx(tmp_path / "b-images-idx3-ubyte", np.zeros((9, 20, 20), np.uint8))
    plain.write_bytes(plain.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"its size does not match the shape \(9, 20, 20\) in its header"):
        open_data(str(plain))
