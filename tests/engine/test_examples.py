"""The inputs that certify_many and predict_many take."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import ars
from ars.errors import ArgumentError, DataError, InputError

SHAPE = (1, 4, 4)
X = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 1, 2, 0, 1])


@pytest.fixture(scope="module")
def classifier():
    weights = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    with ars.load(lambda rows: rows.reshape(len(rows), -1) @ weights, sigma=0.25, batch=16, shape=SHAPE) as loaded:
        yield loaded


class EndlessDataset(Dataset):
    """A Dataset that does not say where it ends, except by its length."""

    def __len__(self):
        return 5

    def __getitem__(self, index):
        return X[index % 5], int(Y[index % 5])


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(X, Y, strict=True))


UNLABELLED = {
    "an array": X.numpy(),
    "a tensor": X,
    "inputs": list(X),
    "lists of numbers": X.tolist(),
    "numbered inputs": list(enumerate(X.numpy())),
    "a Dataset without labels": TensorDataset(X),
    "a DataLoader without labels": DataLoader(X, batch_size=2),
}
LABELLED = {
    "pairs": zip(X, Y, strict=True),
    "pairs of plain values": [(x.numpy(), int(y)) for x, y in zip(X, Y, strict=True)],
    "a Dataset": TensorDataset(X, Y),
    "a Dataset without an end": EndlessDataset(),
    "an IterableDataset": Stream(),
    "a DataLoader": DataLoader(TensorDataset(X, Y), batch_size=2),
    "a DataLoader of single examples": DataLoader(TensorDataset(X, Y), batch_size=None),
}


@pytest.mark.parametrize("kind", [*UNLABELLED, *LABELLED])
def test_inputs_of_every_kind_get_the_same_certificates(classifier, kind):
    expected = {number: classifier.certify(x, n=500, input_id=number) for number, x in enumerate(X)}
    found = list(classifier.certify_many((UNLABELLED | LABELLED)[kind], n=500))
    assert {one.input_id: one.result for one in found} == expected
    labels = dict(enumerate(Y.tolist())) if kind in LABELLED else dict.fromkeys(range(5))
    assert {one.input_id: one.label for one in found} == labels


def test_predictions_take_the_same(classifier):
    found = list(classifier.predict_many(DataLoader(TensorDataset(X, Y), batch_size=2), n=100, batch=8))
    assert sorted(one.input_id for one in found) == list(range(5))


@pytest.mark.parametrize(
    ("examples", "problem"),
    [
        (X[0], r"the array: its shape \(1, 4, 4\) is that of one input; give one input to certify or predict"),
        ([(X, Y)], r"input 0: its label has the shape \(5,\); a label is one number"),
        ([X], r"its shape \(5, 1, 4, 4\) is that of a batch of 5"),
        ([(X[0], 7)], "input 0: its label is 7, and the model has 3 classes"),
        ([(X[0], 0.5)], r"label = 0.5 is not valid|it must be a whole number"),
        ([(X[0], 1, 2)], "input 0: it is a tuple of 3 values; give x, a pair"),
        ([{"image": X[0]}], "input 0: it is a dict"),
        (DataLoader([{"image": X[0]}]), "the DataLoader: its batches are of the type dict"),
        ({"x": X}, "examples = dict is not valid"),
        ("images.npz", "examples = str is not valid"),
        (5, "examples = int is not valid"),
    ],
)
def test_what_cannot_be_certified_is_said(classifier, examples, problem):
    with pytest.raises((ArgumentError, DataError, InputError), match=problem):
        list(classifier.certify_many(examples, n=100))
