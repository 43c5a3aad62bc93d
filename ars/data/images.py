"""Image files: a folder of them for each class, or a single one."""

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
    """A folder of images for each class. Classes are in the order of their names, or of the lines of a file."""

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
                path, "it has no folders with PNG or JPEG images", "put each class's images in a folder of its own"
            )

    def brought_to(self, size: ImageSize) -> "ImageFolder":
        """The same images in another size."""
        other = copy.copy(self)
        other._size = size
        return other

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Example:
        file, label = self._files[index]
        return Example(_read_image(file, self._size), label)

    @property
    def labels(self) -> list[int]:
        """Of all images, without reading them."""
        return [label for _, label in self._files]

    def read_part(self, index: int, box: Callable[[int, int], Box], side: int) -> NDArray[np.float32]:
        """The part of a coloured image inside box(width, height), as side x side pixels. Threads may call it."""

        def cut(image: Image.Image) -> Image.Image:
            return image.resize((side, side), Image.Resampling.BILINEAR, box=box(*image.size))

        return _decode(self._files[index][0], 3, cut)

    def fingerprint(self) -> str:
        # Not the contents, which may be gigabytes: each certified input's content is hashed in its own record.
        listing = [f"{file.relative_to(self._path)} {file.stat().st_size} {label}" for file, label in self._files]
        return hashlib.sha256("\n".join([str(self._size), *listing]).encode()).hexdigest()


class OneImage:
    """A single image file, whose class nobody has said."""

    classes: list[str] | None = None

    def __init__(self, path: Path, size: ImageSize) -> None:
        self.name = path.name
        self._path, self._size = path, size

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Example:
        return Example(_read_image(self._path, self._size), None)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._size} {file_sha256(self._path)}".encode()).hexdigest()


def _read_classes(file: Path, folders: list[str], path: Path) -> list[str]:
    try:
        classes = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(file, f"it cannot be read ({error})", "give a text file with one class name a line") from error
    if len(set(classes)) < len(classes):
        raise DataError(file, "it names a class twice", "name each class once, one a line")
    missing = sorted(set(folders) - set(classes))
    if missing:
        raise DataError(file, f"it does not name the class {missing[0]!r} of {path}", "name every folder, one a line")
    return classes


def _read_image(path: Path, size: ImageSize) -> NDArray[np.float32]:
    with warnings.catch_warnings(action="ignore"):
        return _decode(path, size.channels, lambda image: _fit(image, size))


def _decode(path: Path, channels: int | None, fit: Callable[[Image.Image], Image.Image]) -> NDArray[np.float32]:
    try:
        with Image.open(path) as file:
            if file.mode.startswith(("I", "F")):
                raise ValueError(f"its pixels are of mode {file.mode}, and only 8 bits a channel are read")
            gray = channels == 1 or (channels is None and file.mode in ("L", "LA", "1"))
            values = np.asarray(fit(file.convert("L" if gray else "RGB")))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError, SyntaxError, ValueError) as error:
        fix = "replace it, or, to ars-engine, pass --on-error skip"
        raise DataError(path, f"it cannot be used ({error})", fix) from error
    return to_pixels(values[np.newaxis] if values.ndim == 2 else values.transpose(2, 0, 1), path)


def _fit(image: Image.Image, size: ImageSize) -> Image.Image:
    if size.resize:
        shorter = min(image.size)
        width, height = (round(side * size.resize / shorter) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if size.crop:
        if min(image.size) < size.crop:
            raise ValueError(f"its {image.width} x {image.height} pixels are fewer than the crop of {size.crop}")
        left, top = (image.width - size.crop) // 2, (image.height - size.crop) // 2
        image = image.crop((left, top, left + size.crop, top + size.crop))
    return image
