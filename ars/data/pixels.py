"""Convert stored values to pixel units, check the names of files, and hash files."""

import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data.memory import LARGEST_INPUT
from ars.errors import DataError

__all__ = ["check_name", "file_sha256", "to_pixels"]


def to_pixels(values: NDArray[np.generic], path: Path | str) -> NDArray[np.float32]:
    """Map integers in 0..255 to [0, 1]; floats are kept as they are. Errors name `path`."""
    if values.size == 0:
        raise DataError(path, f"its shape {values.shape} has no pixels", "use images")
    if values.size > LARGEST_INPUT:
        problem = f"its shape {values.shape} has {values.size:,} values"
        raise DataError(path, problem, f"an input may have at most {LARGEST_INPUT:,}")
    if values.dtype == np.uint8:
        return _scaled(values)
    if np.issubdtype(values.dtype, np.integer):
        low, high = int(values.min()), int(values.max())
        if low < 0 or high > 255:
            raise DataError(path, f"it has integer pixels from {low} to {high}", "integers must be in 0..255")
        return _scaled(values)
    if not np.issubdtype(values.dtype, np.floating):
        raise DataError(path, f"its pixels are of type {values.dtype}", "store integers in 0..255 or floats")
    with np.errstate(over="ignore"):
        pixels = values.astype(np.float32)
    if not np.isfinite(pixels).all():
        raise DataError(path, "it has pixels that are not finite", "remove them from the data")
    return pixels


def _scaled(values: NDArray[np.generic]) -> NDArray[np.float32]:
    pixels = values.astype(np.float32)
    pixels /= np.float32(255)  # in place, so that a large image is held only once
    return pixels


def check_name(path: Path) -> None:
    """Refuse a name that is not UTF-8: it could neither be stored nor printed."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        shown = os.fsencode(path).decode("utf-8", "backslashreplace")
        raise DataError(shown, "its name is not UTF-8", "rename it") from None


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
