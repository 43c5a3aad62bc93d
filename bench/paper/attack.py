"""Inputs that PGD has perturbed before they are certified (the paper's Table 3)."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ars.bench.paper.models import Model
from ars.data import Dataset
from ars.data.arrays import Npz
from ars.data.pixels import file_sha256
from ars.errors import DataError, MissingPackage, ModelError
from ars.noise import family_named

try:
    import torch
except ImportError as error:
    raise MissingPackage("torch", "train") from error

from ars.train.attacks import Attack, clean_loss, noisy_loss, pgd
from ars.train.model_file import load_model

__all__ = ["attack_inputs"]

DRAWS, BATCH = 8, 50


def attack_inputs(model: Model, data: Dataset, ids: Sequence[int], how: str, path: Path) -> None:
    """Perturb the inputs within 16/255 in the maximum norm, and write them with their labels to an .npz file.

    `how` says what the attack knows: everything, with gradients through the generator (generator); the noise, but its
    maps as constants (smoothed); or only the classifier, without noise (classifier).
    """
    if model.trained is None:
        fix = "keep the model.pt beside it when it is exported, or say --attack none"
        raise ModelError(model.file, "PGD needs the gradients of its model.pt", fix)
    made_of = f"{file_sha256(model.trained)} {data.fingerprint()} {how} {list(ids)}"
    if path.exists() and _read_origin(path) == made_of:
        return  # a resumed run has the same inputs
    settings, smoothed, _ = load_model(model.trained)
    family = family_named(settings.family)
    loss = {
        "generator": noisy_loss(smoothed, family, DRAWS, through_generator=True),
        "smoothed": noisy_loss(smoothed, family, DRAWS, through_generator=False),
        "classifier": clean_loss(smoothed.classifier),
    }[how]
    attacked, labels = [], []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        for first in range(0, len(ids), BATCH):
            examples = [data[idx] for idx in ids[first : first + BATCH]]
            if any(example.label is None for example in examples):
                raise DataError(data.name, "it has no labels", "PGD needs them: give labelled data, or --attack none")
            x = torch.from_numpy(np.stack([example.x for example in examples]))
            y = torch.tensor([example.label for example in examples])
            attacked.append(pgd(loss, x, y, Attack()).numpy())
            labels.append(y.numpy())
    np.savez(path, x=np.concatenate(attacked), y=np.concatenate(labels), made_of=np.array(made_of))


def _read_origin(path: Path) -> str | None:
    """What the inputs in a file were made of, if the file says so."""
    arrays = Npz(path, DataError)
    return str(arrays.read("made_of")) if "made_of" in arrays.headers else None
