"""What can be exported: a model.pt written by ars-train, or a model of the user's own. That is an architecture with
weights, or a TorchScript or torch.export file. ONNX files are opened without torch, by
`onnx_source.py`."""

import dataclasses
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ars.errors import ArgumentError, ArsError, ModelError, one_line
from ars.export.examples import Examples
from ars.export.graphs import silence
from ars.export.source import Array, OwnModel, Source
from ars.export.torchscript import convert_script
from ars.manifest import NoiseSettings
from ars.train.classifiers import Normalize, make_classifier, usual_pixels
from ars.train.model_file import load_model
from ars.train.noise_models import IsotropicNoise
from ars.train.weights import program_kind, start_from

__all__ = ["open_torch_source"]

# The operators of TorchScript that read or write a file of any name.
_FILE_OPERATORS = re.compile(rb"\b(?:torch|ops\.\w+)\.(from_file|save)\b")

FIELD_PIXELS = (
    "in the field's scripts: 0.4914,0.4822,0.4465 and 0.2023,0.1994,0.2010 for CIFAR-10, "
    "0.485,0.456,0.406 and 0.229,0.224,0.225 for ImageNet"
)


def open_torch_source(path: Path | None, own: OwnModel) -> Source:
    """Open the model at this path, or the architecture and weights that the user names."""
    own.refuse(path or Path(str(own.arch)), "logits")
    if own.arch is not None:
        return _open_architecture(path, own)
    if path is None:
        raise ArgumentError("model", None, "give a file, or --arch and --weights")
    if own.weights is not None:
        raise ArgumentError("weights", own.weights, "they need --arch")
    kind = program_kind(path)
    if kind is not None:
        return _open_program(path, kind, own)
    source = _open_trained(path)
    own.refuse(path, "shape", "classes", "pixel_mean", "pixel_deviation", "sigma", "family")
    return source


def _returns_object_of_transformers(path: Path) -> bool:
    """Whether a torch.export file says that its output is one of the classes of Hugging Face's transformers, which
    torch knows only where transformers is imported."""
    with zipfile.ZipFile(path) as archive:
        programs = [name for name in archive.namelist() if name.endswith(".json")]
        return any(b"transformers.modeling_outputs." in archive.read(name) for name in programs)


def _open_trained(path: Path) -> Source:
    settings, model, content = load_model(path)
    if content["state"] is not None:
        raise ModelError(path, "its training has not finished", "resume it with `ars-train --resume`")
    kept = content["examples"]
    return Source(
        path=path,
        stem=path.stem,
        shape=settings.shape,
        classes=settings.classes,
        noise=NoiseSettings(settings.family, settings.kind, settings.bounds.sigma0),
        classifier=model.classifier,
        generator=model.noise,
        run=_run_by_torch(model.classifier),
        examples=Examples(kept["x"].numpy(), kept["labels"].numpy()),
        training=content["training"],
        trained=True,
    )


def _open_architecture(path: Path | None, own: OwnModel) -> Source:
    if path is not None:
        raise ArgumentError("arch", own.arch, f"it needs --weights instead of the file {path}")
    if own.arch is None or own.weights is None or own.shape is None or own.classes is None:
        raise ArgumentError("arch", own.arch, "it needs --weights, --shape and --classes")
    arch, weights, shape, noise = own.arch, own.weights, own.shape, own.noise()
    count = own.count(own.classes)
    if count < 2:
        raise ArgumentError("classes", count, "a classifier has at least two classes")
    notes: list[str | None] = []
    stated = own.pixel_mean is not None or own.pixel_deviation is not None
    usual = None if stated else usual_pixels(arch, shape[0])
    if usual is not None:
        own = dataclasses.replace(own, pixel_mean=usual[0], pixel_deviation=usual[1])
        shown = " and ".join(",".join(f"{value:g}" for value in values) for values in usual)
        notes.append(f"pixels are normalised with {shown}, as timm's weights of {arch} expect")
    try:
        classifier = make_classifier(arch, shape, count, Normalize(*own.normalisation(shape[0])))
    except ArsError:
        raise
    except Exception as error:  # torch raises many types of errors for impossible sizes
        raise ArgumentError("shape", shape, f"{arch} does not take it ({one_line(error)})") from error
    loaded = start_from(weights, classifier)
    if loaded.normalised and not stated:
        problem = "its network was behind a layer that normalised pixels, whose numbers it does not hold"
        raise ModelError(weights, problem, f"give --pixel-mean and --pixel-deviation ({FIELD_PIXELS})")
    source = _from_module(weights, classifier.eval(), shape, own, noise)
    return dataclasses.replace(source, notes=tuple(note for note in (*notes, loaded.note) if note is not None))


def _open_program(path: Path, kind: str, own: OwnModel) -> Source:
    """Open a TorchScript file, which holds TorchScript code and no Python, or a torch.export file."""
    _refuse_surprises(path, kind)
    noise = own.noise()
    try:
        with silence():
            loaded = torch.jit.load(path, map_location="cpu") if kind == "TorchScript" else torch.export.load(path)
    except Exception as error:  # both raise many types of errors
        if _returns_object_of_transformers(path):
            fix = "export a module that returns model(x).logits, or give the model itself to ars.load in Python"
            raise ModelError(path, "it returns an object of transformers, and not only logits", fix) from error
        problem = f"{kind} cannot load it ({one_line(error)})"
        raise ModelError(path, problem, "save it again with the installed torch") from error
    with silence():
        open_one = _open_torchscript if kind == "TorchScript" else _open_exported
        module, shape = open_one(path, loaded, own.shape)
    if own.pixel_mean is not None or own.pixel_deviation is not None:
        module = nn.Sequential(Normalize(*own.normalisation(shape[0])), module)
    return _from_module(path, module, shape, own, noise)


def _refuse_surprises(path: Path, kind: str) -> None:
    """Refuse a program that the user may take for weights, and one that opens files. Both kinds are programs, and are
    used only from sources that the user trusts; a torch.export file can name any function of Python."""
    if kind == "torch.export":
        if path.suffix != ".pt2":
            problem = "it is a torch.export file, whose program can do whatever you can"
            raise ModelError(path, problem, "give it the suffix .pt2 if you trust its source")
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.namelist():
            used = _FILE_OPERATORS.search(archive.read(member)) if member.endswith(".py") else None
            if used:
                problem = f"its program reads or writes files (torch.{used[1].decode()})"
                raise ModelError(path, problem, "save a module that only computes logits")


def _needed_shape(path: Path, shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if shape is None:
        raise ModelError(path, "it does not state its input shape", "give --shape, like 3,32,32")
    return shape


def _open_torchscript(path: Path, script: Any, given: tuple[int, ...] | None) -> tuple[nn.Module, tuple[int, ...]]:
    shape = _needed_shape(path, given)
    _count_classes(path, script.eval(), shape)
    return convert_script(script, shape, path, "save the model with torch.export instead"), shape


def _open_exported(path: Path, program: Any, given: tuple[int, ...] | None) -> tuple[nn.Module, tuple[int, ...]]:
    """Open a torch.export program. It states its input shape, with numbers where a side is fixed; the other sides come
    from its example input."""
    first = next(iter(program.graph_signature.user_inputs), None)
    x = next((node.meta.get("val") for node in program.graph.nodes if node.name == first), None)
    batch, *sides = x.shape if isinstance(x, torch.Tensor) and x.ndim > 1 else (None,)
    if not sides:
        raise ModelError(path, "its first input is not a batch", "export a classifier of images")
    if isinstance(batch, int):
        fix = "export it with a dynamic batch, torch.export.Dim('n')"
        raise ModelError(path, "it takes batches of one size only", fix)
    example = tuple(program.example_inputs[0][0].shape[1:]) if program.example_inputs else None
    shape = _needed_shape(path, given or example)
    fixed = tuple(side if isinstance(side, int) else None for side in sides)
    if len(shape) != len(fixed) or any(a not in (None, b) for a, b in zip(fixed, shape, strict=True)):
        takes = ", ".join(str(side or "any") for side in fixed)
        raise ModelError(
            path, f"it takes inputs of shape ({takes}), but --shape is {shape}", "give the shape that it takes"
        )
    return program.module(), shape


def _count_classes(path: Path, module: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of classes of a module that maps a batch of this shape to logits. Other modules are an error."""
    try:
        with torch.no_grad():
            logits = module(torch.zeros(2, *shape))
    except Exception as error:  # torch raises many types of errors for shapes that do not fit
        sides = ", ".join(map(str, shape))
        problem = f"it does not take a batch of inputs of shape {sides} ({_reason(error)})"
        raise ModelError(path, problem, "give the --shape that it takes") from error
    if not isinstance(logits, torch.Tensor):
        raise ModelError(
            path, f"it returns a {type(logits).__name__}", "it must return only the logits, batch x classes"
        )
    if logits.ndim != 2 or logits.shape[1] < 2:
        found = tuple(logits.shape)
        raise ModelError(
            path, f"it returns the shape {found} for a batch of 2", "it must return logits, batch x classes"
        )
    return logits.shape[1]


def _reason(error: Exception) -> str:
    """The last line of torch's message; the lines before it are a traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:200] if lines else type(error).__name__


def _from_module(path: Path, module: nn.Module, shape: tuple[int, ...], own: OwnModel, noise: NoiseSettings) -> Source:
    names = own.names(path, _count_classes(path, module, shape))
    generator = IsotropicNoise(noise.sigma0)
    return Source(path, path.stem, shape, names, noise, module, generator, _run_by_torch(module))


def _run_by_torch(module: nn.Module) -> Callable[[Array], Array]:
    def run(batch: Array) -> Array:
        with torch.no_grad():
            logits: Array = module(torch.from_numpy(batch)).numpy()
        return logits

    return run
