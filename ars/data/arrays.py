"""Arrays in an .npz file: x (n, ...) and, optionally, y (n,)."""

import lzma
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import Example
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import DataError, FileError

__all__ = ["Npz", "read_npy", "read_npz"]

_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)


def read_npz(path: Path, error: type[FileError]) -> dict[str, NDArray[np.generic]]:
    """The arrays of an .npz file. Nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays}
    except (*_BROKEN, OSError, ValueError, TypeError, AttributeError, EOFError, NotImplementedError) as reason:
        raise error(path, f"it cannot be read ({reason})", "write it again with numpy.savez") from reason


def read_npy(path: Path, error: type[FileError]) -> NDArray[np.generic]:
    """The array of an .npy file. Nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except (OSError, ValueError, TypeError, AttributeError, EOFError) as reason:
        raise error(path, f"it cannot be read ({reason})", "write it again with numpy.save") from reason


class Npz:
    classes: list[str] | None = None

    def __init__(self, path: Path) -> None:
        self.name = path.name
        self._path = path
        arrays = read_npz(path, DataError)
        if "x" not in arrays:
            raise DataError(path, f"it has no array x, only {', '.join(arrays) or 'nothing'}", "name the images x")
        self._x, self._y = arrays["x"], arrays.get("y")
        if self._x.ndim < 2 or len(self._x) == 0:
            raise DataError(path, f"x has the shape {self._x.shape}", "it must hold inputs along its first axis")
        y = self._y
        if y is not None and (y.shape != (len(self._x),) or not np.issubdtype(y.dtype, np.integer)):
            found = f"y is {y.dtype} of shape {y.shape} for {len(self._x)} inputs"
            raise DataError(path, found, "y must hold one integer label for each input")

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> Example:
        label = None if self._y is None else int(self._y[index])
        return Example(to_pixels(self._x[index], f"{self._path}, input {index}"), label)

    def fingerprint(self) -> str:
        return file_sha256(self._path)
