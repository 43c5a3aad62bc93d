"""Weights that people have: a model.pt, a state_dict, a checkpoint of the field, safetensors.

The tensors of other projects have other names. They are matched by name once the prefixes of wrappers are removed: `1.`
of a network behind a normalisation layer, `module.` of DataParallel. The names of torchvision's ResNets are known; the
field's ResNets have the same. Other names are matched in the order of the file: each tensor must have the shape and the
kind (weight, bias, running_mean, ...) of its counterpart.
"""

import argparse
import errno
import io
import re
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from ars.errors import MissingPackage, ModelError, one_line
from ars.regular import check_regular

__all__ = ["Loaded", "check_weights", "load_weights", "program_kind", "read_torch_file", "start_from"]

Weights = dict[str, Tensor]

NESTED = ("state_dict", "model_state_dict", "model")
"""Where checkpoints keep the state_dict, among the state of the optimizer and the like."""
SAFETENSORS = ".safetensors"
_FIX = "use the architecture that the file was made with"
COUNTER = "num_batches_tracked"
"""Of batch normalisation. It does not matter for inference, and old checkpoints lack it."""
LARGEST_PLAIN = 10_000_000
"""The most values that a file may hold beside the numbers of its tensors."""
SMALL_TENSOR = 2**20
"""The bytes up to which a tensor may repeat its values."""
_SCALAR = np.float64(0).__reduce__()[0]
# Plain data that checkpoints of the field hold beside tensors: numbers of numpy, and the arguments of a script.
PLAIN: list[Any] = [
    argparse.Namespace,
    np.dtype,
    *(type(np.dtype(kind)) for kind in "fdilq?"),
    _SCALAR,
    (_SCALAR, "numpy.core.multiarray.scalar"),  # its name before numpy 2
]


@dataclass(frozen=True)
class Loaded:
    """How weights were loaded."""

    normalised: bool
    """Whether there was a layer before the network, which normalised its inputs, and whose numbers are not known."""
    note: str | None
    """What the user should know."""


def read_torch_file(path: Path, data: bytes | None = None) -> Any:
    """Load a PyTorch file of tensors and plain data; nothing in it is run. `data` is its content, if already read."""
    if not path.exists():
        raise ModelError(path, "there is no such file", "`ars-train` writes one")
    check_regular(path, ModelError)
    try:
        # The warnings are about odd pickles, which either load or fail.
        with warnings.catch_warnings(action="ignore"), torch.serialization.safe_globals(PLAIN):
            _check_size(path, data)
            content = torch.load(path if data is None else io.BytesIO(data), map_location="cpu", weights_only=True)
        _count_values(content, {}, path)
        return content
    except (MemoryError, ModelError):
        raise
    except Exception as error:  # a broken pickle may raise anything
        problem, fix = "it is not a whole PyTorch file of tensors and plain data", "give a model.pt or a state_dict"
        blocked = re.search(r"GLOBAL ([\w.]+) (?:was not an allowed|whose module)", str(error))
        if blocked:
            problem, fix = f"{problem} (it holds an object of {blocked[1]})", "save model.state_dict() instead"
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # EINVAL: a broken file
            problem = f"it cannot be read ({error.strerror})"
        raise ModelError(path, problem, f"{fix}; code and objects are not loaded") from error


def program_kind(file: Path | BinaryIO) -> str | None:
    """Tell TorchScript and torch.export files apart by the members of the archive; None for other files."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = {name.partition("/")[2] for name in archive.namelist()}
    except (OSError, zipfile.BadZipFile):
        return None
    if "models/model.json" in members or "serialized_exported_program.json" in members:
        return "torch.export"
    return "TorchScript" if any(name.startswith("code/") for name in members) else None


def _check_size(path: Path, data: bytes | None) -> None:
    """Refuse a file that unpacks to more than its size: torch compresses nothing."""
    file = path if data is None else io.BytesIO(data)
    if kind := program_kind(file):
        raise ModelError(path, f"it is a {kind} file", "run `ars-export` on it, and use the ONNX file that it writes")
    if zipfile.is_zipfile(file):
        size = path.stat().st_size if data is None else len(data)
        with zipfile.ZipFile(file) as archive:
            if sum(member.file_size for member in archive.infolist()) > size:
                raise ModelError(path, f"it unpacks to more than its {size} bytes", "do not use this file")


def _count_values(value: Any, counts: dict[int, int], path: Path) -> int:
    """The number of values in plain data if nothing were shared. Refuses data that is far larger so than in the file:
    lists that hold one list many times, and tensors that repeat a few numbers."""
    if isinstance(value, Tensor):
        size = value.numel() * value.element_size()
        if value.layout == torch.strided and size > max(SMALL_TENSOR, value.untyped_storage().nbytes()):
            raise ModelError(path, f"it has a tensor of {tuple(value.shape)} that repeats its values", "save it again")
        return 1
    if not isinstance(value, dict | list | tuple | set | frozenset | argparse.Namespace):
        return 1
    if id(value) not in counts:
        counts[id(value)] = LARGEST_PLAIN  # a list that holds itself
        parts = vars(value) if isinstance(value, argparse.Namespace) else value
        inside = [*parts.keys(), *parts.values()] if isinstance(parts, dict) else parts
        counts[id(value)] = 1 + sum(_count_values(part, counts, path) for part in inside)
    if counts[id(value)] > LARGEST_PLAIN:
        raise ModelError(path, f"it has more than {LARGEST_PLAIN:,} values beside its tensors", "save it again")
    return counts[id(value)]


def start_from(path: Path, classifier: nn.Module) -> Loaded:
    """Load weights into a classifier, which is our normalisation layer and a network. Weights without our layer, as
    other projects write them, are loaded into the network behind it."""
    weights = _read(path)
    # The attenuation belongs to the noise, which is trained anew.
    weights = {name: tensor for name, tensor in weights.items() if not name.startswith("attenuation.")}
    normalize, network = classifier.get_submodule("0"), classifier.get_submodule("1")
    if {"0.mean", "0.deviation"} <= weights.keys():
        load_weights(nn.Sequential(normalize, network), weights, path)
        return Loaded(normalised=False, note=None)
    weights = {_without_wrappers(name): tensor for name, tensor in weights.items()}
    expected = network.state_dict()
    normalised = _is_behind_a_layer(weights) and _names(weights) != _names(expected)
    if normalised:
        weights = {name.removeprefix("1."): tensor for name, tensor in weights.items() if name.startswith("1.")}
    if _names(weights) == _names(expected):
        load_weights(network, {name: weights.get(name, tensor) for name, tensor in expected.items()}, path)
        return Loaded(normalised, note=None)
    known = all(_TORCHVISION.fullmatch(name) for name in _names(weights))
    if known:
        weights = dict(sorted(weights.items(), key=lambda item: _place(item[0])))
    elif path.suffix == SAFETENSORS:
        first = next(iter(_names(weights) - _names(expected)), None) or next(iter(_names(expected) - _names(weights)))
        problem = f"its names are not those of the architecture (the tensor {first!r}), and safetensors keeps no order"
        raise ModelError(path, problem, "save the state_dict with torch.save, which does")
    load_weights(network, _match_in_order(weights, expected, path), path)
    note = None if known else f"{path.name}: its tensors have other names, and were matched by order, shape and kind"
    return Loaded(normalised, note)


_KINDS = ("weight", "bias", "running_mean", "running_var", COUNTER)
_TORCHVISION = re.compile(
    r"(?:layer(?P<stage>\d+)\.(?P<block>\d+)\.)?"
    r"(?:(?:conv|(?P<norm>bn))(?P<layer>\d)|(?P<last>downsample|fc)(?:\.(?P<part>[01]))?)"
    rf"\.(?P<kind>{'|'.join(_KINDS)})"
)


def _place(name: str) -> tuple[int, ...]:
    """The place of a tensor in a ResNet, by its name in torchvision: in the order of the layers, as in ours."""
    found = _TORCHVISION.fullmatch(name)
    assert found is not None
    stage = 99 if found["last"] == "fc" else int(found["stage"] or 0)
    layer = 9 if found["last"] else int(found["layer"])
    part = int(found["part"] or 0) + bool(found["norm"])
    return stage, int(found["block"] or 0), layer, part, _KINDS.index(found["kind"])


def load_weights(model: nn.Module, weights: Weights, path: Path) -> None:
    """Load weights; an error names the first tensor that does not fit."""
    check_weights(model, weights, path)
    model.load_state_dict(weights)


def check_weights(model: nn.Module, weights: Weights, path: Path) -> None:
    """Refuse weights that are not those of the model's architecture."""
    if not isinstance(weights, dict) or not all(isinstance(tensor, Tensor) for tensor in weights.values()):
        raise ModelError(path, "its weights are not a dictionary of tensors", "train it again")
    expected = model.state_dict()
    for name in [*expected, *weights]:
        have, want = weights.get(name), expected.get(name)
        if have is None or want is None or have.shape != want.shape:
            found = "missing" if have is None else tuple(have.shape)
            wanted = "none" if want is None else tuple(want.shape)
            problem = f"its tensor {name!r} is {found}, but the architecture has {wanted}"
            raise ModelError(path, problem, _FIX)


def _read(path: Path) -> Weights:
    """The tensors of a file by their names: those of the classifier, for a model.pt."""
    if path.suffix == SAFETENSORS:
        return _read_safetensors(path)
    content = read_torch_file(path)
    if isinstance(content, dict) and "format" in content and isinstance(content.get("weights"), dict):
        prefix = "classifier."
        content = {k.removeprefix(prefix): v for k, v in content["weights"].items() if k.startswith(prefix)}
    elif isinstance(content, dict):
        content = next((content[name] for name in NESTED if isinstance(content.get(name), dict)), content)
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        problem = "it is neither a model.pt nor a state_dict, nor a checkpoint with one"
        raise ModelError(path, problem, "save model.state_dict()")
    if not content:
        raise ModelError(path, "it holds no tensors", "save model.state_dict()")
    return dict(content)


def _read_safetensors(path: Path) -> Weights:
    try:
        from safetensors.torch import load_file
    except ModuleNotFoundError as error:
        raise MissingPackage("safetensors", "train") from error
    if not path.exists():
        raise ModelError(path, "there is no such file", "give the path of the weights")
    try:
        return dict(load_file(path))
    except Exception as error:  # safetensors has an error class of its own in each version
        raise ModelError(path, f"it is not a whole safetensors file ({one_line(error)})", "save it again") from error


def _without_wrappers(name: str) -> str:
    """A tensor's name without the parts that DataParallel and torch.compile add."""
    return ".".join(part for part in name.split(".") if part not in ("module", "_orig_mod"))


def _is_behind_a_layer(weights: Weights) -> bool:
    """Whether these are the weights of a network behind a normalisation layer, which has no tensors, or small ones."""
    before = [tensor for name, tensor in weights.items() if not name.startswith("1.")]
    small = all(tensor.numel() <= 4 for tensor in before) and len(before) <= 2
    return small and len(before) < len(weights) and all(name.startswith(("0.", "1.")) for name in weights)


def _names(weights: Weights) -> set[str]:
    return {name for name in weights if not name.endswith(COUNTER)}


def _match_in_order(weights: Weights, expected: Weights, path: Path) -> Weights:
    """The weights under the names that are expected, one after the other."""
    have = [(name, tensor) for name, tensor in weights.items() if not name.endswith(COUNTER)]
    want = [(name, tensor) for name, tensor in expected.items() if not name.endswith(COUNTER)]
    for (found, tensor), (name, wanted) in zip(have, want, strict=False):
        if tensor.shape != wanted.shape or _kind(found) != _kind(name):
            problem = f"its tensor {found!r} is {tuple(tensor.shape)}, but the architecture has {name!r} there, "
            raise ModelError(path, f"{problem}of {tuple(wanted.shape)}", _FIX)
    if len(have) != len(want):
        longer, has = (have, "the file") if len(have) > len(want) else (want, "the architecture")
        first = longer[min(len(have), len(want))][0]
        raise ModelError(path, f"only {has} has the tensor {first!r}, and those after it", _FIX)
    matched = {name: tensor for (_, tensor), (name, _) in zip(have, want, strict=True)}
    return {name: matched.get(name, tensor) for name, tensor in expected.items()}


def _kind(name: str) -> str:
    return name.rpartition(".")[2]
