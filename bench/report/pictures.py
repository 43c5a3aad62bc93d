"""Images and maps as small pictures inside the page, as data addresses."""

import base64
import io
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = [
    "MapPictures",
    "map_pictures",
    "photograph",
    "picture_address",
    "region_picture",
]

Pixels = NDArray[np.uint8]

THUMBNAIL = 128
"""The most pixels on the shorter side of a picture."""

# Anchors of two colour maps that keep their order in grey and for colour-blind eyes: viridis, and blue to red by white.
SEQUENTIAL = np.array([(68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37)], np.float32)
DIVERGING = np.array([(5, 48, 97), (67, 147, 195), (247, 247, 247), (214, 96, 77), (103, 0, 31)], np.float32)


def photograph(x: NDArray[np.float32], of: NDArray[np.float32] | None = None) -> Pixels:
    """An input, channels first, as a picture. A vector becomes bars from 0, or the outline of a long signal, and a
    signal of several channels one such row for each. White is 1 and black is 0; if the input (or `of`, the input that
    this is a noisy copy of) has values outside, these are its largest and its smallest value."""
    clean = x if of is None else of
    low, high = min(0.0, float(clean.min())), max(1.0, float(clean.max()))
    if x.ndim == 1:
        return _bars(x, low, high)
    if x.ndim == 2 and x.shape[0] <= CHANNELS and x.shape[1] >= 4 * x.shape[0]:
        return _channels(x, low, high)
    x = (x - low) / (high - low)
    if x.ndim == 3 and x.shape[0] == 3:
        return _bytes(x.transpose(1, 2, 0))
    return _bytes(np.repeat(_plane(x)[..., None], 3, axis=2))


BARS, HEIGHT = 240, 96
CHANNELS = 12
"""The most rows of a long table of numbers that are drawn as the channels of a signal."""


def _channels(x: NDArray[np.float32], low: float, high: float) -> Pixels:
    height = THUMBNAIL // len(x) - 1
    rows = [_bars(row, low, high, height) for row in x]
    gap = np.full((1, *rows[0].shape[1:]), 160, np.uint8)
    return np.concatenate([part for row in rows for part in (gap, row)][1:])


def _bars(x: NDArray[np.float32], low: float, high: float, height: int = HEIGHT) -> Pixels:
    """A vector as bars from 0 to its values. A bar of a long vector spans several values."""
    pieces = np.array_split(x, min(x.size, BARS))
    rows = np.linspace(high, low, height)[:, np.newaxis]
    top = np.array([max(0.0, float(piece.max())) for piece in pieces])
    bottom = np.array([min(0.0, float(piece.min())) for piece in pieces])
    filled = (rows <= top) & (rows >= bottom)
    wide = np.repeat(filled, max(1, BARS // len(pieces)), axis=1)
    return np.repeat(np.where(wide, 60, 245)[..., np.newaxis], 3, axis=2).astype(np.uint8)


@dataclass(frozen=True)
class MapPictures:
    """The noise maps of an input in colour, channels averaged, and the values at the ends of the colours."""

    mean: Pixels
    bound: float
    """The colours of the mean map go from -bound to bound."""
    scale: Pixels
    low: float
    high: float


def map_pictures(mean: NDArray[np.float32], scale: NDArray[np.float32]) -> MapPictures:
    mean, scale = _plane(mean), _plane(scale)
    bound, low, high = float(abs(mean).max()), float(scale.min()), float(scale.max())
    return MapPictures(_color(mean, -bound, bound, DIVERGING), bound, _color(scale, low, high, SEQUENTIAL), low, high)


def region_picture(scale: NDArray[np.float32]) -> tuple[Pixels, float, float]:
    """The shape of a certified region in colour, and the values at the ends of the colours: for each pixel its scale,
    the smallest one over the channels. The pixel may move by less than K times this, if no other moves."""
    plane = _plane(scale.min(axis=0) if scale.ndim == 3 else scale)
    low, high = float(scale.min()), float(plane.max())
    return _color(plane, low, high, SEQUENTIAL), low, high


def _color(values: NDArray[np.float32], low: float, high: float, anchors: NDArray[np.float32]) -> Pixels:
    positions = (values - low) / max(high - low, 1e-12) * (len(anchors) - 1)
    steps = np.arange(len(anchors))
    return np.stack([np.interp(positions, steps, anchors[:, c]) for c in range(3)], axis=-1).astype(np.uint8)


def _plane(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The values as height x width: the mean over the channels, or, for inputs that are no images, a near-square."""
    if x.ndim == 3:
        return np.asarray(x.mean(axis=0), np.float32)
    if x.ndim == 2:
        return x
    side = int(np.ceil(np.sqrt(x.size)))
    return np.pad(x.ravel(), (0, side * side - x.size)).reshape(side, side)


def picture_address(pixels: Pixels) -> str:
    """A picture as a data address. Small ones keep every pixel. Of large ones, every second or third pixel and so on is
    kept, so that noise still looks like noise, and WebP makes them small: they are shown in the size of a thumbnail."""
    file = io.BytesIO()
    step = -(-min(pixels.shape[:2]) // THUMBNAIL)
    if step == 1:
        Image.fromarray(pixels).save(file, "PNG", optimize=True)
        return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode()
    Image.fromarray(np.ascontiguousarray(pixels[::step, ::step])).save(file, "WEBP", quality=70)
    return "data:image/webp;base64," + base64.b64encode(file.getvalue()).decode()


def _bytes(x: NDArray[np.float32]) -> Pixels:
    return np.round(np.clip(x, 0, 1) * 255).astype(np.uint8)
