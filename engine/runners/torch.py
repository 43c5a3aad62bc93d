"""PyTorch on the CPU. It runs a model.pt as it was trained, so that exported files can be checked against it.

The classifier and the noise of a model.pt are modules of `train/`, so this file, alone in the engine, imports from
there. Each lane computes on one thread.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ars.engine.runners import CpuRunner, Floats, Port
from ars.errors import ModelError
from ars.external_data import HashedModel
from ars.manifest import Manifest, NoiseSettings
from ars.train.model_file import load_model
from ars.train.processes import fixed_threads

__all__ = ["Torch"]


class _Maps:
    """The noise module of a model.pt. It takes one input at a time."""

    def __init__(self, noise: torch.nn.Module, sha256: str) -> None:
        self._noise, self.sha256 = noise, sha256

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with torch.inference_mode(), fixed_threads(1):
            mean, scale = self._noise(torch.from_numpy(x[np.newaxis]))
            return mean[0].numpy().copy(), scale[0].numpy().copy()


class Torch(CpuRunner):
    """The classifier of a model.pt that ars-train wrote, with its noise."""

    name, version = "torch", torch.__version__.partition("+")[0]

    def open(self, model: HashedModel) -> tuple[Sequence[Port], Sequence[Port]]:
        settings, trained, rest = load_model(self.path, model.content)
        if rest["state"] is not None:
            raise ModelError(self.path, "its training has not finished", "resume it with `ars-train --resume`")
        self._classifier = trained.classifier
        self.own_generator = _Maps(trained.noise, self.sha256)
        noise = NoiseSettings(settings.family, settings.kind, settings.bounds.sigma0)
        self.own_manifest = Manifest(settings.shape, settings.classes, noise, files=())
        image = Port("x", "float32", (None, *settings.shape))
        return [image], [Port("logits", "float32", (None, len(settings.classes)))]

    def infer(self, batch: Floats) -> Floats:
        with torch.inference_mode(), fixed_threads(1):
            logits: Floats = self._classifier(torch.from_numpy(batch)).numpy()
            return logits
