"""Image files: a folder for each class, a list of files and labels, or a single image."""

import copy
import csv
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import PIXELS, Example, ImageSize
from ars.data.decode import IMAGE_SUFFIXES, Box, cut_image, read_image
from ars.data.labels import number_labels, order_classes
from ars.data.pixels import check_name, file_sha256
from ars.errors import DataError
from ars.regular import check_regular

__all__ = ["ImageFolder", "ListedImages", "OneImage"]


class _ImageFiles:
    """Labelled image files in a folder."""

    span = PIXELS

    def __init__(self, folder: Path, size: ImageSize, classes: list[str] | None, files: list[tuple[Path, int]]) -> None:
        self.name = folder.name or str(folder)
        self.classes = classes
        self._path, self._size, self._files = folder, size, files

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Example:
        file, label = self._files[index]
        return Example(read_image(file, self._size, file), label, file.relative_to(self._path).as_posix())

    @property
    def labels(self) -> list[int]:
        """The labels of all images; no image is read."""
        return [label for _, label in self._files]

    def fingerprint(self) -> str:
        # The contents may be gigabytes. Each record of a run has a hash of its own input instead.
        listing = [f"{file.relative_to(self._path)} {file.stat().st_size} {label}" for file, label in self._files]
        return hashlib.sha256("\n".join([str(self._size), *listing]).encode()).hexdigest()


class ImageFolder(_ImageFiles):
    """A folder with a folder of images for each class. The classes are sorted by name, or in the order of the lines of
    `classes_file`."""

    def __init__(self, path: Path, size: ImageSize, classes_file: Path | None = None) -> None:
        folders = [file.name for file in _list_folder(path) if file.is_dir() and not file.name.startswith(".")]
        classes = order_classes(folders, classes_file, path)
        files = [
            (file, label)
            for label, name in enumerate(classes)
            for file in (_list_folder(path / name) if name in folders else ())
            if file.suffix.lower() in IMAGE_SUFFIXES
        ]
        if not files:
            fix = "put the images of each class in a folder of their own, or give a CSV file of names and labels"
            raise DataError(path, "it has no folders of PNG or JPEG images", fix)
        for name in (path, *(file for file, _ in files)):
            check_name(name)
        super().__init__(path, size, classes, files)

    def brought_to(self, size: ImageSize) -> "ImageFolder":
        """The same images, brought to another size."""
        other = copy.copy(self)
        other._size = size
        return other

    def read_part(self, index: int, box: Callable[[int, int], Box], side: int) -> NDArray[np.float32]:
        """The part of an image inside box(width, height), in colour, resized to side x side pixels. Thread-safe."""
        return cut_image(self._files[index][0], box, side)


def _list_folder(folder: Path) -> list[Path]:
    """The files in a folder, sorted. (A glob would leave out a folder that cannot be read, without an error.)"""
    try:
        with os.scandir(folder) as entries:
            found = {folder / entry.name: entry.is_file() or entry.is_dir() for entry in entries}
    except OSError as error:
        problem = f"it cannot be read ({error.strerror})"
        raise DataError(folder, problem, "make it readable, or move it out of the data") from error
    for file, usual in found.items():
        if not usual:
            check_regular(file, DataError)
    return sorted(found)


class ListedImages(_ImageFiles):
    """Images that a CSV file beside them lists, with their labels: numbers, or names of classes.

    One column has the names of the files, with or without their suffix, and another one the labels; if there are more
    columns, that is the one called label, class, target or y.
    """

    def __init__(self, listing: Path, size: ImageSize, classes_file: Path | None = None) -> None:
        self._listing = listing
        found = _read_listing(listing)
        numbers, classes = number_labels([label for _, label in found], classes_file, listing)
        files = [(file, number) for (file, _), number in zip(found, numbers, strict=True)]
        super().__init__(listing.parent, size, classes, files)
        self.name = listing.name

    def fingerprint(self) -> str:
        return file_sha256(self._listing) + super().fingerprint()


def _read_listing(listing: Path) -> list[tuple[Path, str]]:
    """The files and the labels that a CSV file lists."""
    try:
        with listing.open(newline="", encoding="utf-8-sig") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(listing, f"it cannot be read ({error})", "use a CSV file of names and labels") from error
    folder, width = listing.parent, min(map(len, rows), default=0)
    # The first row may be a header, and a label like 3 may look like the name of 3.png: a name with a suffix
    # goes first, and then the first column.
    last = rows[-1][:width] if rows else []
    found = [column for column, cell in enumerate(last) if _find_image(folder, cell)]
    named = max(found, key=lambda column: (Path(last[column]).suffix != "", -column), default=None)
    if named is None or width < 2:
        fix = "it needs a column with the names of images beside it, and one of labels; features go into an .npz"
        raise DataError(listing, "it does not list images and labels", fix)
    header = None if _find_image(folder, rows[0][named]) else [cell.lower() for cell in rows.pop(0)]
    others = [column for column in range(width) if column != named]
    if len(others) > 1:
        others = [column for column in others if header and header[column] in ("label", "class", "target", "y")]
    if len(others) != 1:
        raise DataError(listing, f"it has {width} columns, and none or several are called label", "name one label")
    files = []
    for row in rows:
        image = _find_image(folder, row[named])
        if image is None:
            raise DataError(listing, f"it lists {row[named]!r}, and there is no such image", "remove its line")
        files.append((image, row[others[0]]))
    return files


def _find_image(folder: Path, name: str) -> Path | None:
    """The image of this name in the folder, which may lack its suffix; None if there is none, or it is outside."""
    if not name or Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    suffixed = Path(name).suffix.lower() in IMAGE_SUFFIXES
    names = [name] if suffixed else [f"{name}{suffix}" for suffix in IMAGE_SUFFIXES]
    return next((folder / each for each in names if (folder / each).is_file()), None)


class OneImage:
    """A single image file, without a label."""

    classes: list[str] | None = None
    span = PIXELS

    def __init__(self, path: Path, size: ImageSize) -> None:
        self.name = path.name
        self._path, self._size = path, size

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Example:
        return Example(read_image(self._path, self._size, self._path), None, self._path.name)

    def fingerprint(self) -> str:
        return hashlib.sha256(f"{self._size} {file_sha256(self._path)}".encode()).hexdigest()
