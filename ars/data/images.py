"""Image files: a folder for each class, or a single image."""

import copy
import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from ars.data import Example, ImageSize
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import DataError

__all__ = ["IMAGE_SUFFIXES", "ImageFolder", "OneImage"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")

Box = tuple[int, int, int, int]
"""(left, top, right, bottom), in pixels."""


class ImageFolder:
    """A folder with a folder of images for each class. The classes are sorted by name, or in the order of the lines of
    `classes_file`."""

    def __init__(self, path: Path, size: ImageSize, classes_file: Path | None = None) -> None:
        self.name = path.name or str(path)
        self._path, self._size = path, size
        folders = sorted(
            folder.name for folder in path.iterdir() if folder.is_dir() and not folder.name.startswith(".")
        )
        self.classes: list[str] | None = _read_classes(classes_file, folders, path) if classes_file else folders
        self._files = [
            (file, label)
            for label, name in enumerate(self.classes)
            for file in sorted((path / name).glob("*"))
            if file.suffix.lower() in IMAGE_SUFFIXES
        ]
        if not self._files:
            raise DataError(
                path, "it has no folders of PNG or JPEG images", "put the images of each class in a folder of their own"
            )

    def brought_to(self, size: ImageSize) -> "ImageFolder":
        """The same images, brought to another size."""
        other = copy.copy(self)
        other._size = size
        return other

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Example:
        file, label = self._files[index]
        return Example(_read_image(file, self._size), label, file.relative_to(self._path).as_posix())

    @property
    def labels(self) -> list[int]:
        """The labels of all images; no image is read."""
        return [label for _, label in self._files]

    def read_part(self, index: int, box: Callable[[int, int], Box], side: int) -> NDArray[np.float32]:
        """The part of an image inside box(width, height), in colour, resized to side x side pixels. Thread-safe."""

        def cut(image: Image.Image) -> Image.Image:
            return image.resize((side, side), Image.Resampling.BILINEAR, box=box(*image.size))

        return _decode(self._files[index][0], 3, cut)

    def fingerprint(self) -> str:
        # The contents may be gigabytes. Each record of a run has a hash of its own input instead.
        listing = [f"{file.relative_to(self._path)} {file.stat().st_size} {label}" for file, label in self._files]
        return hashlib.sha256("\n".join([str(self._size), *listing]).encode()).hexdigest()


class OneImage:
    """A single image file, without a label."""

    classes: list[str] | None = None

    def __init__(self, path: Path, size: ImageSize) -> None:
        self.name = path.name
        self._path, self._size = path, size

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Example:
        return Example(_read_image(self._path, self._size), None, self._path.name)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._size} {file_sha256(self._path)}".encode()).hexdigest()


def _read_classes(file: Path, folders: list[str], path: Path) -> list[str]:
    try:
        classes = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(file, f"it cannot be read ({error})", "use a text file with one class name per line") from error
    if len(set(classes)) < len(classes):
        raise DataError(file, "it names a class twice", "list each class once, one per line")
    missing = sorted(set(folders) - set(classes))
    if missing:
        raise DataError(file, f"it does not name the class {missing[0]!r} of {path}", "list every folder, one per line")
    return classes


def _read_image(path: Path, size: ImageSize) -> NDArray[np.float32]:
    with warnings.catch_warnings(action="ignore"):
        return _decode(path, size.channels, lambda image: _fit(image, size))


def _decode(path: Path, channels: int | None, fit: Callable[[Image.Image], Image.Image]) -> NDArray[np.float32]:
    try:
        with Image.open(path) as file:
            if file.mode.startswith(("I", "F")):
                raise ValueError(f"its mode is {file.mode}, but only 8 bits per channel are supported")
            gray = channels == 1 or (channels is None and file.mode in ("L", "LA", "1"))
            values = np.asarray(fit(file.convert("L" if gray else "RGB")))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        fix = "replace it, or use --on-error skip with ars-engine"
        raise DataError(path, f"it cannot be used ({error})", fix) from error
    return to_pixels(values[np.newaxis] if values.ndim == 2 else values.transpose(2, 0, 1), path)


def _fit(image: Image.Image, size: ImageSize) -> Image.Image:
    if size.resize:
        shorter = min(image.size)
        width, height = (round(side * size.resize / shorter) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if size.crop:
        if min(image.size) < size.crop:
            raise ValueError(f"its {image.width} x {image.height} pixels are smaller than the crop of {size.crop}")
        left, top = (image.width - size.crop) // 2, (image.height - size.crop) // 2
        image = image.crop((left, top, left + size.crop, top + size.crop))
    return image
