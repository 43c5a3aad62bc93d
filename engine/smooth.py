"""Smooth: the class that the field's scripts use, with the engine inside."""

import itertools
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ars.checks import whole_number
from ars.data.pixels import to_pixels
from ars.engine.in_process import batch_given
from ars.engine.requests import FIRST_OWN_ID
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.certificate import ABSTAIN
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError, NotExportable
from ars.tensors import as_array, is_module, is_tensor

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Smooth"]

_IMAGE_AXES = 3


class Smooth:
    """A smoothed classifier with the interface of Cohen et al. (2019): takes the place of `Smooth` in the core.py of
    locuslab/smoothing.

    The guarantee is theirs: the class and the radius are right with probability at least 1 - alpha, by the binary bound
    of Clopper and Pearson, so the radii are statistically the same. (`ars.load(...).certify` has two-sided bounds by
    default, which prove more.) As there, every call is about the classifier as it is at that time: a module whose
    weights have changed is exported again. It is run in evaluation mode, and stays in the mode that it is in. One that
    cannot be exported is run by torch, with a warning.
    """

    ABSTAIN = ABSTAIN

    def __init__(
        self, base_classifier: "nn.Module | Callable[[Tensor], Tensor]", num_classes: int, sigma: float
    ) -> None:
        """`base_classifier` is a torch module, or a function from a tensor [batch, ...] to logits."""
        self.base_classifier, self.num_classes, self.sigma = base_classifier, num_classes, sigma
        self._calls = itertools.count(FIRST_OWN_ID)
        self._device: Any = "cpu"
        self._loaded = self._load()

    def certify(self, x: "Tensor", n0: int, n: int, alpha: float, batch_size: int) -> tuple[int, float]:
        """The class of the smoothed classifier at x, and an l2 radius within which it is constant; or ABSTAIN and 0.

        `n0` draws select the class, and `n` bound its probability. `batch_size` is the largest batch; a smaller one is
        used where it is faster. With probability at least 1 - alpha, what is returned is true.
        """
        plan = Plan(n0, n, alpha, two_sided=False)
        classifier, image, batch = self._prepare(x, batch_size)
        (finished,) = classifier.certify_many([(next(self._calls), image)], plan, batch=batch)
        return finished.result.predicted, finished.result.radius

    def predict(self, x: "Tensor", n: int, alpha: float, batch_size: int) -> int:
        """The class of the smoothed classifier at x, or ABSTAIN. It is wrong with probability at most alpha."""
        classifier, image, batch = self._prepare(x, batch_size)
        (finished,) = classifier.predict_many([(next(self._calls), image)], n=n, alpha=alpha, batch=batch)
        return finished.result.predicted

    def close(self) -> None:
        """End the threads of the engine. If the object is used again, it starts new ones."""
        self._loaded[0].close()

    def _prepare(self, x: "Tensor", batch_size: int) -> tuple[SmoothedClassifier, NDArray[np.float32], int]:
        """The classifier as it is now, the input as an array, and the batch size to use."""
        largest = whole_number("batch_size", batch_size, 1, 2**24, "it must be at least 1")
        image = to_pixels(as_array(x), "the input")
        if image.ndim == _IMAGE_AXES + 1:  # the field's loop takes a batch of one, too
            if len(image) != 1:
                raise batch_given(image.shape)
            image = image[0]
        self._device = x.device if is_tensor(x) else "cpu"
        classifier, *of = self._loaded
        if of != [self.base_classifier, self.sigma] or classifier.model_changed:
            classifier.close()
            self._loaded = self._load()
            classifier = self._loaded[0]
        try:
            classifier.open(image)
        except NotExportable as error:
            name = type(self.base_classifier).__name__
            warnings.warn(f"{name}: {error.problem}, so torch runs it as it is, which may be slower", stacklevel=3)
            self._loaded = self._load("torch")
            classifier = self._loaded[0]
            classifier.open(image)
        fastest = classifier.prepare(image.shape).batch
        if classifier.runner.classes != self.num_classes:
            problem = f"the base classifier has {classifier.runner.classes} classes; give their number"
            raise ArgumentError("num_classes", self.num_classes, problem)
        return classifier, image, min(fastest, largest)

    def _load(self, backend: str = "auto") -> tuple[SmoothedClassifier, Any, float]:
        base: Any = self.base_classifier
        model = base if is_module(base) or not callable(base) else self._as_function_of_arrays(base)
        return load(model, sigma=self.sigma, backend=backend), base, self.sigma

    def _as_function_of_arrays(self, base: "Callable[[Tensor], Tensor]") -> Callable[[NDArray[np.float32]], Any]:
        def call(rows: NDArray[np.float32]) -> Any:
            import torch

            with torch.no_grad():
                return base(torch.from_numpy(rows).to(self._device))

        call.__name__ = getattr(base, "__name__", type(base).__name__)
        return call
