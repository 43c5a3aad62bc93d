"""Convert a PyTorch module to an ONNX file with a dynamic batch and no paths of this machine. The weights are inside
the file, unless they exceed 2 GB."""

import re
from pathlib import Path

import onnx
import torch
from torch import nn

from ars.errors import NotExportable, one_line
from ars.export.graphs import MAX_BYTES, OPSET, silence

__all__ = ["write_onnx"]


def write_onnx(
    module: nn.Module, shape: tuple[int, ...], path: Path, outputs: list[str], source: Path, instead: str | None = None
) -> None:
    """Write the function `x` -> `outputs` for batches of any size. Errors name `source`, where the module came from,
    and what can be done `instead`.

    Weights of more than MAX_BYTES are written to a separate file with the suffix .data.
    """
    tensors = [*module.parameters(), *module.buffers()]
    large = sum(tensor.numel() * tensor.element_size() for tensor in tensors) > MAX_BYTES
    with silence():
        program = _trace(module, shape, source, instead)
        try:
            converted = torch.onnx.export(
                program, input_names=["x"], output_names=outputs, opset_version=OPSET, dynamo=True, verbose=False
            )
        except Exception as error:  # the exporter raises many types of errors
            raise _conversion_error(error, program, source, instead) from error
    assert converted is not None
    if large:
        converted.save(path, external_data=True)
        model = onnx.load(path, load_external_data=False)
    else:
        model = converted.model_proto
    # The exporter attaches source lines and paths of this machine to each node.
    for part in (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info):
        del part.metadata_props[:]
    _name_batch(model)
    onnx.save(model, path)


def _trace(
    module: nn.Module, shape: tuple[int, ...], source: Path, instead: str | None
) -> torch.export.ExportedProgram:
    try:
        return torch.export.export(
            module, (torch.zeros(2, *shape),), dynamic_shapes=({0: torch.export.Dim("n")},), strict=False
        )
    except Exception as error:  # torch.export raises many types of errors
        reason = str(error)
        if "specialized it to be a constant" in reason:
            problem, fix = "it takes batches of one size only", "export it with a dynamic batch, torch.export.Dim('n')"
        elif "data-dependent" in reason:
            place = re.search(r'File "([^"]+)", line (\d+), in \w+\n\s*(.+)', reason)
            where = f" ({Path(place[1]).name}:{place[2]}: {place[3].strip()})" if place else ""
            problem = f"its control flow depends on the values of its input{where}"
            fix = "rewrite that `if` or loop with torch.where or torch.cond"
        else:
            problem, fix = f"torch.export cannot trace it ({one_line(reason)})", "make it work with torch.export first"
        raise NotExportable(source, problem, _or(fix, instead)) from error


def _or(fix: str, instead: str | None) -> str:
    return fix if instead is None else f"{fix}, or {instead}"


def _conversion_error(
    error: BaseException, program: torch.export.ExportedProgram, source: Path, instead: str | None
) -> NotExportable:
    """An error that names the operator that ONNX lacks, and the module that uses it."""
    reason = ""
    cause: BaseException | None = error
    while cause is not None:
        missing = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", str(cause))
        if missing:
            name = missing[1].rpartition(".")[2]
            where = _module_path(program, name)
            problem = f"its operator {missing[1]}{where} has no counterpart in ONNX"
            return NotExportable(source, problem, _or("replace it in the model with operators that have one", instead))
        reason, cause = str(cause), cause.__cause__
    problem = f"it cannot be converted to ONNX ({one_line(reason)})"
    return NotExportable(source, problem, _or("change the model there", instead))


def _module_path(program: torch.export.ExportedProgram, operator: str) -> str:
    for node in program.graph.nodes:
        if node.op == "call_function" and operator in str(node.target):
            stack = [path for path, _ in (node.meta.get("nn_module_stack") or {}).values()]
            return f", in the module {stack[-1]!r}," if stack and stack[-1] else ""
    return ""


def _name_batch(model: onnx.ModelProto) -> None:
    """Name the batch dimension n throughout."""
    batch = model.graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for side in value.type.tensor_type.shape.dim:
            if side.dim_param == batch:
                side.dim_param = "n"
