"""Arrays of inputs in an .npz or .npy file."""

import hashlib
import math
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ars.data import PIXELS, Example
from ars.data.memory import check_memory
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import ArsError, DataError, FileError, one_line
from ars.regular import check_regular

__all__ = ["Arrays", "Npz", "read_npy"]

_Array = NDArray[np.generic]


@dataclass(frozen=True)
class _Header:
    """What an array is, before it is read."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        return len(self.shape)


class Npz:
    """The arrays of an .npz file. Only those that are asked for are read, and nothing in the file is executed."""

    def __init__(self, path: Path, error: type[FileError]) -> None:
        self._path, self._error = path, error
        self.headers: dict[str, _Header] = {}
        """What each array is, by its name."""
        self._members: dict[str, zipfile.ZipInfo] = {}
        with self._opened() as archive:
            for member in archive.infolist():
                name = member.filename.removesuffix(".npy")
                if name in self._members:
                    raise ValueError(f"it has two arrays {name}")
                with archive.open(member) as file:
                    self.headers[name] = _read_header(file, member.file_size)
                self._members[name] = member

    def read(self, name: str) -> _Array:
        """The array of this name."""
        member = self._members[name]
        # Archives whose members share their bytes are small too, so no member counts as larger than the file.
        packed = min(member.compress_size, self._path.stat().st_size)
        check_memory(self._path, member.file_size, f"its array {name}", packed=packed, error=self._error)
        with self._opened() as archive, archive.open(member) as file:
            return _read_array(file)

    @contextmanager
    def _opened(self) -> Iterator[zipfile.ZipFile]:
        with _refusing(self._path, self._error, "savez"), zipfile.ZipFile(self._path) as archive:
            yield archive


def read_npy(path: Path, error: type[FileError]) -> _Array:
    """The array of an .npy file. Nothing in the file is executed."""
    with _refusing(path, error, "save"), path.open("rb") as file:
        size = path.stat().st_size
        _read_header(file, size)
        check_memory(path, size, error=error)
        file.seek(0)
        return _read_array(file)


@contextmanager
def _refusing(path: Path, error: type[FileError], function: str) -> Iterator[None]:
    """Turns whatever a damaged file raises into a sentence."""
    check_regular(path, error)
    try:
        yield
    except (ArsError, MemoryError):
        raise
    except Exception as reason:  # numpy, zipfile and the decompressors raise almost anything
        problem = f"it cannot be read ({one_line(reason) or type(reason).__name__})"
        raise error(path, problem, f"write it again with numpy.{function}") from reason


def _read_header(file: IO[bytes], size: int) -> _Header:
    """The header of an array that is stored, header included, in this many bytes."""
    version = np.lib.format.read_magic(file)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"its format is {version[0]}.{version[1]}")
    try:
        shape, _, dtype = readers[version](file)
    except (SyntaxError, RecursionError) as error:  # numpy reads the header as an expression of Python
        raise ValueError("its header cannot be read") from error
    if dtype.hasobject:
        raise ValueError("it has an array of Python objects, which are not loaded")
    wanted = math.prod(shape) * dtype.itemsize
    if any(side < 0 for side in shape) or size - file.tell() != wanted:
        raise ValueError(f"its header says {wanted} bytes in the shape {shape}, and there are {size - file.tell()}")
    return _Header(shape, dtype)


def _read_array(file: IO[bytes]) -> _Array:
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


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
            arrays = Npz(path, DataError)
            inputs = _choose_inputs(path, arrays.headers, part)
            labels = _choose_labels(path, arrays.headers, inputs)
            x, y = arrays.read(inputs), None if labels is None else arrays.read(labels)
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


def _choose_inputs(path: Path, arrays: dict[str, _Header], part: str | None) -> str:
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


def _choose_labels(path: Path, arrays: dict[str, _Header], inputs: str) -> str | None:
    """The name of the array of labels that goes with an array of inputs; None if no array can be it."""
    if "y" in arrays and inputs == "x":
        return "y"
    length = arrays[inputs].shape[0] if arrays[inputs].shape else 0
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
    """The smallest and the largest value as the model will get them. NaN is ignored: inputs with it are refused."""
    if not np.issubdtype(x.dtype, np.floating):
        return PIXELS
    return float(np.fmin.reduce(x, axis=None, initial=np.inf)), float(np.fmax.reduce(x, axis=None, initial=-np.inf))
