"""PyTorch on the processor: a model.pt as it was trained, to check what was exported of it.

The file's classifier and noise are modules of `train/`, so this is the one place of the engine that imports from there.
"""

import threading
from collections.abc import Sequence
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from ars.engine.runners import CpuRunner, Floats, Port
from ars.errors import MissingPackage, ModelError
from ars.manifest import Manifest, NoiseSettings

try:
    import torch
except ImportError as error:
    raise MissingPackage("torch", "train") from error

__all__ = ["Torch"]


class _OneThread:
    """torch works on one thread in each lane while any lane is at work, and on as many as before after that.

    The number of threads is a setting of the whole process, so the first lane in keeps it and the last one out puts it
    back.
    """

    def __init__(self) -> None:
        self._lock, self._lanes, self._before = threading.Lock(), 0, 1

    def __enter__(self) -> None:
        with self._lock:
            if self._lanes == 0:
                self._before = torch.get_num_threads()
            self._lanes += 1
            torch.set_num_threads(1)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._lanes -= 1
            if self._lanes == 0:
                torch.set_num_threads(self._before)


_one_thread = _OneThread()


class _Maps:
    """The noise module of a model.pt, for one input at a time."""

    def __init__(self, noise: torch.nn.Module, sha256: str) -> None:
        self._noise, self.sha256 = noise, sha256

    def __call__(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        with torch.inference_mode(), _one_thread:
            mean, scale = self._noise(torch.from_numpy(x[np.newaxis]))
            return mean[0].numpy().copy(), scale[0].numpy().copy()


class Torch(CpuRunner):
    """The classifier of a model.pt of ars-train, with its noise."""

    name, version = "torch", torch.__version__.partition("+")[0]

    def open(self, content: bytes, lane_count: int) -> tuple[Sequence[Port], Sequence[Port]]:
        from ars.train.model_file import load_model

        settings, model, rest = load_model(self.path, content)
        if rest["state"] is not None:
            raise ModelError(self.path, "its training is not done", "go on with `ars-train --resume`")
        self._classifier = model.classifier
        self.own_generator = _Maps(model.noise, self.sha256)
        noise = NoiseSettings(settings.family, settings.kind, settings.bounds.sigma0)
        self.own_manifest = Manifest(settings.shape, settings.classes, noise, files=())
        image = Port("x", "float32", (None, *settings.shape))
        return [image], [Port("logits", "float32", (None, len(settings.classes)))]

    def infer(self, batch: Floats) -> Floats:
        with torch.inference_mode(), _one_thread:
            logits: Floats = self._classifier(torch.from_numpy(batch)).numpy()
            return logits
