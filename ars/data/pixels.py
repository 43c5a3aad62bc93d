"""From stored values to pixel units, and the hash of a file."""

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.errors import DataError

__all__ = ["file_sha256", "to_pixels"]


def to_pixels(values: NDArray[np.generic], path: Path) -> NDArray[np.float32]:
    """Integers in 0..255 become numbers in [0, 1]; floats stay what they are."""
    if values.dtype == np.uint8:
        return values.astype(np.float32) / np.float32(255)
    if np.issubdtype(values.dtype, np.integer):
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 255:
            raise DataError(path, f"it has integer pixels from {low} to {high}", "integers must lie in 0..255")
        return values.astype(np.float32) / np.float32(255)
    if not np.issubdtype(values.dtype, np.floating):
        raise DataError(path, f"its pixels are of type {values.dtype}", "store integers in 0..255 or floats")
    if not np.isfinite(values).all():
        raise DataError(path, "it has pixels that are not finite", "clean the data")
    return values.astype(np.float32)


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
