"""CIFAR-10 and CIFAR-100: CIFAR-10's binary batches, and the python batches of both, of which nothing is executed."""

import io
import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ars.data import PIXELS, Example
from ars.data.memory import check_memory
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import ArsError, DataError, UnknownName
from ars.regular import check_regular

__all__ = ["CIFAR10_CLASSES", "CifarBatch", "CifarPickle", "find_pickles"]

CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_PIXELS = 3 * 32 * 32
_RECORD = 1 + _PIXELS
LARGEST_PICKLE = 2_000_000
"""The most opcodes of a python batch; the largest of CIFAR-100 has about 600,000."""


class CifarBatch:
    """One binary batch of CIFAR-10, or several in sequence: records of one label byte and 3072 pixel bytes."""

    span = PIXELS

    def __init__(self, *paths: Path) -> None:
        self.name = paths[0].name if len(paths) == 1 else paths[0].parent.name
        self.classes: list[str] | None = CIFAR10_CLASSES
        self._paths = paths
        for path in paths:
            check_regular(path, DataError)
        self._records = np.concatenate([_read_batch(path) for path in paths])

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Example:
        record = self._records[index]
        return Example(to_pixels(record[1:].reshape(3, 32, 32), self._paths[0]), int(record[0]))

    def fingerprint(self) -> str:
        return "".join(map(file_sha256, self._paths))


def _read_batch(path: Path) -> NDArray[np.uint8]:
    check_memory(path, path.stat().st_size)
    data = np.fromfile(path, np.uint8)
    if data.size == 0 or data.size % _RECORD:
        problem = f"its {data.size} bytes are not a multiple of the record size, {_RECORD}"
        raise DataError(path, problem, "use a binary batch of CIFAR-10, or the python version of CIFAR-100")
    records = data.reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise DataError(path, f"it has the label {records[:, 0].max()}", "use a binary batch of CIFAR-10")
    return records


class CifarPickle:
    """Python batches of CIFAR-10 or CIFAR-100, one or several in sequence. CIFAR-100 has its 100 fine labels."""

    span = PIXELS

    def __init__(self, *paths: Path) -> None:
        self.name = paths[0].name if len(paths) == 1 else paths[0].parent.name
        self._paths = paths
        batches = [_Batch(path) for path in paths]
        self._x = np.concatenate([batch.x for batch in batches])
        self._labels = [label for batch in batches for label in batch.labels]
        self._names = [name for batch in batches for name in batch.names]
        self.classes: list[str] | None = _read_names(paths[0].parent)

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> Example:
        return Example(to_pixels(self._x[index], self._paths[0]), self._labels[index], self._names[index])

    def fingerprint(self) -> str:
        return "".join(map(file_sha256, self._paths))


def find_pickles(folder: Path, part: str | None) -> list[Path]:
    """The python batches of a folder as CIFAR's archives have them: those of the test data, or of `part`. Empty if the
    folder has none."""
    kinds = {"test": ("test_batch", "test"), "train": ("data_batch_?", "train")}
    if not (folder / "batches.meta").is_file() and not (folder / "meta").is_file():
        return []
    if part not in (None, *kinds):
        raise UnknownName(f"part of {folder}", part, kinds)
    return [file for pattern in kinds[part or "test"] for file in sorted(folder.glob(pattern)) if file.is_file()]


class _Batch:
    """The content of one python batch."""

    def __init__(self, path: Path) -> None:
        content = _read_pickle(path)
        labels = content.get("labels", content.get("fine_labels"))
        x, fix = content.get("data"), "use a python batch of CIFAR-10 or CIFAR-100"
        if not isinstance(x, np.ndarray) or x.ndim != 2 or x.shape[1] != _PIXELS or x.dtype != np.uint8 or not len(x):
            raise DataError(path, f"it has no images of {_PIXELS} bytes", fix)
        whole = labels.tolist() if isinstance(labels, np.ndarray) else labels
        if not isinstance(whole, list) or len(whole) != len(x) or not all(type(label) is int for label in whole):
            raise DataError(path, f"it does not have a label for each of its {len(x)} images", fix)
        self.x, self.labels = x.reshape(-1, 3, 32, 32), whole
        names = content.get("filenames")
        whole_names = names if isinstance(names, list) and len(names) == len(x) else [None] * len(x)
        self.names = [_text(name) for name in whole_names]


def _read_names(folder: Path) -> list[str] | None:
    """The names of the classes, if the file that has them lies in this folder."""
    for file, key in (("batches.meta", "label_names"), ("meta", "fine_label_names")):
        if (folder / file).is_file():
            names = _read_pickle(folder / file).get(key)
            return [str(_text(name)) for name in names] if isinstance(names, list) else None
    return None


def _text(value: object) -> str | None:
    return value.decode("latin1") if isinstance(value, bytes) else value if isinstance(value, str) else None


def _read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle that has only plain values and arrays of integers. Any other pickle is refused; no
    function that a pickle names is ever looked up."""
    check_regular(path, DataError)
    try:
        check_memory(path, path.stat().st_size)
        pickled = path.read_bytes()
        _check_opcodes(pickled)
        content = _make_unpickler(pickled).load()
    except ArsError:
        raise
    except (MemoryError, RecursionError) as error:
        raise DataError(path, "it is not a batch of CIFAR", "do not use this file") from error
    except pickle.UnpicklingError as error:
        raise DataError(path, f"it cannot be used ({error})", "use a python batch of CIFAR-10 or CIFAR-100") from error
    except Exception as error:  # a broken pickle raises almost anything
        problem = f"it is not a pickle that can be read ({type(error).__name__})"
        raise DataError(path, problem, "use a python batch of CIFAR-10 or CIFAR-100") from error
    if not isinstance(content, dict):
        raise DataError(path, f"it holds a {type(content).__name__}", "use a python batch of CIFAR-10 or CIFAR-100")
    return {_text(key) or "": value.value if hasattr(value, "value") else value for key, value in content.items()}


def _check_opcodes(pickled: bytes) -> None:
    """Refuse a pickle of more objects than a batch has, or with a numbering of them that takes memory by itself."""
    for count, (opcode, argument, _) in enumerate(pickletools.genops(pickled)):
        if count > LARGEST_PICKLE or (opcode.name.endswith("PUT") and int(argument or 0) > count):
            raise pickle.UnpicklingError("it has more objects than a batch of CIFAR")


def _make_unpickler(pickled: bytes) -> pickle.Unpickler:
    """An unpickler that knows five names, and for each of them has a harmless stand-in that is made anew for every
    file, so that a pickle cannot change one for the next."""
    left = 2 * len(pickled)  # the bytes that its strings may become; a pickle can encode one string again and again

    def to_bytes(content: Any) -> bytes:
        nonlocal left
        if isinstance(content, bytes):
            return content
        if not isinstance(content, str | bytearray):
            raise pickle.UnpicklingError("an array is not made of bytes")
        left -= len(content)
        if left < 0:
            raise pickle.UnpicklingError("its arrays are larger than the file")
        return content.encode("latin1") if isinstance(content, str) else bytes(content)

    class Dtype:
        def __init__(self, name: object, *rest: object) -> None:
            if _text(name) not in ("u1", "i4", "i8"):
                raise pickle.UnpicklingError(f"an array of {_text(name)!r} is not one of integers")
            self.dtype = np.dtype(f"<{_text(name)}")

        def __setstate__(self, state: Any) -> None:
            if _text(state[1]) not in ("|", "<"):
                raise pickle.UnpicklingError("an array is not of little-endian integers")

    class Array:
        value: NDArray[Any] | None = None

        def __setstate__(self, state: Any) -> None:
            _, shape, kind, fortran, content = state
            self.fill(content, kind, shape, "F" if fortran else "C")

        def fill(self, content: Any, kind: Any, shape: Any, order: Any) -> None:
            self.value = np.frombuffer(to_bytes(content), kind.dtype).reshape(shape, order=order)

    def reconstruct(*given: object) -> Array:
        return Array()

    def from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> Array:
        made = Array()
        made.fill(content, kind, shape, order)
        return made

    def encode(text: str, encoding: object = None) -> bytes:
        return to_bytes(text)

    known: dict[tuple[str, str], Callable[..., object]] = {("_codecs", "encode"): encode, ("numpy", "dtype"): Dtype}
    known["numpy", "ndarray"] = reconstruct
    for core in ("numpy.core", "numpy._core"):
        known[f"{core}.multiarray", "_reconstruct"] = reconstruct
        known[f"{core}.numeric", "_frombuffer"] = from_buffer

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) not in known:
                raise pickle.UnpicklingError(f"it would run {module}.{name}, and nothing in it was run")
            return known[module, name]

    return Reader(io.BytesIO(pickled), encoding="bytes")
