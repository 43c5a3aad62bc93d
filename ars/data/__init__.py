"""Data sources: labelled inputs as float32 arrays, images as channels x height x width in pixel units.

Integer values are divided by 255; floats are used as they are. `open_data` opens the source that a name stands for:

    fashion-mnist:test      the idx files of Debian's package dataset-fashion-mnist (also :train)
    folder/                 a folder that has a folder of images for each class
    labels.csv              a list of image files beside it and their labels; or the folder that has both
    images.zip, images.tar  an archive of class folders; images.zip:test, if it has several of them
    images.npz              an array of inputs and one of labels; images.npz:x_train, if it has several
    images.npy              an array of inputs, with labels.npy beside it, if they have labels
    test.parquet            images as the Hugging Face hub stores them; or a folder of such files
    t10k-images-idx3-ubyte  an idx file of images (also .gz), with the file of labels beside it; or their folder
    cifar-10-batches-py/    the python batches of CIFAR-10, or of CIFAR-100 (cifar-100-python/); or one of the files
    cifar-10-batches-bin/   CIFAR-10's binary test batch; or a single .bin file
    cat.png                 one image

Where a folder or a file has several parts, the test data is taken, and `NAME:PART` names another one.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ars.errors import ArgumentError, DataError
from ars.regular import check_regular

__all__ = [
    "PIXELS",
    "Dataset",
    "Example",
    "ImageSize",
    "has_parquet",
    "image_channels",
    "open_data",
    "parse_ranges",
    "refuse_size",
    "select",
]

PIXELS = (0.0, 1.0)
"""The span of pixels."""

MOST_INPUTS = 2**24
"""The most inputs of a run. A store could claim any number, and their list would take all memory."""


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
    span: tuple[float, float]
    """The smallest and the largest value that its inputs may have: PIXELS, or those of an array of floats."""

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
    from ars.data.pixels import check_name

    size = size or ImageSize()
    if spec.partition(":")[0] == "fashion-mnist":
        from ars.data.idx import fashion_mnist

        refuse_size(spec, size, classes_file)
        return fashion_mnist(spec.partition(":")[2] or "test")
    path, part = _find(spec)
    check_regular(path, DataError)
    check_name(path)
    return (_open_folder if path.is_dir() else _open_file)(path, part, size, classes_file)


def _find(spec: str) -> tuple[Path, str | None]:
    """The file or folder that is meant, and the part of it that is named after a colon."""
    if Path(spec).exists():
        return Path(spec), None
    file, _, part = spec.rpartition(":")
    if file and Path(file).exists():
        return Path(file), part
    raise DataError(spec, "there is no such file or folder", "give a path, or fashion-mnist:test")


def has_parquet(folder: Path) -> bool:
    """Whether a folder is one of parquet files, as the Hugging Face hub has them."""
    return any(folder.glob("*.parquet")) or any((folder / "data").glob("*.parquet"))


def _open_folder(path: Path, part: str | None, size: ImageSize, classes_file: Path | None) -> Dataset:
    from ars.data.cifar import CifarBatch, CifarPickle, find_pickles
    from ars.data.idx import IdxFiles, find_images
    from ars.data.images import ImageFolder, ListedImages

    if has_parquet(path):
        from ars.data.parquet import ParquetImages, find_shards

        return ParquetImages(find_shards(path, part), size, classes_file)
    idx = find_images(path, part)
    pickles = [] if idx else find_pickles(path, part)
    binary = path / "test_batch.bin"
    if idx or pickles or binary.exists():
        refuse_size(str(path), size, classes_file)
        return IdxFiles(idx) if idx else CifarPickle(*pickles) if pickles else CifarBatch(binary)
    if part is not None:
        raise DataError(path, f"it has no part {part!r}", f"give the folder {path / part}")
    listings = sorted(path.glob("*.csv"))
    if listings and not any(each.is_dir() and not each.name.startswith(".") for each in path.iterdir()):
        if len(listings) > 1:
            raise DataError(path, f"it has {len(listings)} CSV files", "give the one that lists the images")
        return ListedImages(listings[0], size, classes_file)
    return ImageFolder(path, size, classes_file)


def _open_file(path: Path, part: str | None, size: ImageSize, classes_file: Path | None) -> Dataset:
    from ars.data.archives import ARCHIVE_SUFFIXES, ImageArchive
    from ars.data.arrays import Arrays
    from ars.data.cifar import CifarBatch, CifarPickle
    from ars.data.decode import IMAGE_SUFFIXES
    from ars.data.idx import IdxFiles
    from ars.data.images import ListedImages, OneImage

    name, suffix = path.name.lower(), path.suffix.lower()
    if name.endswith(ARCHIVE_SUFFIXES):
        return ImageArchive(path, part, size, classes_file)
    if part is not None and suffix != ".npz":
        raise DataError(path, f"it has no part {part!r}", "omit the colon and what follows")
    if suffix in IMAGE_SUFFIXES:
        return OneImage(path, size)
    if suffix == ".csv":
        return ListedImages(path, size, classes_file)
    if suffix == ".parquet":
        from ars.data.parquet import ParquetImages

        return ParquetImages([path], size, classes_file)
    refuse_size(str(path), size, classes_file)
    if suffix in (".npz", ".npy"):
        return Arrays(path, part, size.channels)
    if suffix == ".bin":
        return CifarBatch(path)
    if "idx3-ubyte" in name or "idx3.ubyte" in name:
        return IdxFiles(path)
    with path.open("rb") as file:
        if file.read(1) == b"\x80":  # a pickle of any protocol from 2 on
            return CifarPickle(path)
    kinds = "a folder of images by class, .zip, .tar, .csv, .npz, .npy, .parquet, idx3-ubyte, or a batch of CIFAR"
    raise DataError(path, "files of this kind are not supported", f"use one of {kinds}")


def refuse_size(spec: str, size: ImageSize, classes_file: Path | None = None) -> None:
    """Reject options for image files if the data does not consist of image files."""
    if size.resize or size.crop or classes_file:
        raise DataError(spec, "--resize, --crop and --classes are for image files", "omit them")


def select(
    total: int,
    *,
    start: int = 0,
    limit: int | None = None,
    skip: int = 1,
    end: int | None = None,
    only: str | None = None,
    shard: str | None = None,
) -> list[int]:
    """The input ids of a run. `only` is a list like "3,17,200-300,0-9999/20" (the last part is every 20th).

    As in the field's certify.py, every `skip`-th input is kept, and only those before `end`. Of what is left, the first
    `start` are left out, and at most `limit` are kept. Of these, the shard "3/20" has the 3rd and every 20th after it.
    """
    for name, value, least in (("start", start, 0), ("limit", limit, 1), ("skip", skip, 1), ("end", end, 1)):
        if value is not None and value < least:
            raise ArgumentError(name, value, f"it must be at least {least}")
    before = total if end is None else min(end, total)
    chosen: Sequence[int]
    if only is None:
        chosen = range(0, before, skip)[start:][:limit]
    else:
        parts = [range(part.start, min(part.stop, before), part.step) for part in parse_ranges(only, total)]
        if sum(map(len, parts)) > MOST_INPUTS:
            raise ArgumentError("only", only, f"a run has at most {MOST_INPUTS:,} inputs")
        chosen = [idx for idx in dict.fromkeys(itertools.chain(*parts)) if idx % skip == 0][start:][:limit]
    if not chosen:
        raise ArgumentError("start", start, f"none of the {total} inputs are left")
    if shard is not None:
        chosen = _take_shard(shard, chosen)
    if len(chosen) > MOST_INPUTS:
        raise ArgumentError("limit", len(chosen), f"a run has at most {MOST_INPUTS:,} inputs; divide them into shards")
    return list(chosen)


def _take_shard(shard: str, chosen: Sequence[int]) -> Sequence[int]:
    number, _, count = shard.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise ArgumentError("shard", shard, "it must be like 3/20, from 1/20 to 20/20")
    if int(number) > len(chosen):
        raise ArgumentError("shard", shard, f"there are only {len(chosen)} inputs; divide them among fewer shards")
    return chosen[int(number) - 1 :: int(count)]


def parse_ranges(text: str, total: int) -> list[range]:
    """The ranges of a list like "3,17,200-300,0-9999/20", none of them beyond `total`."""
    found = []
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
        found.append(range(low, high + 1, step))
    return found
