"""Training data in batches, in an order that seed and epoch decide, with the usual crops and flips."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ars.data import Dataset
from ars.errors import DataError

__all__ = ["Augmentation", "Images", "read_images"]


@dataclass(frozen=True)
class Augmentation:
    """A random shift by up to `shift` pixels (the border is zero), and a flip of half of the images."""

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

    def spread(self, most: int) -> "Images":
        """At most so many of them, spread evenly."""
        number = min(len(self), most)
        rows = torch.arange(number) * len(self) // number
        return Images(self.x[rows], self.labels[rows])

    def pixel_statistics(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The mean and the deviation of each channel."""
        axes = (0, *range(2, self.x.ndim))
        pixels = self.x.numpy()  # whose sums do not depend on the number of threads
        deviation = np.maximum(pixels.std(axes, dtype=np.float64), 1e-3)
        return tuple(pixels.mean(axes, dtype=np.float64).tolist()), tuple(deviation.tolist())

    def batches(
        self, size: int, augmentation: Augmentation, generator: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """All whole batches of one epoch, in a random order."""
        order = torch.randperm(len(self), generator=generator)
        for rows in order[: len(self) // size * size].split(size):
            yield augmentation(self.x[rows], generator), self.labels[rows]


def read_images(data: Dataset, most: int | None = None) -> Images:
    """The data, or `most` examples spread evenly over it (a folder is in the order of its classes), as tensors."""
    number = min(len(data), most or len(data))
    examples = [data[index * len(data) // number] for index in range(number)]
    shapes = {example.x.shape for example in examples}
    if len(shapes) > 1:
        first, second, *_ = sorted(shapes)
        raise DataError(
            data.name, f"it has images of {first} and of {second}", "bring them to one size: --resize, --crop"
        )
    if any(example.label is None for example in examples):
        raise DataError(data.name, "it has no labels", "training needs them: an array y, or folders by class")
    labels = torch.tensor([example.label for example in examples])
    if len(labels.unique()) < 2:
        raise DataError(data.name, "all of its images are of one class", "training needs at least two")
    return Images(torch.from_numpy(np.stack([example.x for example in examples])), labels)
