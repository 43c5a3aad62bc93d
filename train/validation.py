"""The scores of a model under noise, on images that it was not trained on."""

import math
from dataclasses import dataclass

import torch

from ars.noise import Family
from ars.train.batches import Images
from ars.train.smoothing import SmoothedModel, standard_noise

__all__ = ["Scores", "validate"]

DRAWS = 16
# At most this many images, and this many noise values, at a time: large images go in small chunks.
CHUNK, NUMBERS = 64, 2**24


@dataclass(frozen=True)
class Scores:
    """Means over the validation images."""

    accuracy: float
    """The fraction of single draws that are classified correctly."""
    radius: float
    """An estimate of the certified radius in the family's norm, from a few draws and without a confidence bound."""
    sigma_min: float
    sigma_geomean: float
    """The geometric mean of each image's scale map, to which its volume-equivalent radius is proportional."""
    mean_norm: float


@torch.no_grad()
def validate(model: SmoothedModel, family: Family, images: Images, device: torch.device) -> Scores:
    """The scores of a model, from the same 16 draws of each image at every call."""
    model.eval()
    family = family.in_dimensions(math.prod(images.shape))
    generator = torch.Generator().manual_seed(0)
    right, radii, smallest, geometric, norms = 0.0, 0.0, 0.0, 0.0, 0.0
    chunk = max(1, min(CHUNK, NUMBERS // (DRAWS * math.prod(images.shape))))
    for x, labels in zip(images.x.split(chunk), images.labels.split(chunk), strict=True):
        z = standard_noise(family, x, DRAWS, generator).to(device)
        x, labels = x.to(device), labels.to(device)
        mean, scale = model.noise(x)
        logits = model.classifier((x + mean + scale * z).flatten(0, 1)).reshape(DRAWS, len(x), -1)
        hits = (logits.argmax(-1) == labels).sum(0).tolist()
        sigma = scale.flatten(1).amin(1).tolist()
        for count, scale_min in zip(hits, sigma, strict=True):
            share = (count + 0.5) / (DRAWS + 1)
            radii += family.radius(share, 1 - share, scale_min)
        right += sum(hits) / DRAWS
        smallest += sum(sigma)
        geometric += float(scale.flatten(1).log().mean(1).exp().sum())
        norms += float(mean.flatten(1).norm(dim=1).sum())
    n = len(images)
    return Scores(right / n, radii / n, smallest / n, geometric / n, norms / n)
