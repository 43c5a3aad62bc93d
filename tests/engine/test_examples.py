"""The inputs that certify_many and predict_many take."""

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from support import models
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import ars
from ars.errors import ArgumentError, DataError, InputError, RunError

SHAPE = (1, 4, 4)
X = torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(1))
Y = torch.tensor([0, 1, 2, 0, 1])


@pytest.fixture(scope="module")
def classifier():
    weights = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
    with ars.load(
        lambda rows: rows.reshape(len(rows), -1) @ weights, sigma=0.25, batch=16, shape=SHAPE, seed=0
    ) as loaded:
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
    "a pair of tensors": (X, Y),
    "a list of two arrays": [X.numpy(), Y.numpy()],
    "a pair with a column of labels": (X, Y[:, None]),
    "an array and a list of labels": (X.numpy(), Y.tolist()),
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
        ([(X, Y)], r"give batches as one pair \(X, Y\), or as a DataLoader"),
        ([X], r"its shape \(5, 1, 4, 4\) is that of a batch of 5.*; give one input, .* or all inputs in one array"),
        ((X, Y[:2]), "the examples: they are a pair of 5 inputs and 2 labels; give one label for each input"),
        ((X[0], 1), r"the examples: they are one pair \(x, label\); give a list of such pairs"),
        ((X, torch.eye(5)), r"the labels: they have the shape \(5, 5\); give one class number .* Y.argmax\(1\)"),
        ([X[0].to_sparse()], "the input: a Tensor cannot be made an array .*; give an array or a dense tensor"),
        ([torch.empty(SHAPE, device="meta")], "the input: a Tensor cannot be made an array"),
        ([[[1.0], [1.0, 2.0]]], "the input: a list cannot be made an array"),
        ([(X[0], 7)], "input 0: its label is 7, and the model has 3 classes"),
        ([(X[0], 0.5)], r"label = 0.5 is not valid|it must be a whole number"),
        ([(X[0], 1, 2)], "input 0: it is a tuple of 3 values; give x, a pair"),
        ([{"image": X[0]}], "input 0: it is a dict"),
        (DataLoader([{"image": X[0]}]), "the DataLoader: its batches are of the type dict"),
        ({"x": X}, "examples = dict is not valid"),
        ("images.npz", r"examples = images.npz is not valid; .* is for ars.certify_run"),
        (Path("images.npz"), r"examples = images.npz is not valid; .* is for ars.certify_run"),
        ([(3, torch.full(SHAPE, math.nan))], "input 3: it has pixels that are not finite"),
        (5, "examples = int is not valid"),
    ],
)
def test_what_cannot_be_certified_is_said(classifier, examples, problem):
    with pytest.raises((ArgumentError, DataError, InputError), match=problem):
        list(classifier.certify_many(examples, n=100))


def test_a_list_of_two_inputs_is_not_a_pair_of_inputs_and_labels(classifier):
    assert [one.label for one in classifier.certify_many([X[0], X[1]], n=100)] == [None, None]


def test_an_input_that_nobody_numbered_is_the_input(classifier):
    """Its number, for the noise, is one that the user has never seen."""
    for call in (classifier.certify, classifier.predict):
        with pytest.raises(DataError, match=r"^the input: it has pixels that are not finite"):
            call(torch.full(SHAPE, math.nan), n=100)
    other = ars.load(lambda rows: np.full((len(rows), 3), math.nan), sigma=0.25, batch=16)
    with other, pytest.raises(RunError, match=r"^the input: none of the first 100 draws has finite logits"):
        other.certify(X[0], n=100)


def test_python_users_are_told_how_to_fit_an_input(classifier):
    """They have no --resize."""
    for wrong, advice in (
        (torch.rand(1, 5, 5), "bring images to that size"),
        (torch.rand(4, 4), r"give each image its channel axis, like x\[np.newaxis\]"),
        (1.0, "and the data has single numbers"),
    ):
        with pytest.raises(InputError, match=advice):
            classifier.certify(wrong, n=100)


@pytest.mark.parametrize("model", [lambda rows: rows.reshape(len(rows), -1)[:, :3], "a file"])
def test_inputs_outside_of_pixel_units_are_said_once_wherever_they_come(model, tmp_path):
    if model == "a file":
        model = models.linear(tmp_path / "model.onnx", shape=SHAPE)
    options = {} if isinstance(model, Path) else {"shape": SHAPE}
    with ars.load(model, sigma=0.25, batch=16, **options) as loaded:
        loaded.certify(X[0], n=100)
        with pytest.warns(UserWarning, match="input 3 has values from .* to .*: sigma and every radius are in these"):
            list(loaded.certify_many([*X[:3], 255 * X[3], 255 * X[4]], n=100))
        loaded.certify(255 * X[0], n=100)  # a second warning would be an error in the tests


def counts(classifier, examples, **options):
    return [finished.result.counts for finished in classifier.certify_many(examples, n=200, **options)]


def test_calls_without_seed_and_numbers_have_noise_of_their_own(monkeypatch):
    """Somebody may choose an input after the answers of an earlier call. The noise must not be that of this call."""
    seeds = itertools.count(1)
    monkeypatch.setattr("ars.engine.smoothed.secrets.randbits", lambda bits: next(seeds))
    x, doubtful = X[:1], lambda rows: np.stack([rows[:, 0, 0, 0], rows[:, 0, 0, 1]], 1)
    with ars.load(doubtful, sigma=5.0, batch=16, shape=SHAPE) as classifier:
        assert len({tuple(counts(classifier, x)[0]) for _ in range(5)}) == 5
        first, second = (next(iter(classifier.predict_many(x, n=200))).result.counts for _ in range(2))
        assert first != second
        assert counts(classifier, x, seed=3) == counts(classifier, x, seed=3)
        assert counts(classifier, [(7, x[0])]) == [classifier.certify(x[0], input_id=7, n=200).counts]
    with ars.load(doubtful, sigma=5.0, batch=16, shape=SHAPE, seed=9) as classifier:
        assert counts(classifier, x) == counts(classifier, x), "this seed was asked for"
