"""The inputs that users hand over in memory: arrays, tensors, pairs, a Dataset or a DataLoader of torch."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.checks import whole_number
from ars.errors import ArgumentError, DataError
from ars.tensors import as_array, is_loader, is_tensor

__all__ = ["Example", "Examples", "FromData", "read_examples"]

Examples: TypeAlias = Iterable[Any]
"""Inputs: the rows of an array or a tensor; a pair of such inputs and their labels; an iterable of inputs, of pairs
(x, label), or of pairs (number, x); a Dataset or a DataLoader of torch."""


@dataclass(frozen=True)
class FromData:
    """Numbered inputs of a data source, whose unit the user has been told."""

    numbered: Iterable[tuple[int, NDArray[np.float32]]]

    def __iter__(self) -> Iterator[tuple[int, NDArray[np.float32]]]:
        return iter(self.numbered)


class Example(NamedTuple):
    input_id: int
    x: NDArray[Any]
    label: int | None
    numbered: bool = False
    """Whether the number was given with the input."""


def read_examples(examples: Examples, axes: int | None) -> Iterator[Example]:
    """The inputs one by one. Those without a number of their own are numbered from 0 on.

    `axes` is the number of axes of one input, if it is known already: then a single input is told from a batch.
    """
    given: Any = examples
    if isinstance(given, str | Path):
        requirement = "it must be inputs in memory; the data at a path is for ars.certify_run"
        raise ArgumentError("examples", given, requirement)
    if isinstance(given, dict) or not (hasattr(given, "__iter__") or hasattr(given, "__getitem__")):
        requirement = "it must be an array, a tensor, pairs of (x, label), a Dataset or a DataLoader"
        raise ArgumentError("examples", type(given).__name__, requirement)
    if is_loader(given):
        batched = given.batch_size is not None or given.batch_sampler is not None
        given = itertools.chain.from_iterable(map(_divide, given)) if batched else given
    elif _is_array(given):
        given = as_array(given)
        if given.ndim < 2 or given.ndim == axes:
            problem = f"its shape {given.shape} is that of one input"
            raise DataError("the array", problem, "give one input to certify or predict, or a batch of them here")
    elif (pair := _inputs_and_labels(given)) is not None:
        given = zip(*pair, strict=True)
    elif hasattr(given, "__getitem__") and hasattr(given, "__len__"):
        # A map-style Dataset need not raise the IndexError at its end that iter() waits for.
        given = map(given.__getitem__, range(len(given)))
    for position, example in enumerate(given):
        yield _read_one(position, example)


def _inputs_and_labels(given: Any) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """The parts of a pair (X, Y) of inputs and their labels; None for others, like two inputs of as many axes."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not _is_array(given[0]):
        return None
    inputs, labels = map(as_array, given)
    if labels.ndim >= inputs.ndim:
        return None
    if not labels.ndim:
        fix = "give a list of such pairs, or the input alone to certify or predict"
        raise DataError("the examples", "they are one pair (x, label)", fix)
    if len(inputs) != len(labels):
        problem = f"they are a pair of {len(inputs)} inputs and {len(labels)} labels"
        raise DataError("the examples", problem, "give one label for each input")
    if labels.shape[1:] == (1,):  # a column, as Keras has them
        labels = labels[:, 0]
    if labels.ndim != 1:
        fix = "give one class number for each input, like Y.argmax(1) of one-hot labels"
        raise DataError("the labels", f"they have the shape {labels.shape}", fix)
    return inputs, labels


def _read_one(position: int, example: Any) -> Example:
    if _is_pair(example) and len(example) == 1:  # as a TensorDataset without labels gives them
        return Example(position, as_array(example[0]), None)
    if _is_pair(example) and len(example) == 2:
        first, second = example
        if isinstance(first, int | np.integer) and not isinstance(first, bool):
            return Example(int(first), as_array(second), None, numbered=True)
        return Example(position, as_array(first), _read_label(position, second))
    if isinstance(example, tuple | dict | str):
        found = f"it is a {type(example).__name__}"
        found += f" of {len(example)} values" if isinstance(example, tuple) else ""
        raise DataError(f"input {position}", found, "give x, a pair (x, label), or a pair (number, x)")
    return Example(position, as_array(example), None)


def _is_array(value: object) -> bool:
    return is_tensor(value) or isinstance(value, np.ndarray)


def _is_pair(example: Any) -> bool:
    """Whether it is a tuple, or a list that begins with an array; a list of numbers is an input."""
    if isinstance(example, list) and example:
        return _is_array(example[0])
    return isinstance(example, tuple)


def _divide(batch: Any) -> Iterator[Any]:
    """The examples of a batch of a DataLoader: its inputs, or pairs of them with their labels."""
    if isinstance(batch, dict | str):
        raise DataError(
            "the DataLoader", f"its batches are of the type {type(batch).__name__}", "give pairs (x, label)"
        )
    parts: list[ArrayLike] = list(batch) if isinstance(batch, tuple | list) else [batch]
    return zip(*map(as_array, parts), strict=True)


def _read_label(position: int, label: Any) -> int:
    value = as_array(label)
    if value.ndim:
        problem = f"its label has the shape {value.shape}"
        fix = "a label is one number; give batches as one pair (X, Y), or as a DataLoader"
        raise DataError(f"input {position}", problem, fix)
    return whole_number("label", value.item(), 0, 2**31, f"input {position} needs a class from 0 on")
