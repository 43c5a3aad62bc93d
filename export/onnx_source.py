"""Open an ONNX file for export, without torch. It is taken as it is, or adapted to what the engine takes."""

from contextlib import closing
from pathlib import Path

import onnx
from onnx import TensorProto, helper

from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.errors import ModelError
from ars.export.adapter import adapt
from ars.export.graphs import MAX_BYTES, OPSET, opset_of, precision_of, read_onnx
from ars.export.source import OwnModel, Source
from ars.external_data import HashedModel, hash_model
from ars.manifest import manifest_beside

__all__ = ["isotropic_generator", "open_onnx"]


def open_onnx(path: Path, own: OwnModel) -> Source:
    if not path.exists():
        raise ModelError(path, "there is no such file", "give the path of an ONNX model")
    with closing(HashedModel(path)) as given:
        given.onnx_source("onnxruntime")  # refuses a model that is not safe to load
    model = read_onnx(path)
    precision, opset = precision_of(model), opset_of(model)
    stem = path.stem.removesuffix(f".{precision}")
    manifest = manifest_beside(path) if own.sigma is None else None
    if manifest is not None:
        own.refuse(path, "shape", "family", "classes", "pixel_mean", "pixel_deviation", "logits")
        generator = manifest.file("noise", path.parent) or isotropic_generator(manifest.shape, manifest.noise.sigma0)
        return Source(
            path,
            stem,
            manifest.shape,
            manifest.classes,
            manifest.noise,
            path,
            generator,
            OnnxRuntime(path).run,
            precision,
            opset,
            training=manifest.training,
        )
    size = path.stat().st_size + sum((path.parent / file.path).stat().st_size for file in hash_model(path).external)
    adapted = adapt(path, onnx.load(path), own) if size < MAX_BYTES else None
    noise = own.noise()
    if adapted is not None:
        own_names = adapted.classes if own.classes is None and adapted.classes else own.names(path, adapted.count)
        generator = isotropic_generator(adapted.shape, noise.sigma0)
        return Source(
            path,
            f"{stem}-ars",
            adapted.shape,
            own_names,
            noise,
            adapted.model,
            generator,
            adapted.run,
            precision,
            opset,
            changes=adapted.changes,
        )
    runner = OnnxRuntime(path)
    if None in runner.shape:  # only a model that is too large to be adapted
        raise ModelError(path, "its input shape is not fixed", "export it with fixed sizes for all axes but the batch")
    shape = tuple(side for side in runner.shape if side is not None)
    names, generator = own.names(path, runner.classes), isotropic_generator(shape, noise.sigma0)
    return Source(path, stem, shape, names, noise, path, generator, runner.run, precision, opset)


def isotropic_generator(shape: tuple[int, ...], sigma: float) -> onnx.ModelProto:
    """The noise generator of isotropic noise: a mean of 0 and one scale everywhere."""
    sides: list[str | int | None] = ["n", *shape]
    values = {"mean": 0.0, "scale": sigma}
    nodes = [helper.make_node("Shape", ["x"], ["sides"])]
    for name, value in values.items():
        fill = helper.make_tensor("value", TensorProto.FLOAT, [1], [value])
        nodes.append(helper.make_node("ConstantOfShape", ["sides"], [name], value=fill))
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, sides)
    maps = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sides) for name in values]
    graph = helper.make_graph(nodes, "isotropic", [x], maps)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
