"""Arrays of inputs in an .npz or .npy file."""

import hashlib
import lzma
import re
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import PIXELS, Example
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import DataError, FileError

__all__ = ["Arrays", "read_npy", "read_npz"]

_BROKEN = (zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_Array = NDArray[np.generic]


def read_npz(path: Path, error: type[FileError]) -> dict[str, _Array]:
    """The arrays of an .npz file. Nothing in the file is executed."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: np.asarray(arrays[name]) for name in arrays}
    except (*_BROKEN, OSError, ValueError, TypeError, AttributeError, EOFError, NotImplementedError) as reason:
        raise error(path, f"it cannot be read ({reason})", "write it again with numpy.savez") from reason


def read_npy(path: Path, error: type[FileError]) -> _Array:
    """The array of an .npy file. Nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))
    except (OSError, ValueError, TypeError, AttributeError, EOFError) as reason:
        raise error(path, f"it cannot be read ({reason})", "write it again with numpy.save") from reason


class Arrays:
    """Inputs along the first axis of an array, and their labels.

    In an .npz file these are x and y; or the only array of inputs, with the labels that go with it; `part` names it if
    there are several. The labels of an .npy file are in labels.npy beside it, or in y_test.npy if it is x_test.npy.

    Images are stored with their channels first, last, or, if they have one, without that axis: a model of images
    (`channels`) gets them first.
    """

    classes: list[str] | None = None

    def __init__(self, path: Path, part: str | None = None, channels: int | None = None) -> None:
        self.name = path.name if part is None else f"{path.name}:{part}"
        self._path, self._part = path, part
        if path.suffix.lower() == ".npy":
            self._labels_path = _find_label_file(path)
            x, y, names = read_npy(path, DataError), None, ("its array", "the array of labels")
            if self._labels_path is not None:
                y, names = read_npy(self._labels_path, DataError), (names[0], self._labels_path.name)
        else:
            self._labels_path = None
            arrays = read_npz(path, DataError)
            inputs = _choose_inputs(path, arrays, part)
            labels = _choose_labels(path, arrays, inputs)
            x, y = arrays[inputs], None if labels is None else arrays[labels]
            names = inputs, labels or ""
        if x.ndim < 2 or len(x) == 0:
            raise DataError(path, f"{names[0]} has the shape {x.shape}", "it must hold inputs along its first axis")
        if y is not None:
            y = y.reshape(-1) if y.ndim == 2 and y.shape[1] == 1 else y
            if y.shape != (len(x),) or not np.issubdtype(y.dtype, np.integer):
                found = f"{names[1]} is {y.dtype} of shape {y.shape} for {len(x)} inputs"
                raise DataError(path, found, f"{names[1]} must hold one integer label for each input")
        self._x, self._moved = _channels_first(x, channels)
        self._y = y
        self.span = _span(x)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> Example:
        label = None if self._y is None else int(self._y[index])
        return Example(to_pixels(self._x[index], f"{self._path}, input {index}"), label)

    def fingerprint(self) -> str:
        content = file_sha256(self._path) + (file_sha256(self._labels_path) if self._labels_path else "")
        if self._part is None and not self._moved:
            return content
        return hashlib.sha256(f"{content} {self._part} {self._moved}".encode()).hexdigest()


def _choose_inputs(path: Path, arrays: dict[str, _Array], part: str | None) -> str:
    """The name of the array of inputs."""
    if part is not None:
        if part not in arrays:
            raise DataError(path, f"it has no array {part!r}", f"choose from {', '.join(arrays)}")
        return part
    if "x" in arrays:
        return "x"
    found = [name for name, array in arrays.items() if array.ndim > 1 and array.shape[1:] != (1,)]
    if len(found) > 1:
        found = [name for name in found if "test" in name.lower()] or found
    if len(found) == 1:
        return found[0]
    has = f"it has the arrays {', '.join(arrays)}" if arrays else "it has no arrays"
    fix = f"choose one, like {path.name}:{found[0]}" if found else "it needs an array of inputs along its first axis"
    raise DataError(path, has, fix)


def _choose_labels(path: Path, arrays: dict[str, _Array], inputs: str) -> str | None:
    """The name of the array of labels that goes with an array of inputs; None if no array can be it."""
    if "y" in arrays and inputs == "x":
        return "y"
    length = len(arrays[inputs])
    found = [
        name
        for name, array in arrays.items()
        if name != inputs and array.shape in ((length,), (length, 1)) and np.issubdtype(array.dtype, np.integer)
    ]
    if len(found) > 1:
        named = [_label_name(inputs), *(_label_name(inputs, word) for word in ("labels", "label", "targets"))]
        found = [name for name in found if name in named] or found
    if len(found) > 1:
        raise DataError(path, f"{' and '.join(found)} could be the labels", "name the inputs x and their labels y")
    return found[0] if found else None


def _label_name(inputs: str, word: str = "y") -> str:
    """What an array of labels is called beside inputs of this name: y_test for x_test, test_labels for test_images."""
    if word == "y":
        return re.sub("^[xX]", "y", inputs)
    return re.sub("images?|data|inputs?|^[xX]", word, inputs)


def _find_label_file(path: Path) -> Path | None:
    names = (f"{_label_name(path.stem)}.npy", "labels.npy")
    return next((path.with_name(name) for name in names if name != path.name and path.with_name(name).is_file()), None)


def _channels_first(x: _Array, channels: int | None) -> tuple[_Array, str | None]:
    """Images with their channels first, and what was done for it."""
    if channels is not None and x.ndim == 4 and x.shape[3] == channels != x.shape[1]:
        return np.moveaxis(x, 3, 1), "channels last"
    if channels == 1 and x.ndim == 3:
        return x[:, np.newaxis], "one channel"
    return x, None


def _span(x: _Array) -> tuple[float, float]:
    """The smallest and the largest value as the model will get them."""
    if not np.issubdtype(x.dtype, np.floating):
        return PIXELS
    return float(x.min(initial=np.inf)), float(x.max(initial=-np.inf))
