"""idx files, the format of MNIST and Fashion-MNIST."""

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import PIXELS, Example
from ars.data.memory import check_memory
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import DataError, UnknownName
from ars.regular import check_regular

__all__ = ["IdxFiles", "fashion_mnist", "find_images"]

FASHION_MNIST_CLASSES = [
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
]
FASHION_MNIST_FOLDER = Path("/usr/share/datasets/fashion-mnist")
_SPLITS = {"train": "train", "test": "t10k"}


class IdxFiles:
    """Images from an idx3-ubyte file and labels from the idx1-ubyte file beside it."""

    span = PIXELS

    def __init__(self, images: Path, classes: list[str] | None = None) -> None:
        self.name = images.name
        self.classes = classes
        self._images_path = images
        self._labels_path = images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))
        self._images = _read_idx(images, 3)
        self._labels = _read_idx(self._labels_path, 1)
        if len(self._images) != len(self._labels):
            found = f"it has {len(self._labels)} labels for {len(self._images)} images"
            raise DataError(self._labels_path, found, "use the images and labels of the same split")

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> Example:
        return Example(to_pixels(self._images[index][np.newaxis], self._images_path), int(self._labels[index]))

    def fingerprint(self) -> str:
        return file_sha256(self._images_path) + file_sha256(self._labels_path)


def find_images(folder: Path, part: str | None) -> Path | None:
    """The idx file of images in a folder as MNIST has them: that of the test data, or of `part`. None if there is
    none."""
    found = {split: sorted(folder.glob(f"{prefix}-images*idx3*ubyte*")) for split, prefix in _SPLITS.items()}
    if not any(found.values()):
        return None
    if part is not None and part not in found:
        raise UnknownName(f"part of {folder}", part, found)
    files = found[part or "test"]
    if not files:
        raise DataError(folder, f"it has no idx file of {part or 'test'} images", f"give {folder}:train, or add them")
    return files[0]


def fashion_mnist(split: str) -> IdxFiles:
    """Fashion-MNIST, as installed by Debian's package dataset-fashion-mnist."""
    if split not in _SPLITS:
        raise UnknownName("split of fashion-mnist", split, _SPLITS)
    stem = FASHION_MNIST_FOLDER / f"{_SPLITS[split]}-images-idx3-ubyte"
    for path in (stem, stem.with_name(stem.name + ".gz")):
        if path.exists():
            source = IdxFiles(path, FASHION_MNIST_CLASSES)
            source.name = f"fashion-mnist:{split}"
            return source
    fix = "run `apt install dataset-fashion-mnist`, or give the path of an idx file of images"
    raise DataError(stem, "there is no such file", fix)


def _read_idx(path: Path, axes: int) -> NDArray[np.uint8]:
    check_regular(path, DataError)
    packed, length = path.suffix == ".gz", 4 + 4 * axes
    try:
        size = path.stat().st_size
        with gzip.open(path) if packed else path.open("rb") as file:
            header = file.read(length)
            if len(header) < length or header[:4] != bytes([0, 0, 8, axes]):
                raise DataError(path, f"it is not an idx{axes}-ubyte file", "download it again")
            shape = struct.unpack(f">{axes}I", header[4:])
            values = math.prod(shape)
            mismatch = DataError(path, f"its size does not match the shape {shape} in its header", "download it again")
            if not packed and size != length + values:
                raise mismatch
            check_memory(path, values, packed=size if packed else None)
            content = file.read(values + 1)
    except (OSError, EOFError, zlib.error) as error:
        fix = "give a file of images, with the file of labels beside it"
        raise DataError(path, f"it cannot be read ({error})", fix) from error
    if len(content) != values:
        raise mismatch
    return np.frombuffer(content, np.uint8).reshape(shape)
