"""CIFAR-10's binary batches: records of one label byte and 3072 pixel bytes."""

from pathlib import Path

import numpy as np

from ars.data import Example
from ars.data.pixels import file_sha256, to_pixels
from ars.errors import DataError

__all__ = ["CIFAR10_CLASSES", "CifarBatch"]

CIFAR10_CLASSES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]
_RECORD = 1 + 3 * 32 * 32


class CifarBatch:
    def __init__(self, path: Path) -> None:
        self.name = path.name
        self.classes: list[str] | None = CIFAR10_CLASSES
        self._path = path
        data = np.fromfile(path, np.uint8)
        if data.size == 0 or data.size % _RECORD:
            raise DataError(path, f"its {data.size} bytes are not whole records of {_RECORD}", "fetch it again")
        self._records = data.reshape(-1, _RECORD)
        if self._records[:, 0].max() > 9:
            raise DataError(path, f"it has the label {self._records[:, 0].max()}", "give a binary batch of CIFAR-10")

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: int) -> Example:
        record = self._records[index]
        return Example(to_pixels(record[1:].reshape(3, 32, 32), self._path), int(record[0]))

    def fingerprint(self) -> str:
        return file_sha256(self._path)
