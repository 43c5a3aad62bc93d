"""A torch module in memory: a copy for inference, that copy as ONNX, and whether both give the same logits."""

import copy
import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ars.errors import ModelError, NotExportable, one_line
from ars.export.onnx_files import write_onnx
from ars.export.parity import LARGEST_DIFFERENCE, NoisyInputs, collect_logits
from ars.export.torchscript import ScriptModule, convert_script, script_bytes
from ars.manifest import NoiseSettings
from ars.noise import NoiseKind

__all__ = ["AS_IT_IS", "TORCH", "FrozenModule", "check_parity", "fingerprint"]

Array = NDArray[np.float32]

TORCH = torch.__version__.partition("+")[0]
AS_IT_IS = 'run it as it is, with backend="torch"'


def _unwrap(module: nn.Module) -> nn.Module:
    """The module inside DataParallel, DistributedDataParallel and torch.compile, which are about where it runs."""
    while True:
        if isinstance(module, nn.DataParallel | nn.parallel.DistributedDataParallel):
            module = module.module
        elif isinstance(inner := getattr(module, "_orig_mod", None), nn.Module):
            module = inner
        else:
            return module


def fingerprint(module: nn.Module, *, unregistered: bool = True) -> str:
    """A hash of what a module computes with: its layers, their tensors and their plain attributes. With `unregistered`,
    these include tensors that are neither parameters nor buffers.

    Whether it is in training mode does not count, because it is run in evaluation mode in any case. The code of its
    methods, hooks, and attributes of other types are not covered.
    """
    digest = hashlib.sha256()
    scripts: list[str] = []
    for path, layer in module.named_modules():
        if isinstance(layer, ScriptModule):
            if not any(path.startswith(script) for script in scripts):
                scripts.append(f"{path}." if path else "")
                digest.update(script_bytes(layer))
            continue
        digest.update(f"{path}: {type(layer).__module__}.{type(layer).__qualname__}\n".encode())
        tensors = {**vars(layer).get("_parameters", {}), **vars(layer).get("_buffers", {})}
        for name, value in sorted({**vars(layer), **tensors}.items()):
            if isinstance(value, Tensor) and (unregistered or name in tensors):
                if nn.parameter.is_lazy(value) or value.is_meta:
                    problem = f"its tensor {f'{path}.{name}'.lstrip('.')!r} has no values yet"
                    raise ModelError(type(module).__name__, problem, "load its weights, or call it once on an input")
                digest.update(f"{name}: {value.dtype} {tuple(value.shape)}\n".encode())
                values = value.detach().cpu().contiguous().flatten()
                digest.update(values.view(torch.uint8).numpy().data)
            elif name != "training" and isinstance(value, bool | int | float | str | tuple):
                digest.update(f"{name} = {value!r}\n".encode())
    return digest.hexdigest()


class _Logits(nn.Module):
    """The logits of a module in float32, for rows in float32. The module computes in its own precision."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        first = next((t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()), None)
        self.dtype = torch.float32 if first is None else first.dtype

    def forward(self, x: Tensor) -> Any:
        returned = self.module(x.to(self.dtype))
        logits = getattr(returned, "logits", returned)  # as the models of Hugging Face return them
        return logits.float() if isinstance(logits, Tensor) else logits


class FrozenModule:
    """A copy of a module, in evaluation mode. What happens to the module afterwards does not change the copy."""

    def __init__(self, module: nn.Module, name: str) -> None:
        self.name = name
        try:
            with torch.no_grad():  # for TorchScript, whose parameters are copied by an operation of torch
                frozen = copy.deepcopy(_unwrap(module))
        except Exception as error:  # a module may hold anything
            problem = f"it cannot be copied ({one_line(error)})"
            raise ModelError(name, problem, "give a function that calls it instead of the module") from error
        self._module = _Logits(frozen).eval().requires_grad_(False)
        tensors = (*frozen.parameters(), *frozen.buffers())
        self._device = tensors[0].device if tensors else torch.device("cpu")

    def run(self, rows: Array) -> Any:
        """The logits of each row, where the module is."""
        self._module.eval()  # a module may change its own mode
        with torch.no_grad():
            return self._module(torch.from_numpy(rows).to(self._device))

    def check_state(self, shape: tuple[int, ...]) -> None:
        """Refuse a module whose state changes when it is called, because its votes may change with it. Tensors that are
        not registered are ignored: many modules keep their last features in one."""
        before = fingerprint(self._module, unregistered=False)
        self.run(np.zeros((2, *shape), np.float32))
        if fingerprint(self._module, unregistered=False) != before:
            fix = "its votes must be a function of its input alone, so change the module"
            raise ModelError(self.name, "its forward changes its own parameters, buffers or attributes", fix)

    def write(self, shape: tuple[int, ...], folder: Path) -> Path:
        """Write it as an ONNX file for inputs of this shape."""
        path = folder / f"{self.name}.onnx"
        module = _move_to_cpu(self._module)
        if isinstance(module.module, ScriptModule):
            module.module = convert_script(module.module, shape, self.name, AS_IT_IS)
        write_onnx(module, shape, path, ["logits"], Path(self.name), instead=AS_IT_IS)
        return path


def _move_to_cpu(module: _Logits) -> _Logits:
    """A module on the CPU, with the tensors that are plain attributes of its layers, which `cpu()` leaves alone."""
    with torch.no_grad():
        module = copy.deepcopy(module).cpu()
    for layer in module.modules():
        for name, value in list(vars(layer).items()):
            if isinstance(value, Tensor):
                setattr(layer, name, value.cpu())
    return module


def check_parity(module: FrozenModule, run: Any, x: Array, mean: Array, scale: Array, family: str) -> None:
    """Raise an error unless the module and what was made of it have the same logits on noisy draws of an input."""
    noise = NoiseSettings(family, NoiseKind.ISOTROPIC, float(scale.min()))
    inputs = NoisyInputs(x[np.newaxis], None, mean[np.newaxis], scale[np.newaxis], noise)
    theirs = collect_logits(inputs, lambda rows: module.run(rows).cpu().numpy())
    ours = collect_logits(inputs, run)
    finite = np.isfinite(theirs)
    apart = float(np.abs(ours[finite] - theirs[finite]).max(initial=0) / np.abs(theirs[finite]).max(initial=1))
    if (np.isfinite(ours) != finite).any() or not apart <= LARGEST_DIFFERENCE:
        found = math.inf if (np.isfinite(ours) != finite).any() else apart
        problem = f"its logits as ONNX differ from torch's by {found:.2g} of the largest"
        raise NotExportable(module.name, problem, f"{AS_IT_IS}, and please report this with the module")
