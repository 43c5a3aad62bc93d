"""A model that is not a file but an object of this process: a torch module, or any function from rows to logits."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ars.engine.backends import choose_backend
from ars.engine.devices import CPU, Device, choose_devices, open_devices
from ars.engine.devices.cpu import CpuDevice
from ars.engine.runners.function import Function
from ars.errors import ArgumentError, ArsError, DataError, MissingPackage, ModelError, NotExportable
from ars.random_nodes import refuse_random_nodes
from ars.tensors import is_module
from ars.trial import own_models

if TYPE_CHECKING:
    from torch import nn

    from ars.export.modules import FrozenModule

__all__ = ["InProcess", "batch_given"]

Array = NDArray[np.float32]

# While one lane calls the function, which has a lock, the other makes noise.
_FUNCTION_LANES = 2


class InProcess:
    """A torch module, or a function from rows to logits.

    A module is copied when it is opened, and the copy is run: in evaluation mode, whatever mode the module itself is
    in. So certificates are about the module as it was then; `has_changed` tells whether it is another one by now.
    """

    def __init__(self, model: "nn.Module | Callable[[Array], Any]", backend: str, device: str | None) -> None:
        self._model, self._backend, self._device = model, backend, device
        self._is_module = is_module(model)
        self._fingerprint: str | None = None
        self._frozen: FrozenModule | None = None
        if isinstance(model, type):
            raise ArgumentError("model", model.__name__, f"it is a class; make a module of it, like {model.__name__}()")
        if not self._is_module and not callable(model):
            requirement = "it must be the path of a model, a torch module, or a function from rows to logits"
            if callable(getattr(model, "predict_proba", None)):  # scikit-learn, and what is made like it
                requirement = "give its function from rows to scores, like model.predict_proba"
            raise ArgumentError("model", type(model).__name__, requirement)
        # What a function is called, or the class that TorchScript was made of; otherwise the class.
        self.name: str = getattr(model, "original_name" if self._is_module else "__name__", type(model).__name__)
        self._as_it_is = not self._is_module or backend == "torch"
        if not self._is_module and backend != "auto":
            raise ArgumentError("backend", backend, "a function is run as it is; leave it out")
        if self._as_it_is and device not in (None, CPU):
            raise ArgumentError("device", device, "a model that is run as it is runs where it is; leave it out")

    def open(self, shape: tuple[int, ...], lane_count: int | None) -> tuple[list[Device], str | None]:
        """The devices with the model, for inputs of this shape, and why its backend was chosen."""
        if not self._is_module:
            return [CpuDevice(_as_it_is(self._model, self.name, shape, lane_count))], None
        try:
            from ars.export.modules import AS_IT_IS, TORCH, FrozenModule, fingerprint
        except ModuleNotFoundError as error:
            raise MissingPackage(error.name or "onnx", "train") from error
        module: Any = self._model
        self._fingerprint, self._frozen = fingerprint(module), FrozenModule(module, self.name)
        as_it_is = _as_it_is(self._frozen.run, self.name, shape, lane_count, ("torch", TORCH))
        if self._as_it_is:
            self._frozen.check_state(shape)
            return [CpuDevice(as_it_is)], None
        with tempfile.TemporaryDirectory(prefix="ars-") as folder:
            path = self._frozen.write(shape, Path(folder))
            fix = "its forward must neither draw random numbers nor train in evaluation mode"
            refuse_random_nodes(Path(self.name), path.read_bytes(), fix)
            names, backend, why = choose_devices(self._device, path, self._backend), self._backend, None
            if backend == "auto" and names == [CPU]:
                backend, why = choose_backend(path, None)
            try:
                with own_models():
                    devices = open_devices(names, path, backend, lane_count)
            except ModelError as error:
                problem, fix = f"as ONNX, {error.problem}", f"change the module, or {AS_IT_IS}"
                raise NotExportable(self.name, problem, fix) from error
        for device in devices:
            device.runner.path = Path(self.name)  # the file is gone; this is what errors and records name
        return devices, why

    def check(self, run: Callable[[Array], Array], x: Array, mean: Array, scale: Array, family: str) -> None:
        """Compare a module that was exported with the module itself, on noisy draws of an input."""
        if self._frozen is not None and not self._as_it_is:
            from ars.export.modules import check_parity

            check_parity(self._frozen, run, x, mean, scale, family)

    def has_changed(self) -> bool:
        """Whether a module is no longer what it was when it was opened. Of a function nobody can know."""
        if self._fingerprint is None:
            return False
        from ars.export.modules import fingerprint

        module: Any = self._model
        return fingerprint(module) != self._fingerprint


def _as_it_is(
    function: Callable[[Array], Any],
    name: str,
    shape: tuple[int, ...],
    lane_count: int | None,
    library: tuple[str, str] | None = None,
) -> Function:
    """The runner of a function. Says so if the shape is that of a batch."""
    lanes = lane_count or _FUNCTION_LANES
    try:
        return Function(function, name, shape, lanes, library)
    except ArsError as error:
        if len(shape) == 1:
            raise
        try:
            Function(function, name, shape[1:], lanes, library)
        except ArsError:
            raise error from None
        raise batch_given(shape) from error


def batch_given(shape: tuple[int, ...]) -> DataError:
    """The error for a batch where one input was expected."""
    problem = f"its shape {shape} is that of a batch of {shape[0]}, and not of one input"
    fix = "give one input, like x[0], or all inputs in one array to certify_many or predict_many"
    return DataError("the input", problem, fix)
