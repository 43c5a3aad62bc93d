"""Parquet files of images as the Hugging Face hub has them."""

import hashlib
import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ars.data import PIXELS, Example, ImageSize
from ars.data.decode import read_image
from ars.data.labels import number_labels
from ars.data.memory import check_memory
from ars.data.pixels import file_sha256
from ars.errors import DataError, MissingPackage, one_line
from ars.regular import check_regular

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingPackage("pyarrow", "parquet") from error

__all__ = ["ParquetImages", "find_shards"]

_LABELS = ("label", "labels", "fine_label", "class", "target", "y")
BYTES_PER_LABEL = 64
"""What a label takes as a number of Python's, about."""


class ParquetImages:
    """Rows with an encoded image and, optionally, a label; several files are read in sequence."""

    span = PIXELS

    def __init__(self, paths: list[Path], size: ImageSize, classes_file: Path | None = None) -> None:
        self.name = paths[0].name if len(paths) == 1 else paths[0].parent.name
        self._paths, self._size = paths, size
        first = _open(paths[0])
        schema = first.schema_arrow
        self._image = _find_images(paths[0], schema)
        label = _find_labels(paths[0], schema)
        # A value that repeats takes no space in a file, and so it does not in memory if it is kept as a dictionary.
        leaves = [first.schema.column(number) for number in range(len(first.schema))]
        repeating = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        files = [(path, _open(path, repeating)) for path in paths]
        self._groups = [
            (path, file, group, file.metadata.row_group(group).num_rows)
            for path, file in files
            for group in range(file.metadata.num_row_groups)
        ]
        self._loaded: tuple[int, Any] | None = None
        self._labels: list[int] | None = None
        self.classes: list[str] | None = None
        for path, file in files:
            needed = file.metadata.num_rows * BYTES_PER_LABEL
            check_memory(path, needed, "its list of rows", packed=path.stat().st_size)
        if label is not None:
            read = [value for path, file in files for value in _list_texts(_read(path, file.read, [label]))]
            self._labels, self.classes = number_labels(read, classes_file, paths[0])
            self.classes = self.classes or _read_names(schema, label)

    def __len__(self) -> int:
        return sum(rows for *_, rows in self._groups)

    def __getitem__(self, index: int) -> Example:
        cell = self._cell(index)
        content, path = (cell.get("bytes"), cell.get("path")) if isinstance(cell, dict) else (cell, None)
        name = f"{self._paths[0]}, input {index}"
        if content is None:
            raise DataError(name, "its row has no image inside", "embed the images in the parquet file")
        label = None if self._labels is None else self._labels[index]
        return Example(read_image(io.BytesIO(content), self._size, name), label, path)

    def _cell(self, index: int) -> Any:
        """The image of a row. Its whole group of rows is read, and kept for the rows that follow."""
        row = index
        for number, (path, file, group, rows) in enumerate(self._groups):
            if row < rows:
                if self._loaded is None or self._loaded[0] != number:
                    size = file.metadata.row_group(group).total_byte_size
                    check_memory(path, size, f"its group of rows {group}", packed=path.stat().st_size)
                    self._loaded = number, _read(path, file.read_row_group, group, [self._image])
                with _refusing(path):  # the group may have fewer rows than it declares
                    return self._loaded[1][row].as_py()
            row -= rows
        raise IndexError(index)

    def fingerprint(self) -> str:
        hashes = " ".join(map(file_sha256, self._paths))
        return hashlib.sha256(f"{self._size} {self.classes} {hashes}".encode()).hexdigest()


def find_shards(folder: Path, part: str | None) -> list[Path]:
    """The parquet files of one split in a folder, or in its folder data: those of `part`, or else of the test split."""
    files = sorted(folder.glob("*.parquet")) or sorted((folder / "data").glob("*.parquet"))
    splits: dict[str, list[Path]] = {}
    for file in files:
        splits.setdefault(re.sub(r"-\d+-of-\d+$", "", file.stem), []).append(file)
    wanted = [part] if part else [*splits] if len(splits) == 1 else ["test", "validation", "valid", "val"]
    for name in wanted:
        if name in splits:
            return splits[name]
    raise DataError(folder, f"it has the splits {', '.join(splits)}", f"choose one, like {folder}:{next(iter(splits))}")


def _open(path: Path, repeating: Sequence[str] = ()) -> parquet.ParquetFile:
    """A file, of which these columns are read as dictionaries."""
    with _refusing(path):
        return parquet.ParquetFile(path, read_dictionary=list(repeating))


def _read(path: Path, read: Callable[..., Any], *what: Any) -> Any:
    """The only column of what a function of pyarrow reads."""
    with _refusing(path):
        return read(*what).column(0)


@contextmanager
def _refusing(path: Path) -> Iterator[None]:
    check_regular(path, DataError)
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # Arrow's errors are subclasses of many others
        raise DataError(path, f"it cannot be read ({one_line(error)})", "download it again") from error


def _list_texts(column: Any) -> Iterator[str]:
    """The values of a column as text. A text that repeats is made only once."""
    for chunk in column.chunks:
        if pyarrow.types.is_dictionary(chunk.type):
            texts = [str(text) for text in chunk.dictionary.to_pylist()]
            yield from (str(None) if place is None else texts[place] for place in chunk.indices.to_pylist())
        else:
            yield from map(str, chunk.to_pylist())


def _find_images(path: Path, schema: Any) -> str:
    """The column of encoded images: bytes, or the hub's structure with bytes inside."""

    def holds_bytes(kind: Any) -> bool:
        if pyarrow.types.is_struct(kind):
            return any(field.name == "bytes" for field in kind)
        return bool(pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind))

    found = [field.name for field in schema if holds_bytes(field.type)]
    if len(found) == 1:
        return str(found[0])
    columns = ", ".join(schema.names)
    if not found:
        fix = "use a data set of encoded images; features go into an .npz"
        raise DataError(path, f"it has no column of images, only {columns}", fix)
    raise DataError(path, f"it has several columns of images, {', '.join(found)}", "keep one of them")


def _find_labels(path: Path, schema: Any) -> str | None:
    """The column of labels: the one with a usual name, or the only one of integers or text; None if there is none."""
    usual = [name for name in _LABELS if name in schema.names]
    if usual:
        return usual[0]
    types = pyarrow.types
    found = [f.name for f in schema if types.is_integer(f.type) or types.is_string(f.type)]
    if len(found) > 1:
        raise DataError(path, f"it has no column label, but {', '.join(found)}", "rename the column of labels to label")
    return str(found[0]) if found else None


def _read_names(schema: Any, label: str) -> list[str] | None:
    """The names of the classes as the hub writes them into the file, if it has any."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        return [str(name) for name in features[label]["names"]]
    except (KeyError, TypeError, ValueError):
        return None
