"""Training data in batches, shuffled and augmented (crops and flips) by a generator that seed and epoch determine. The
images are in memory, or, where they do not fit, on disk."""

import math
from collections import deque
from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ars.data import Dataset
from ars.data.images import ImageFolder
from ars.errors import DataError

__all__ = ["Augmentation", "CroppedImages", "Images", "random_box", "read_images"]

# Threads that read images from disk, and the number of batches that they read ahead.
READERS = 4
AHEAD = 2


@dataclass(frozen=True)
class Augmentation:
    """A random shift by up to `shift` pixels, with zeros at the border, and a mirror image of half of the images."""

    shift: int = 0
    flip: bool = False

    def __call__(self, x: Tensor, generator: torch.Generator) -> Tensor:
        if self.flip:
            turned = torch.rand(len(x), generator=generator) < 0.5
            x = torch.where(turned.reshape(-1, 1, 1, 1), x.flip(-1), x)
        if self.shift:
            height, width = x.shape[-2:]
            padded = torch.nn.functional.pad(x, [self.shift] * 4)
            top, left = torch.randint(0, 2 * self.shift + 1, (2, len(x)), generator=generator)
            rows = (top[:, None] + torch.arange(height))[:, None, :, None]
            columns = (left[:, None] + torch.arange(width))[:, None, None, :]
            images, channels = torch.arange(len(x))[:, None, None, None], torch.arange(x.shape[1])[None, :, None, None]
            x = padded[images, channels, rows, columns]
        return x


@dataclass(frozen=True)
class Images:
    """A data set in memory."""

    x: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.x)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return tuple(self.x.shape[1:])

    def spread(self, most: int) -> "Images":
        """At most `most` of the images, evenly spaced."""
        rows = spread(len(self), most)
        return Images(self.x[rows], self.labels[rows])

    def pixel_statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the standard deviation of each channel."""
        axes = (0, *range(2, self.x.ndim))
        pixels = self.x.numpy()  # numpy's sums do not depend on the number of threads
        deviation = np.maximum(pixels.std(axes, dtype=np.float64), 1e-3)
        return tuple(pixels.mean(axes, dtype=np.float64).tolist()), tuple(deviation.tolist())

    def batches(
        self, size: int, augmentation: Augmentation, generator: torch.Generator, part: slice
    ) -> Generator[tuple[Tensor, Tensor]]:
        """The full batches of one epoch, in random order; of each batch, only the images in `part`."""
        order = torch.randperm(len(self), generator=generator)
        for rows in order[: len(self) // size * size].split(size):
            yield augmentation(self.x[rows], generator)[part], self.labels[rows][part]


class CroppedImages:
    """A folder of images that stays on disk. In each epoch a new random crop of each image is read and resized to
    side x side pixels.

    Threads read ahead while the model computes. The crop of an image depends only on that image's own random number,
    so the number of threads does not change the result.
    """

    def __init__(self, folder: ImageFolder, side: int, most: int | None = None) -> None:
        """Use at most `most` of the folder's images, evenly spaced."""
        self.shape = (3, side, side)
        self._folder, self._side = folder, side
        self._rows = spread(len(folder), most)
        self.labels = torch.tensor(folder.labels)[self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def pixel_statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the standard deviation of each channel, over the centre crops of 1,000 images."""
        return read_images(self._folder, 1000).pixel_statistics()

    def batches(
        self, size: int, augmentation: Augmentation, generator: torch.Generator, part: slice
    ) -> Generator[tuple[Tensor, Tensor]]:
        """The full batches of one epoch, in random order; of each batch, only the images in `part` are read. The
        augmentation's shift is ignored, because the random crop already moves the image."""
        order = torch.randperm(len(self), generator=generator)
        seeds = torch.randint(2**62, (len(self),), generator=generator)
        pool = ThreadPoolExecutor(READERS)

        def start(first: int) -> tuple[list[Future[NDArray[np.float32]]], Tensor]:
            chosen = order[first : first + size][part]
            numbers = zip(self._rows[chosen].tolist(), seeds[chosen].tolist(), strict=True)
            return [pool.submit(self._read, row, seed, augmentation.flip) for row, seed in numbers], self.labels[chosen]

        try:
            starts = range(0, len(self) // size * size, size)
            under_way = deque(map(start, starts[:AHEAD]))
            for number in range(len(starts)):
                images, labels = under_way.popleft()
                under_way.extend(map(start, starts[number + AHEAD : number + AHEAD + 1]))
                yield torch.from_numpy(np.stack([image.result() for image in images])), labels
        finally:
            pool.shutdown(cancel_futures=True)

    def _read(self, row: int, seed: int, flip: bool) -> NDArray[np.float32]:
        random = Random(seed)
        image = self._folder.read_part(row, lambda width, height: random_box(width, height, random), self._side)
        return image[..., ::-1] if flip and random.random() < 0.5 else image


def random_box(width: int, height: int, random: Random) -> tuple[int, int, int, int]:
    """The usual random crop (Szegedy et al., 2015) as (left, top, right, bottom): 8 to 100 % of the image's area, with
    an aspect ratio between 3 : 4 and 4 : 3. If ten random boxes do not fit into the image, its central square."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1)
        ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = random.randint(0, width - w), random.randint(0, height - h)
            return left, top, left + w, top + h
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return left, top, left + side, top + side


def spread(total: int, most: int | None) -> Tensor:
    """The indices of at most `most` examples, evenly spaced, so that all classes occur: folders are sorted by class."""
    number = min(total, most or total)
    return torch.arange(number) * total // number


def read_images(data: Dataset, most: int | None = None) -> Images:
    """All examples of the data as tensors, or `most` of them, evenly spaced."""
    examples = [data[index] for index in spread(len(data), most).tolist()]
    shapes = sorted({example.x.shape for example in examples})
    if len(shapes) > 1:
        sizes = f"it has images of {shapes[0]} and of {shapes[1]}"
        if len({shape[1:] for shape in shapes}) == 1:
            raise DataError(data.name, f"{sizes}: some are gray and some in colour", "convert all of them to one kind")
        raise DataError(data.name, sizes, "use --resize and --crop to give all images one size")
    if any(example.label is None for example in examples):
        raise DataError(
            data.name, "it has no labels", "training needs labels: add an array y, or use a folder for each class"
        )
    labels = torch.tensor([example.label for example in examples])
    return Images(torch.from_numpy(np.stack([example.x for example in examples])), labels)
