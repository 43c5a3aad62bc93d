"""A Python function from rows to logits, run as it is."""

import platform
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ars.engine.runners import CpuRunner, Floats, Port
from ars.errors import ModelError
from ars.external_data import HashedModel
from ars.tensors import as_array

__all__ = ["Function"]


class Function(CpuRunner):
    """A function from an array of rows, float32 [n, ...], to an array or a tensor of logits [n, classes].

    It is called by one thread at a time, because it may not be safe to call from several. A function has no bytes to
    hash, so its hash is random: a run with it is never resumed with a function that may be another one.
    """

    advice = "it is called with a float32 array of inputs, [n, ...], and must return logits, [n, classes]"

    def __init__(
        self,
        function: Callable[[NDArray[np.float32]], Any],
        name: str,
        input_shape: tuple[int, ...],
        lane_count: int,
        library: tuple[str, str] | None = None,
    ) -> None:
        """`library` is the name and the version of the library that computes it, if it is not Python itself."""
        self.name, self.version = library or ("python", platform.python_version())
        self._function, self._input_shape, self._lock = function, input_shape, threading.Lock()
        super().__init__(Path(name), lane_count)

    def load(self) -> None:
        self.sha256, self.external, self._quantised = secrets.token_hex(32), (), False
        self._inputs, self._outputs = self.open()

    def open(self, model: HashedModel | None = None) -> tuple[Sequence[Port], Sequence[Port]]:
        """Call the function once, to learn its number of classes."""
        self.image = Port("x", "float32", (None, *self._input_shape))
        logits = self._infer(np.zeros((2, *self._input_shape), np.float32))
        if logits.ndim != 2 or len(logits) != 2:
            problem = f"it returns the shape {logits.shape} for 2 inputs"
            raise ModelError(self.path, problem, "it must return logits, inputs x classes")
        if logits.shape[1] == 1:
            fix = "return one for each of the two classes, like torch.cat([-z, z], 1)"
            raise ModelError(self.path, "it returns a single logit for each input", fix)
        return [self.image], [Port("logits", "float32", (None, logits.shape[1]))]

    def _adapt(self, why: str) -> str:
        return self.advice

    def infer(self, batch: Floats) -> Floats:
        with self._lock:
            returned = self._function(batch.copy())  # it may change or keep what it is given
        if returned is None or isinstance(returned, dict | tuple):
            problem = f"it returns {'nothing' if returned is None else f'a {type(returned).__name__}'}"
            raise ModelError(self.path, problem, "it must return only the logits, inputs x classes")
        logits = as_array(returned)
        if not (np.issubdtype(logits.dtype, np.floating) or np.issubdtype(logits.dtype, np.integer)):
            raise ModelError(self.path, f"it returns values of type {logits.dtype}", "logits are real numbers")
        with np.errstate(over="ignore"):
            return logits.astype(np.float32)
