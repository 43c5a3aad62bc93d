"""PGD on the votes of a smoothed classifier, around one input."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.engine.noise_maps import NoiseMaps
from ars.errors import MissingPackage, ModelError
from ars.noise import Family

try:
    import torch
except ImportError as error:
    raise MissingPackage("torch", "train") from error

from ars.train.attacks import Attack, Maps, lp_lengths, pgd, vote_loss
from ars.train.model_file import load_model
from ars.train.smoothing import SmoothedModel

__all__ = ["Ascent", "load_gradients"]

Array = NDArray[np.float32]

_FIX = "say with --model which model.pt the run's model was exported from"


def load_gradients(path: Path, x: Array, classes: int, maps: tuple[Array, Array] | None) -> SmoothedModel:
    """The model of a model.pt, for attacks on a run with inputs like x and this many classes. If the maps of the run
    depend on the input, `maps` are those at x, and the model must have their generator."""
    settings, model, _ = load_model(path)
    if settings.shape != x.shape or len(settings.classes) != classes:
        found = f"it is for inputs of shape {settings.shape} and {len(settings.classes)} classes"
        raise ModelError(path, f"{found}, and the run's are {x.shape} and {classes}", _FIX)
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    if maps is not None:
        with torch.no_grad():
            here = [part[0].numpy() for part in model.noise(torch.from_numpy(x[None].copy()))]
        # Another backend, or another precision, makes slightly other maps.
        if not all(np.allclose(*pair, rtol=0.01, atol=0.01) for pair in zip(here, maps, strict=True)):
            raise ModelError(path, "its noise generator makes other maps than that of the run", _FIX)
    return model


class Ascent:
    """The ascent on the votes for other classes than `predicted` around the input x, with noise from a seed.

    `noise` has the maps of the run. If they depend on the input, gradients flow through the generator of the model.
    """

    def __init__(
        self,
        model: SmoothedModel,
        noise: NoiseMaps,
        family: Family,
        idx: int,
        x: Array,
        predicted: int,
        *,
        moves_maps: bool,
        draws: int,
        restarts: int,
        steps: int,
        seed: int,
    ) -> None:
        mean, scale = (torch.from_numpy(np.array(part)) for part in noise.at(idx, x))
        self._x, self._scale, self._norm, self._steps = torch.from_numpy(x.copy()), scale, family.norm, steps
        self._labels = torch.full((restarts,), predicted)
        self._random = torch.Generator().manual_seed(seed)
        maps: Maps = model.noise if moves_maps else lambda moved: (mean, scale)
        self._loss = vote_loss(model.classifier, maps, family, draws, self._random)

    def perturb(self, size: float, earlier: Array | None) -> list[Array]:
        """Perturbed copies of x with ||delta / scale|| of at most this size: from an earlier one or from x, from x, and
        from random places at this distance. They need not lie in [0, 1], for a certificate holds beyond it too."""
        x = self._x.expand(len(self._labels), *self._x.shape)
        around = torch.randn(x.shape, generator=self._random)
        start = size * around / lp_lengths(around, self._norm)
        start[:2] = 0
        if earlier is not None:
            start[0] = (torch.from_numpy(earlier) - self._x) / self._scale
            start[0] *= size / max(float(start[0].flatten().norm(p=self._norm)), 1e-12)
        attack = Attack(self._norm, size, self._steps)
        start = x + self._scale * start
        found = pgd(self._loss, x, self._labels, attack, scale=self._scale, start=start, pixels=False)
        return list(torch.where(found.isfinite(), found, x).numpy())  # a gradient may overflow
