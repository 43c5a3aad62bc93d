"""Data sources: labelled images as float32 arrays in channels x height x width, in pixel units.

Integer images are divided by 255; float images are used as they are. `open_data` opens the source that a name stands
for:

    fashion-mnist:test      the idx files of Debian's package dataset-fashion-mnist (also :train)
    images.npz              arrays x (n, ...) and, optionally, y (n,)
    t10k-images-idx3-ubyte  an idx file of images (also .gz), with the file of labels beside it
    folder/                 a folder that has a folder of images for each class
    cifar-10-batches-bin/   CIFAR-10's binary test batch; or a single .bin file
    cat.png                 one image
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ars.errors import ArgumentError, DataError

__all__ = ["Dataset", "Example", "ImageSize", "image_channels", "open_data", "refuse_size", "select"]


@dataclass(frozen=True)
class Example:
    """One input, with its label if known."""

    x: NDArray[np.float32]
    label: int | None
    name: str | None = None
    """Its file, where it has one: relative to the folder, or the file's name inside an archive."""


class Dataset(Protocol):
    """A numbered sequence of examples."""

    name: str
    classes: list[str] | None
    """The names of the classes in the order of their labels; None if they have no names."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Example:
        """Raises a DataError that names the file if the example cannot be read."""
        ...

    def fingerprint(self) -> str:
        """A hash of the data: of the files' contents or, for folders of images, of the files' names and sizes."""
        ...


@dataclass(frozen=True)
class ImageSize:
    """How images are brought to one shape. The shorter side is resized to `resize`, then the central `crop` x `crop`
    pixels are kept. One channel is gray, three are colour, and None keeps each image as it is."""

    resize: int | None = None
    crop: int | None = None
    channels: int | None = None


def image_channels(shape: Sequence[int | None]) -> int | None:
    """The channels of the images that a model with inputs of this shape takes; None if its inputs are not images."""
    return shape[0] if len(shape) == 3 and shape[0] in (1, 3) else None


def open_data(spec: str, size: ImageSize | None = None, classes_file: Path | None = None) -> Dataset:
    """Open the data that `spec` names (see the module's docstring)."""
    from ars.data.arrays import Npz
    from ars.data.cifar import CifarBatch
    from ars.data.idx import IdxFiles, fashion_mnist
    from ars.data.images import IMAGE_SUFFIXES, ImageFolder, OneImage

    size = size or ImageSize()
    if spec.partition(":")[0] == "fashion-mnist":
        refuse_size(spec, size, classes_file)
        return fashion_mnist(spec.partition(":")[2] or "test")
    path = Path(spec)
    if not path.exists():
        raise DataError(path, "there is no such file or folder", "give a path, or fashion-mnist:test")
    if path.is_dir() and not (path / "test_batch.bin").exists():
        return ImageFolder(path, size, classes_file)
    if path.suffix.lower() in IMAGE_SUFFIXES:
        return OneImage(path, size)
    refuse_size(spec, size, classes_file)
    if path.is_dir():
        return CifarBatch(path / "test_batch.bin")
    if path.suffix == ".npz":
        return Npz(path)
    if path.suffix == ".bin":
        return CifarBatch(path)
    if "-idx3-ubyte" in path.name or "-idx3.ubyte" in path.name:
        return IdxFiles(path)
    kinds = ".npz, .bin (CIFAR-10), idx3-ubyte, an image, or a folder of images by class"
    raise DataError(path, "files of this kind are not supported", f"use one of {kinds}")


def refuse_size(spec: str, size: ImageSize, classes_file: Path | None = None) -> None:
    """Reject options for image files if the data does not consist of image files."""
    if size.resize or size.crop or classes_file:
        raise DataError(spec, "--resize, --crop and --classes are for image files", "omit them")


def select(total: int, *, skip: int = 0, most: int | None = None, only: str | None = None) -> list[int]:
    """The input ids of a run. `only` is a list like "3,17,200-300,0-9999/20" (the last part is every 20th); of the ids
    in it, the first `skip` are left out, and at most `most` are kept."""
    chosen = list(range(total)) if only is None else _parse_ranges(only, total)
    chosen = chosen[skip:][:most]
    if not chosen:
        raise ArgumentError("skip", skip, f"none of the {total} inputs are left")
    return chosen


def _parse_ranges(text: str, total: int) -> list[int]:
    chosen: dict[int, None] = {}
    for part in text.split(","):
        ids, slash, every = part.strip().partition("/")
        first, dash, last = ids.partition("-")
        try:
            low, high, step = int(first), int(last if dash else first), int(every if slash else 1)
        except ValueError:
            raise ArgumentError("only", text, 'it must be a list like "3,17,200-300" or "0-9999/20"') from None
        if not 0 <= low <= high or step < 1:
            raise ArgumentError("only", part.strip(), 'a range must ascend, like "200-300" or "0-9999/20"')
        if high >= total:
            raise ArgumentError("only", part.strip(), f"the data has the inputs 0 to {total - 1}")
        chosen.update(dict.fromkeys(range(low, high + 1, step)))
    return list(chosen)
