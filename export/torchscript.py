"""Modules of torch.jit.trace and torch.jit.script: their bytes, and their conversion to what torch.export takes."""

import copy
import io
from pathlib import Path

import torch
from torch import nn
from torch.jit import ScriptModule

from ars.errors import NotExportable, one_line
from ars.export.graphs import silence

__all__ = ["ScriptModule", "convert_script", "script_bytes"]


def script_bytes(script: ScriptModule) -> bytes:
    """Its code, tensors and attributes, in evaluation mode."""
    saved = io.BytesIO()
    with torch.no_grad(), silence():  # with gradients, the copies of parameters would be no parameters
        torch.jit.save(copy.deepcopy(script).eval(), saved)
    return saved.getvalue()


def convert_script(script: ScriptModule, shape: tuple[int, ...], named: Path | str, fix: str) -> nn.Module:
    """A module that torch.export takes. Errors name `named`, and advise `fix`."""
    from torch._export.converter import TS2EPConverter  # as torch.onnx itself recommends

    try:
        with silence():
            own = torch.jit.load(io.BytesIO(script_bytes(script)))  # the converter changes code, which copies share
            module: nn.Module = TS2EPConverter(own, (torch.zeros(2, *shape),)).convert().module()
            for part in module.modules():  # notes about its nodes, which those of the next export may contradict
                for node in getattr(getattr(part, "graph", None), "nodes", ()):
                    node.meta.pop("custom", None)
    except Exception as error:  # it raises many types of errors
        problem = f"torch.export cannot convert its TorchScript ({one_line(error)})"
        raise NotExportable(named, problem, fix) from error
    return module
