"""model.pt to the files of a model: model.onnx, model.noise.onnx and the manifest model.json."""

import logging
import os
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from torch import nn

from ars.data.pixels import file_sha256
from ars.errors import ModelError, RunError
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import family_named
from ars.train.model_file import load_model
from ars.train.smoothing import SmoothedModel, standard_noise

__all__ = ["Parity", "export_model"]

OPSET = 18
# Logits of ONNX Runtime and torch differ by rounding only.
LARGEST_DIFFERENCE = 1e-3


@dataclass(frozen=True)
class Parity:
    """How the exported classifier compares with torch's, on noisy draws."""

    draws: int
    largest_difference: float
    """Of two logits."""
    agreement: float
    """The share of draws with the same top class."""


def export_model(path: Path, folder: Path) -> tuple[list[Path], Parity]:
    """Write the files of the model beside each other, each whole or not at all."""
    settings, model, content = load_model(path)
    if content["state"] is not None:
        raise ModelError(path, "its training is not done", "go on with `ars-train --resume`")
    names = {"classifier": f"{path.stem}.onnx", "noise": f"{path.stem}.noise.onnx"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".export-") as draft:
            _write_onnx(model.classifier, settings.shape, Path(draft) / names["classifier"], ["logits"])
            _write_onnx(model.noise, settings.shape, Path(draft) / names["noise"], ["mean", "scale"])
            parity = _measure(model, settings.family, settings.shape, Path(draft) / names["classifier"])
            files = tuple(ModelFile(role, name, file_sha256(Path(draft) / name)) for role, name in names.items())
            noise = NoiseSettings(settings.family, settings.kind, settings.bounds.sigma0)
            manifest = Manifest(settings.shape, settings.classes, noise, files)
            manifest.write(Path(draft) / f"{path.stem}.json")
            written = [folder / name for name in (*names.values(), f"{path.stem}.json")]
            for final in written:
                os.replace(Path(draft) / final.name, final)
    except OSError as error:
        raise ModelError(folder, f"it cannot be written ({error.strerror})", "choose another --output") from error
    return written, parity


def _write_onnx(module: nn.Module, shape: tuple[int, ...], path: Path, outputs: list[str]) -> None:
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns of packages that are not needed here
    with warnings.catch_warnings(action="ignore"):
        program = torch.onnx.export(
            module,
            (torch.zeros(2, *shape),),
            input_names=["x"],
            output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim("n")},),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    model = program.model_proto
    # The exporter writes source lines and paths of this machine beside each node.
    for part in (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info):
        del part.metadata_props[:]
    onnx.save(model, path)


@torch.no_grad()
def _measure(model: SmoothedModel, family: str, shape: tuple[int, ...], path: Path) -> Parity:
    """Compare the file with torch on noisy draws of random images, and refuse a file that computes something else."""
    from ars.engine.runners.onnxruntime import OnnxRuntime

    generator = torch.Generator().manual_seed(0)
    x = torch.rand(16, *shape, generator=generator)
    mean, scale = model.noise(x)
    noisy = (x + mean + scale * standard_noise(family_named(family), x, 16, generator)).flatten(0, 1)
    ours, theirs = OnnxRuntime(path).run(noisy.numpy()), model.classifier(noisy).numpy()
    difference = float(np.abs(ours - theirs).max() / max(1.0, float(np.abs(theirs).max())))
    if not difference <= LARGEST_DIFFERENCE:
        raise RunError(f"{path.name} differs from torch by {difference:.2g} of the largest logit; nothing was written")
    return Parity(len(noisy), difference, float((ours.argmax(1) == theirs.argmax(1)).mean()))
