"""The training and validation data of a run, checked before training starts."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from ars.data import Dataset, ImageSize
from ars.data.images import ImageFolder
from ars.data.splits import open_splits
from ars.errors import ArgumentError, DataError
from ars.train.batches import CroppedImages, Images, read_images

__all__ = ["TrainingData", "open_training_data"]

# The number of validation images.
VALIDATION = 500


@dataclass(frozen=True)
class TrainingData:
    """Images to train on, images to validate with, and the names of the classes."""

    images: Images | CroppedImages
    validation: Images
    classes: tuple[str, ...]
    fingerprint: str
    """A hash of the data. A run can be resumed only with the data that it started with."""


def open_training_data(
    spec: str, size: ImageSize, most: int | None = None, random_crop: int | None = None
) -> TrainingData:
    """Open the data that `spec` names (see `open_splits`), with at most `most` training images. They are read into
    memory, or, with `random_crop`, from disk in each epoch."""
    whole = size if random_crop is None else _whole_images(size, random_crop)
    training, test = open_splits(spec, size)
    if random_crop is None:
        images: Images | CroppedImages = read_images(training, most)
    elif isinstance(training, ImageFolder) and isinstance(test, ImageFolder):
        training, test = training.brought_to(whole), test.brought_to(whole)
        images = CroppedImages(training, random_crop, most)
    else:
        fix = "give a folder with the folders train and val, or omit it"
        raise ArgumentError("random-crop", random_crop, f"it needs image files; {fix}")
    if len(images.shape) != 3:
        problem = f"its inputs have the shape {images.shape}"
        raise DataError(training.name, problem, "images must have the shape channels x height x width")
    validation = read_images(test, VALIDATION)
    if images.shape != validation.shape:
        problem = f"its images have the shape {validation.shape}, but the training images have {images.shape}"
        raise DataError(test.name, problem, "use --resize and --crop to give all images one size")
    classes = _class_names(training, images.labels)
    if test.classes is not None and test.classes != list(classes):
        odd = sorted(set(test.classes) ^ set(classes))
        problem = f"only one of {test.name} and {training.name} has the class {odd[0]!r}"
        raise DataError(test.name, problem, "use the same classes for both")
    for source, labels in ((training, images.labels), (test, validation.labels)):
        _check_labels(source, labels, classes)
    if len(images.labels.unique()) < 2:
        raise DataError(training.name, "all of its images belong to one class", "training needs at least two classes")
    parts = f"{training.fingerprint()} {test.fingerprint()} {most} {random_crop}"
    return TrainingData(images, validation, classes, hashlib.sha256(parts.encode()).hexdigest())


def _whole_images(size: ImageSize, random_crop: int) -> ImageSize:
    """The size of the validation images for training on random crops: a centre crop of the usual size, in colour."""
    if size.crop not in (None, random_crop):
        raise ArgumentError("crop", size.crop, f"it must equal --random-crop {random_crop}, or be omitted")
    resize = size.resize or round(random_crop * 8 / 7)
    if resize < random_crop:
        raise ArgumentError("resize", resize, f"it must be at least --random-crop {random_crop}")
    return ImageSize(resize, random_crop, channels=3)


def _class_names(data: Dataset, labels: Tensor) -> tuple[str, ...]:
    if data.classes is not None:
        return tuple(data.classes)
    number = int(labels.max()) + 1
    if number > len(data):
        problem = f"it has the label {number - 1}, but only {len(data)} images"
        raise DataError(data.name, problem, "number the classes from 0")
    return tuple(str(label) for label in range(number))


def _check_labels(data: Dataset, labels: Tensor, classes: Sequence[str]) -> None:
    for label in (int(labels.min()), int(labels.max())):
        if not 0 <= label < len(classes):
            problem = f"it has the label {label}, but the training classes are numbered 0 to {len(classes) - 1}"
            raise DataError(data.name, problem, "number the classes from 0, in training and test data alike")
