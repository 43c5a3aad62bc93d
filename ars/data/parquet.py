"""Parquet files of images as the Hugging Face hub has them."""

import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

from ars.data import PIXELS, Example, ImageSize
from ars.data.decode import read_image
from ars.data.labels import number_labels
from ars.data.pixels import file_sha256
from ars.errors import DataError, MissingPackage

try:
    import pyarrow
    from pyarrow import parquet
except ImportError as error:
    raise MissingPackage("pyarrow", "parquet") from error

__all__ = ["ParquetImages", "find_shards"]

_LABELS = ("label", "labels", "fine_label", "class", "target", "y")


class ParquetImages:
    """Rows with an encoded image and, optionally, a label; several files are read in sequence."""

    span = PIXELS

    def __init__(self, paths: list[Path], size: ImageSize, classes_file: Path | None = None) -> None:
        self.name = paths[0].name if len(paths) == 1 else paths[0].parent.name
        self._paths, self._size = paths, size
        self._files = [_open(path) for path in paths]
        schema = self._files[0].schema_arrow
        self._image = _find_images(paths[0], schema)
        label = _find_labels(paths[0], schema)
        self._labels: list[int] | None = None
        self.classes: list[str] | None = None
        if label is not None:
            read = [str(value) for file in self._files for value in file.read([label])[label].to_pylist()]
            self._labels, self.classes = number_labels(read, classes_file, paths[0])
            self.classes = self.classes or _read_names(schema, label)
        self._groups = [
            (file, group, file.metadata.row_group(group).num_rows)
            for file in self._files
            for group in range(file.metadata.num_row_groups)
        ]
        self._loaded: tuple[int, list[Any]] | None = None

    def __len__(self) -> int:
        return sum(rows for _, _, rows in self._groups)

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
        for number, (file, group, rows) in enumerate(self._groups):
            if row < rows:
                if self._loaded is None or self._loaded[0] != number:
                    self._loaded = number, file.read_row_group(group, [self._image])[self._image].to_pylist()
                return self._loaded[1][row]
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


def _open(path: Path) -> parquet.ParquetFile:
    try:
        return parquet.ParquetFile(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise DataError(path, f"it cannot be read ({error})", "download it again") from error


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
        raise DataError(path, f"it has no column of images, only {columns}", "use a data set of encoded images")
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
