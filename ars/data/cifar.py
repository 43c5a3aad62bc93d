"""CIFAR-10's binary batches: records of one label byte and 3072 pixel bytes."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import Example
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import DataError

__all__ = ["CIFAR10_CLASSES", "CifarBatch"]

CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_RECORD = 1 + 3 * 32 * 32


class CifarBatch:
    """One batch file, or several in sequence."""

    def __init__(self, *paths: Path) -> None:
        self.name = paths[0].name if len(paths) == 1 else paths[0].parent.name
        self.classes: list[str] | None = CIFAR10_CLASSES
        self._paths = paths
        self._records = np.concatenate([_read_batch(path) for path in paths])

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Example:
        record = self._records[index]
        return Example(to_pixels(record[1:].reshape(3, 32, 32), self._paths[0]), int(record[0]))

    def fingerprint(self) -> str:
        return "".join(map(file_sha256, self._paths))


def _read_batch(path: Path) -> NDArray[np.uint8]:
    data = np.fromfile(path, np.uint8)
    if data.size == 0 or data.size % _RECORD:
        raise DataError(
            path, f"its {data.size} bytes are not a multiple of the record size, {_RECORD}", "download it again"
        )
    records = data.reshape(-1, _RECORD)
    if records[:, 0].max() > 9:
        raise DataError(path, f"it has the label {records[:, 0].max()}", "use a binary batch of CIFAR-10")
    return records
