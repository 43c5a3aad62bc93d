"""Real inputs, on which INT8 is calibrated and every precision is compared with the model."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ars.data import ImageSize, image_channels, open_data
from ars.engine.records.inputs import doubts
from ars.errors import DataError

__all__ = ["FEWEST", "Examples", "read_examples"]

FEWEST, MOST = 32, 128


@dataclass(frozen=True)
class Examples:
    x: NDArray[np.float32]
    labels: NDArray[np.int64] | None
    """None if some of the inputs have no label."""


def read_examples(
    spec: str, shape: tuple[int, ...], names: tuple[str, ...], size: ImageSize, on_doubt: Callable[[str], None]
) -> Examples:
    """Evenly spaced examples of the data, with images brought to `size`. Data that does not fit the model is an error;
    `on_doubt` is told what may be wrong with it.

    If the data names its classes, and the model has classes of these names, the labels are the model's numbers."""
    data = open_data(spec, dataclasses.replace(size, channels=image_channels(shape)))
    classes = len(names)
    numbers = {name: number for number, name in enumerate(names)}
    known = [numbers[name] for name in data.classes or () if name in numbers]
    renumbered = known if data.classes and len(known) == len(data.classes) else None
    if renumbered is None:
        for doubt in doubts(data, classes):
            on_doubt(doubt)
    if len(data) < FEWEST:
        raise DataError(spec, f"it has {len(data)} inputs", f"--calibration needs at least {FEWEST}")
    number = min(len(data), MOST)
    examples = [data[index * len(data) // number] for index in range(number)]
    for example in examples:
        if example.x.shape != shape:
            found = f"its inputs are {_sides(example.x.shape)}, but the model takes {_sides(shape)}"
            images = image_channels(shape) is not None
            fix = "calibrate on inputs of the model's shape" + (
                "; --resize and --crop fit images to it" if images else ""
            )
            raise DataError(spec, found, fix)
        if example.label is not None and not 0 <= example.label < classes:
            problem = f"it has the label {example.label}, but the model's classes are 0 to {classes - 1}"
            raise DataError(spec, problem, "calibrate on the model's own data")
    labels = [example.label for example in examples if example.label is not None]
    labels = labels if renumbered is None else [renumbered[label] for label in labels]
    x = np.stack([example.x for example in examples])
    return Examples(x, np.array(labels) if len(labels) == len(x) else None)


def _sides(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
