"""Training and test data by one name."""

import zipfile

import numpy as np
import pytest
from PIL import Image

from ars.data import ImageSize
from ars.data.arrays import Arrays
from ars.data.splits import open_splits
from ars.errors import DataError

SIZE = ImageSize()


def save(path, number, start=0):
    np.savez(path, x=np.full((number, 1, 2, 2), start, np.uint8), y=np.arange(start, start + number))


def labels(data):
    return [data[index].label for index in range(len(data))]


def test_one_file_keeps_every_tenth_example_for_the_test(tmp_path):
    save(tmp_path / "all.npz", 25)
    training, test = open_splits(str(tmp_path / "all.npz"), SIZE)
    assert labels(test) == [9, 19]
    assert labels(training) == [label for label in range(25) if label not in (9, 19)]
    assert training.fingerprint() != test.fingerprint()
    save(tmp_path / "few.npz", 9)
    with pytest.raises(DataError, match=r"few\.npz: its 9 examples"):
        open_splits(str(tmp_path / "few.npz"), SIZE)


def test_a_folder_with_train_npz_has_the_test_data_in_its_other_npz(tmp_path):
    save(tmp_path / "train.npz", 3)
    with pytest.raises(DataError, match=r"it has 0 .npz files besides train"):
        open_splits(str(tmp_path), SIZE)
    save(tmp_path / "images.npz", 2, start=7)
    training, test = open_splits(str(tmp_path), SIZE)
    assert (labels(training), labels(test)) == ([0, 1, 2], [7, 8])
    save(tmp_path / "more.npz", 2)
    with pytest.raises(DataError, match=r"it has 2 .npz files besides train"):
        open_splits(str(tmp_path), SIZE)


@pytest.mark.parametrize("name", ["test", "val"])
def test_a_folder_with_the_folders_train_and_test_or_val(tmp_path, name):
    for split, number in (("train", 3), (name, 1)):
        for label in ("a", "b"):
            (tmp_path / split / label).mkdir(parents=True)
            for index in range(number):
                Image.new("L", (5, 4)).save(tmp_path / split / label / f"{index}.png")
    training, test = open_splits(str(tmp_path), SIZE)
    assert (labels(training), labels(test), training.classes) == ([0, 0, 0, 1, 1, 1], [0, 1], ["a", "b"])


def test_cifar_batches_are_training_and_test_data(tmp_path):
    for number in (1, 2):
        np.full((2, 3073), number, np.uint8).tofile(tmp_path / f"data_batch_{number}.bin")
    np.full((1, 3073), 7, np.uint8).tofile(tmp_path / "test_batch.bin")
    training, test = open_splits(str(tmp_path), SIZE)
    assert (labels(training), labels(test)) == ([1, 1, 2, 2], [7])


def test_sizes_are_for_image_files(tmp_path):
    save(tmp_path / "train.npz", 3)
    save(tmp_path / "images.npz", 2)
    (tmp_path / "cifar").mkdir()
    for name in ("data_batch_1.bin", "test_batch.bin"):
        np.zeros((1, 3073), np.uint8).tofile(tmp_path / "cifar" / name)
    for spec in ("fashion-mnist", str(tmp_path), str(tmp_path / "cifar"), str(tmp_path / "train.npz")):
        for size in (ImageSize(resize=8), ImageSize(crop=8)):
            with pytest.raises(DataError, match=f"^{spec}: --resize, --crop and --classes are for image files; omit"):
                open_splits(spec, size)


def test_an_npz_may_be_packed_with_lzma_and_a_broken_one_is_refused(tmp_path):
    path = tmp_path / "images.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        for name, values in (("x", np.random.default_rng(0).random((3, 1, 16, 16))), ("y", np.arange(3))):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, values)
    assert labels(Arrays(path)) == [0, 1, 2]
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"images\.npz: it cannot be read"):
        Arrays(path)
