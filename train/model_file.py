"""model.pt: a file of tensors and plain data only, so that it loads with weights_only=True and cannot run code.

It holds everything that export needs, and, until training has finished, the state that resuming needs.
"""

import dataclasses
import json
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ars.checks import whole_number
from ars.errors import ArgumentError, ArsError, ModelError, RunError, one_line
from ars.noise import NoiseKind, family_named
from ars.output import replacing
from ars.temporaries import temporary_file
from ars.train.batches import Images
from ars.train.classifiers import Normalize, make_classifier
from ars.train.noise_models import PAPERS_SIZE, Attenuation, DatasetNoise, GeneratorSize, NoiseShape, make_noise
from ars.train.plan import TrainingPlan
from ars.train.smoothing import SmoothedModel
from ars.train.weights import check_weights, load_weights, read_torch_file

__all__ = [
    "FORMAT",
    "ModelSettings",
    "build",
    "check_output",
    "find_unfinished",
    "load_model",
    "read_model_file",
    "read_unfinished",
    "write_model_file",
]

FORMAT = 1
# The state that resuming needs.
STATE = ("epoch", "optimizer", "schedule", "scaler", "metrics")


@dataclass(frozen=True)
class ModelSettings:
    """What describes a model, apart from its weights."""

    arch: str
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    pixel_mean: tuple[float, ...]
    pixel_deviation: tuple[float, ...]
    family: str
    kind: NoiseKind
    bounds: NoiseShape
    attenuated: bool = False
    """Whether the classifier begins with an Attenuation by its data set's scale map; not so in older files."""
    generator: GeneratorSize = PAPERS_SIZE
    """The size of the noise generator, of noise that depends on the input; the paper's in older files."""


def build(settings: ModelSettings) -> SmoothedModel:
    """Build the model that the settings describe, with initial weights."""
    family_named(settings.family)
    normalize = Normalize(settings.pixel_mean, settings.pixel_deviation)
    classifier = make_classifier(settings.arch, settings.shape, len(settings.classes), normalize)
    noise = make_noise(settings.kind, settings.shape, settings.bounds, settings.generator)
    if settings.attenuated:
        if not isinstance(noise, DatasetNoise):
            raise ArgumentError("attenuated", True, "only noise of the kind dataset has a map to attenuate by")
        # The other layers keep their names, so that weights of classifiers without this one can be loaded.
        layers = OrderedDict({"attenuation": Attenuation(noise), **dict(classifier.named_children())})
        classifier = nn.Sequential(layers)
    return SmoothedModel(classifier, noise, settings.bounds.sigma0)


def write_model_file(
    path: Path,
    settings: ModelSettings,
    model: SmoothedModel,
    training: dict[str, Any],
    examples: Images,
    state: dict[str, Any] | None = None,
) -> None:
    """Write the whole file, or leave an older one untouched. `training` records how the model was trained, `examples`
    are for calibrating and comparing exports, and `state` is what resuming needs."""
    content = {
        "format": FORMAT,
        "settings": dataclasses.asdict(settings) | {"kind": settings.kind.value},
        "weights": {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()},
        "training": training,
        "examples": {"x": examples.x, "labels": examples.labels},
        "state": state,
    }
    try:
        with replacing(path) as file:
            torch.save(content, file)
    except (OSError, RuntimeError) as error:
        # A RuntimeError of torch's only names a place in its source.
        reason = error.strerror if isinstance(error, OSError) else "the disk may be full"
        fix = "free some space and use --resume: the earlier checkpoint is intact"
        if not path.exists():
            fix = "free some space and start again: nothing was written"
        raise RunError(f"{path}: it cannot be written ({reason}); {fix}") from error


def check_output(path: Path) -> None:
    """Fail before training starts if no model.pt can be written at this path."""
    try:
        if path.exists() and not path.is_file():
            raise ModelError(path, "it is not a regular file", "choose another --output")
        with temporary_file(path):
            pass
    except OSError as error:
        raise ModelError(path, f"it cannot be written ({error.strerror})", "choose another --output") from error


def find_unfinished(path: Path) -> int | None:
    """The number of completed epochs of the unfinished run in this file, if there is one."""
    try:
        state = read_model_file(path)[1]["state"]
        return None if state is None else int(state["epoch"])
    except (ModelError, KeyError, TypeError, ValueError):
        return None


def read_model_file(path: Path, data: bytes | None = None) -> tuple[ModelSettings, dict[str, Any]]:
    """The settings of a model.pt, and its whole content."""
    content = read_torch_file(path, data)
    if not isinstance(content, dict) or "format" not in content:
        arch = content.get("arch") if isinstance(content, dict) else None
        named = f"--arch {arch}" if isinstance(arch, str) else "--arch"
        fix = f"give weights to ars-train with --init, or to ars-export with {named} and --weights"
        raise ModelError(path, "it was not written by ars-train", fix)
    found = content["format"]
    if not isinstance(found, int) or found != FORMAT:
        number = found if isinstance(found, int) else "not a number"
        raise ModelError(path, f"its format is {number}, but this version reads {FORMAT}", "update ARS")
    missing = [name for name in ("settings", "weights", "training", "examples", "state") if name not in content]
    if missing:
        raise ModelError(path, f"it has no {missing[0]!r}", "train it again")
    try:
        settings = dict(content["settings"])
        settings["kind"] = NoiseKind(settings["kind"])
        settings["bounds"] = NoiseShape(**settings["bounds"])
        settings["generator"] = GeneratorSize(**settings.get("generator", {}))
        for name in ("shape", "classes", "pixel_mean", "pixel_deviation"):
            settings[name] = tuple(settings[name])
        read = ModelSettings(**settings)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ModelError(path, f"its settings cannot be read ({error})", "train it again") from error
    for name in ("settings", "training"):
        if not _is_plain(content[name]):
            raise ModelError(path, f"its {name!r} is not a dictionary of plain data", "train it again")
    if not _are_examples(content["examples"], read):
        raise ModelError(path, "its examples are not labelled inputs of its shape", "train it again")
    return read, content


def _is_plain(data: object) -> bool:
    """Whether it is a dictionary that JSON, and so a manifest, can hold."""
    try:
        json.dumps(data)
    except (TypeError, ValueError, RecursionError):
        return False
    return isinstance(data, dict)


def _are_examples(data: object, settings: ModelSettings) -> bool:
    x, labels = (data.get("x"), data.get("labels")) if isinstance(data, dict) else (None, None)
    if not isinstance(x, torch.Tensor) or not isinstance(labels, torch.Tensor):
        return False
    if (x.dtype, labels.dtype) != (torch.float32, torch.int64) or tuple(x.shape[1:]) != settings.shape:
        return False
    if not len(x):  # then its shape could be any, and images of this shape would be made
        return False
    known = (labels >= 0) & (labels < len(settings.classes))
    return labels.shape == x.shape[:1] and bool(known.all()) and bool(torch.isfinite(x).all())


def load_model(path: Path, data: bytes | None = None) -> tuple[ModelSettings, SmoothedModel, dict[str, Any]]:
    """The settings of a model.pt, its model in evaluation mode on the CPU, and the whole content of the file.

    Unfinished models load too: `content["state"]` is None once training has finished. `data` is the file's content, if
    already read.
    """
    settings, content = read_model_file(path, data)
    with torch.device("meta"):  # takes no memory: a small file may declare a network of any size
        check_weights(_build_stored(settings, path), content["weights"], path)
    model = _build_stored(settings, path)
    load_weights(model, content["weights"], path)
    model.eval()
    return settings, model, content


def _build_stored(settings: ModelSettings, path: Path) -> SmoothedModel:
    """The model of a file's settings, with initial weights."""
    try:
        return build(settings)
    except ArsError:
        raise
    except Exception as error:  # torch raises many types of errors for impossible sizes
        raise ModelError(
            path, f"no model can be built from its settings ({one_line(error)})", "train it again"
        ) from error


def read_unfinished(path: Path, settings: ModelSettings, plan: TrainingPlan, data: str) -> dict[str, Any]:
    """The content of a checkpoint, if a run with these settings, on data with this fingerprint, can resume it."""
    earlier, content = read_model_file(path)
    training = content["training"]
    fields, plan_of_file = dataclasses.asdict(plan).keys(), training.get("plan")
    known = isinstance(plan_of_file, dict) and plan_of_file.keys() == fields
    if not known or not {"data", "threads"} <= training.keys():
        raise ModelError(path, "another version of ars-train started it", "omit --resume to start a new run")
    whole_number("threads", training["threads"], 1, 2**20, f"{path} was not written by ars-train")
    if training["data"] != data:
        raise ModelError(path, "it was started with other data", "use the same data, or omit --resume")
    for given, stored in (
        (dataclasses.asdict(settings), dataclasses.asdict(earlier)),
        (dataclasses.asdict(plan), training["plan"]),
    ):
        for name, value in given.items():
            if value != stored.get(name):
                problem = f"it was started with {name} = {stored.get(name)}, but this run has {value}"
                raise ModelError(path, problem, "use the same settings, or omit --resume")
    state = content["state"]
    if state is None:
        raise ModelError(path, "its training has finished", "choose another --output to start a new run")
    missing = [name for name in STATE if not isinstance(state, dict) or name not in state]
    if missing:
        raise ModelError(path, f"its training state has no {missing[0]!r}", "omit --resume to start a new run")
    return content
