"""Decode PNG and JPEG images, and bring them to one size."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from ars.data import ImageSize
from ars.data.pixels import to_pixels
from ars.errors import DataError, one_line

__all__ = ["IMAGE_SUFFIXES", "Box", "cut_image", "read_image"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg")
FORMATS = ("PNG", "JPEG")
LARGEST_IMAGE = 2**26
"""The most pixels of an image, before and after it is resized."""

Box = tuple[int, int, int, int]
"""(left, top, right, bottom), in pixels."""


def read_image(file: Path | BinaryIO, size: ImageSize, name: Path | str) -> NDArray[np.float32]:
    """An image, brought to this size. Errors name it `name`."""
    with warnings.catch_warnings(action="ignore"):
        return _decode(file, size.channels, lambda image: _fit(image, size), name)


def cut_image(file: Path, box: Callable[[int, int], Box], side: int) -> NDArray[np.float32]:
    """The part of an image inside box(width, height), in colour, resized to side x side pixels. Thread-safe."""

    def cut(image: Image.Image) -> Image.Image:
        return image.resize((side, side), Image.Resampling.BILINEAR, box=box(*image.size))

    return _decode(file, 3, cut, file)


def _decode(
    file: Path | BinaryIO, channels: int | None, fit: Callable[[Image.Image], Image.Image], name: Path | str
) -> NDArray[np.float32]:
    fix = "replace it, or use --on-error skip with ars-engine"
    try:
        # By its content, whatever its name: some of the other formats that Pillow reads start programs.
        with Image.open(file, formats=FORMATS) as opened:
            if opened.width * opened.height > LARGEST_IMAGE:
                raise ValueError(f"it has {opened.width} x {opened.height} pixels, more than {LARGEST_IMAGE:,}")
            if opened.mode.startswith(("I", "F")):
                raise ValueError(f"its mode is {opened.mode}, but only 8 bits per channel are supported")
            gray = channels == 1 or (channels is None and opened.mode in ("L", "LA", "1"))
            values = np.asarray(fit(opened.convert("L" if gray else "RGB")))
    except UnidentifiedImageError as error:
        raise DataError(name, "it is neither a PNG nor a JPEG image", fix) from error
    except MemoryError:
        raise
    except Exception as error:  # the readers of damaged images raise almost anything
        raise DataError(name, f"it cannot be used ({one_line(error)})", fix) from error
    return to_pixels(values[np.newaxis] if values.ndim == 2 else values.transpose(2, 0, 1), name)


def _fit(image: Image.Image, size: ImageSize) -> Image.Image:
    if size.resize:
        shorter = min(image.size)
        width, height = (round(side * size.resize / shorter) for side in image.size)
        if width * height > LARGEST_IMAGE:
            found = f"its {image.width} x {image.height} pixels would become {width} x {height}"
            raise ValueError(f"{found}, more than {LARGEST_IMAGE:,}")
        image = image.resize((width, height), Image.Resampling.BILINEAR)
    if size.crop:
        if min(image.size) < size.crop:
            raise ValueError(f"its {image.width} x {image.height} pixels are smaller than the crop of {size.crop}")
        left, top = (image.width - size.crop) // 2, (image.height - size.crop) // 2
        image = image.crop((left, top, left + size.crop, top + size.crop))
    return image
