"""Every reader of files: a few good files for each, how they are mutated, and how they are read."""

import gzip
import hashlib
import importlib.util
import io
import json
import math
import pickle
import random
import struct
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import torch
from click.testing import CliRunner
from onnx import ModelProto
from PIL import Image
from safetensors.torch import save as save_safetensors
from support import models
from support.export_runs import write_model

import ars.trial
from ars.bench.attack.attack_file import AttackSettings, open_attack_file, read_attacks
from ars.bench.report.attacks import RunAttacks
from ars.bench.run.result_file import read_result
from ars.data import ImageSize, open_data
from ars.data.labels import read_classes
from ars.engine.noise_maps import Maps
from ars.engine.records.covers import read_perturbed
from ars.engine.records.merge import merge_runs
from ars.engine.records.store import read_header
from ars.engine.runners.onnxruntime import OnnxRuntime
from ars.engine.runners.openvino import OpenVino
from ars.errors import ModelError
from ars.manifest import Manifest, manifest_beside
from ars.train.model_file import load_model
from ars.train.weights import _read as read_weights
from ars.train.weights import read_torch_file
from fuzz import mutations as m

STORES = Path(__file__).parent.parent / "data" / "stores"
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (6, 8, 8, 3), dtype=np.uint8)


class Odd(Exception):
    """A reader did something that it must not do, and raised nothing."""


@dataclass(frozen=True)
class Reader:
    """One kind of file."""

    name: str
    file: str
    """The name of the file, whose suffix decides how it is read."""
    make: Callable[[], bytes]
    """A good file."""
    mutate: Callable
    read: Callable[[Path], object]
    share: int = 4
    """Its share of the mutations."""
    beside: dict[str, Callable[[], bytes]] = field(default_factory=dict)
    """Good files that belong to it."""


def _data(path: Path) -> None:
    for size in (ImageSize(channels=3), ImageSize(resize=16, crop=8)):
        try:
            data = open_data(str(path), size)
        except Exception:
            if size.resize is None:
                raise
            continue  # arrays are not resized
        data.fingerprint()
        for index in {0, len(data) - 1}:
            example = data[index]
            if example.x.dtype != np.float32 or not np.isfinite(example.x).all():
                raise Odd("values that are not finite")


def _image(kind: str, **options) -> Callable[[], bytes]:
    def make() -> bytes:
        file = io.BytesIO()
        Image.fromarray(PIXELS[0]).save(file, kind, **options)
        return file.getvalue()

    return make


def _saved(save: Callable, **arrays) -> bytes:
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def _npz() -> bytes:
    return _saved(np.savez_compressed, x=PIXELS, y=np.arange(6), other=np.zeros(3))


def _npy() -> bytes:
    return _saved(lambda file: np.save(file, PIXELS.astype(np.float32) / 255))


def _maps() -> bytes:
    return _saved(np.savez, mean=np.zeros((1, 4, 4)), scale=np.ones((1, 4, 4), np.float32))


def _idx(axes: int) -> bytes:
    shape = (6, 8, 8)[:axes]
    return bytes([0, 0, 8, axes]) + struct.pack(f">{axes}I", *shape) + PIXELS[..., 0].tobytes()[: int(np.prod(shape))]


def _archive_files() -> list[tuple[str, bytes]]:
    return [(f"{name}/{number}.png", _image("PNG")()) for name in ("cat", "dog") for number in range(2)]


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in _archive_files():
            archive.writestr(name, content)
    return file.getvalue()


def _tar(mode: str = "w") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode, format=tarfile.PAX_FORMAT) as archive:
        for name, content in _archive_files():
            info = tarfile.TarInfo(name)
            info.size, info.pax_headers = len(content), {"comment": "x"}
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def _cifar() -> bytes:
    images = np.resize(PIXELS, (3, 3072))
    return pickle.dumps({b"data": images, b"labels": [0, 1, 2], b"filenames": [b"a", b"b", b"c"]}, 2)


def _parquet() -> bytes:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    rows = [{"bytes": _image("PNG")(), "path": "a.png"}] * 4
    parquet.write_table(pyarrow.table({"image": rows, "label": [0, 1, 0, 1]}), file)
    return file.getvalue()


def _made(make: Callable[[Path], Path]) -> Callable[[], bytes]:
    def read() -> bytes:
        with tempfile.TemporaryDirectory() as place:
            return make(Path(place) / "m.onnx").read_bytes()

    return read


_structure = importlib.util.spec_from_file_location("structure", Path(ars.trial.__file__).with_name("structure.py"))
assert _structure is not None
assert _structure.loader is not None
structure = importlib.util.module_from_spec(_structure)
_structure.loader.exec_module(structure)


def _check_structure(path: Path) -> None:
    try:
        model = ModelProto.FromString(path.read_bytes())
    except Exception as error:  # protobuf has errors of its own
        raise ModelError(path, "it is not an ONNX model", "export it again") from error
    problem = structure.find_problem(model)
    if problem:
        raise ModelError(path, problem, "export it again")


def _load(runner: type) -> Callable[[Path], object]:
    def load(path: Path) -> object:
        opened = runner(path, 1)
        if None in opened.shape:
            return None
        return opened.run(np.zeros((2, *opened.shape), np.float32))

    return load


MANIFEST = {
    "format": 1,
    "shape": [1, 4, 4],
    "classes": ["a", "b", "c"],
    "noise": {"family": "gaussian", "kind": "isotropic", "sigma0": 0.5},
    "dtype": "float32",
    "range": [0, 1],
    "training": {"plan": {"epochs": 3, "weights": [1, 0.5]}},
    "files": [
        {
            "role": "classifier",
            "path": "model.onnx",
            "sha256": "0" * 64,
            "precision": "fp32",
            "parity": {
                "reference": "torch",
                "runner": "onnxruntime 1",
                "inputs": 2,
                "draws": 10,
                "largest_difference": 0.1,
                "agreement": 1.0,
                "certified_accuracy_difference": None,
            },
            "build": {
                "flavour": "tensorrt",
                "version": "10",
                "compute_capabilities": ["8.0"],
                "profile": {"min_batch": 1, "opt_batch": 2, "max_batch": 4},
                "source": "model.onnx",
                "source_sha256": "0" * 64,
            },
            "external": [{"path": "w.data", "sha256": "0" * 64}],
        }
    ],
}


def _manifest(path: Path) -> None:
    manifest = Manifest.read(path)
    manifest.write(path.with_name("again.json"))
    if Manifest.read(path.with_name("again.json")) != manifest:
        raise Odd("a manifest that does not come back")
    _inspect(path)


def _bench() -> bytes:
    row = dict.fromkeys(("name", "backend", "precision", "stopping", "noise", "sha256"), "a")
    row |= dict.fromkeys(("batch", "threads", "draws", "inputs"), 3) | {"extrapolated": False, "once": 0.1}
    row |= {"draws_per_sample": 10.5, "seconds": [0.1, 0.2]}
    facts = {"format": 1, "network": "a", "n0": 1, "n": 2, "rounds": 2, "measurements": [row], "left_out": ["b"]}
    return json.dumps(facts | {"environment": {"cpu": "x", "cores": 2}}).encode()


def _show_bench(path: Path) -> None:
    from ars.bench.run.export import EXPORTERS

    result = read_result(path)
    for export in EXPORTERS.values():
        export(result).encode()


ATTACKED_RUN = read_header(STORES / "fixed.sqlite").settings


def _attacks() -> bytes:
    settings = {"run": ATTACKED_RUN.to_json()} | dict.fromkeys(("seed", "n", "steps", "draws", "restarts"), 3)
    settings |= {"model": "a", "alpha": 0.1, "reach": 3.0, "moves_maps": False, "format": 1}
    success = {"answer": 1, "measure": 0.6, "length": 0.3, "counts": [9, 1, 0], "level": 0.05}
    one = {"idx": 0, "input_sha256": "a", "predicted": 0, "K": 0.5, "radius": 0.25, "limit": 1.5, "tests": 2}
    lines = [settings, one | {"seconds": 0.1, "success": success}]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


def _show_attacks(path: Path) -> None:
    read = read_attacks(path.with_name("r.sqlite"), ATTACKED_RUN)
    for one in () if read is None else read[1]:
        RunAttacks(read[0], {one.idx: one}).show(one.idx)
        if not math.isfinite(one.ratio or 0.0):
            raise Odd("an attack of no size")
    with open_attack_file(path, AttackSettings(**json.loads(_attacks().split(b"\n")[0])), any_seed=True):
        pass


def _torch() -> bytes:
    file = io.BytesIO()
    tensors = {"0.weight": torch.ones(3, 4), "0.bias": torch.zeros(3)}
    torch.save({"format": 1, "weights": tensors, "settings": {"shape": (1, 4, 4)}, "state": None}, file)
    return file.getvalue()


@lru_cache
def _trained() -> bytes:
    with tempfile.TemporaryDirectory() as place:
        write_model(Path(place) / "model.pt", "input", examples=2)
        return (Path(place) / "model.pt").read_bytes()


def _mutate_trained(content: bytes, rng: random.Random) -> bytes:
    """Other bytes, or other settings in a file that is whole."""
    if rng.random() < 0.5:
        return m.mutate_zip(content, rng)
    held = torch.load(io.BytesIO(content), weights_only=True)
    with suppress(ValueError, RecursionError):  # it is no JSON any more
        held["settings"] = json.loads(m.mutate_json(json.dumps(held["settings"]).encode(), rng))
    file = io.BytesIO()
    torch.save(held, file)
    return file.getvalue()


def _safetensors() -> bytes:
    return save_safetensors({"a": torch.ones(3, 4), "b": torch.zeros(3)})


def _command(*arguments: str) -> str:
    """What a command prints. An exit status of 2 or 1 with one sentence is a refusal."""
    from ars.engine.cli import main

    result = CliRunner().invoke(main, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code in (1, 2):
        errors = result.stderr.strip().splitlines()
        raise ModelError(arguments[-1], errors[-1] if errors else "no message", "see above")
    if result.exit_code:
        raise Odd(f"exit status {result.exit_code}: {result.stderr[:300]}")
    return result.stdout


def _inspect(path: Path) -> None:
    _command("inspect", str(path))


@lru_cache
def _store(name: str) -> bytes:
    """An older store in the format of this version, whose rows have checksums."""
    with tempfile.TemporaryDirectory() as place:
        merge_runs([STORES / name], Path(place) / name)
        return (Path(place) / name).read_bytes()


def _results(name: str) -> Callable[[Path], None]:
    """Reads a store; what it shows must be what the good store has, or nothing."""
    good: list[set[str]] = []

    def read(path: Path) -> None:
        if not good:
            copy = path.with_name("good.sqlite")
            copy.write_bytes(_store(name))
            good.append(set(_rows(copy)))
        shown = set(_rows(path))
        if not shown <= good[0]:
            raise Odd(f"rows that the run does not have: {sorted(shown - good[0])[:1]}")

    return read


def _rows(path: Path) -> list[str]:
    """The rows of the results, without their times, which no certificate depends on."""
    lines = _command("results", str(path)).splitlines()
    names = lines[0].split("\t") if lines else []
    kept = [number for number, name in enumerate(names) if name not in ("time", "seconds")]
    return ["\t".join(line.split("\t")[number] for number in kept if number < len(line.split("\t"))) for line in lines]


def _changed_model(path: Path) -> None:
    """A model that its manifest lists by hash: any change is refused."""
    if path.read_bytes() != _LINEAR:
        manifest_beside(path)
        raise Odd("a changed model that its manifest accepts")


_LINEAR = _made(models.linear)()


def _listed() -> bytes:
    files = [{"role": "classifier", "path": "model.onnx", "sha256": hashlib.sha256(_LINEAR).hexdigest()}]
    return json.dumps(MANIFEST | {"files": files}).encode()


def _csv() -> bytes:
    return b"name,label\n0.png,cat\n1.png,dog\n"


PICTURES = {"0.png": _image("PNG"), "1.png": _image("PNG")}

READERS = (
    Reader("png", "a.png", _image("PNG"), m.mutate_png, _data, 6),
    Reader("jpeg", "a.jpg", _image("JPEG"), m.mutate_bytes, _data, 6),
    Reader("npz", "a.npz", _npz, m.mutate_zip, _data, 6),
    Reader("npy", "a.npy", _npy, m.mutate_bytes, _data),
    Reader("idx", "a-images-idx3-ubyte", lambda: _idx(3), m.mutate_bytes, _data, 3,
           {"a-labels-idx1-ubyte": lambda: _idx(1)}),
    Reader("idx labels", "a-labels-idx1-ubyte", lambda: _idx(1), m.mutate_bytes,
           lambda path: _data(path.with_name("a-images-idx3-ubyte")), 2, {"a-images-idx3-ubyte": lambda: _idx(3)}),
    Reader("idx.gz", "a-images-idx3-ubyte.gz", lambda: gzip.compress(_idx(3)), m.mutate_gzip, _data, 3,
           {"a-labels-idx1-ubyte.gz": lambda: gzip.compress(_idx(1))}),
    Reader("zip", "a.zip", _zip, m.mutate_zip, _data),
    Reader("tar", "a.tar", _tar, m.mutate_bytes, _data),
    Reader("tar.gz", "a.tar.gz", lambda: _tar("w:gz"), m.mutate_gzip, _data),
    Reader("tar.xz", "a.tar.xz", lambda: _tar("w:xz"), m.mutate_bytes, _data, 2),
    Reader("csv", "a.csv", _csv, m.mutate_text, _data, 3, PICTURES),
    Reader("parquet", "a.parquet", _parquet, m.mutate_bytes, _data),
    Reader("cifar pickle", "test_batch", _cifar, m.mutate_bytes, _data, 6,
           {"batches.meta": lambda: pickle.dumps({}, 2)}),
    Reader("cifar binary", "a.bin", lambda: bytes(3073 * 2), m.mutate_bytes, _data, 1),
    Reader("classes", "a.txt", lambda: b"cat\ndog\n", m.mutate_text, read_classes, 1),
    Reader("noise maps", "a.npz", _maps, m.mutate_zip, lambda path: Maps(path, 3)),
    Reader("perturbed input", "x.npy", _npy, m.mutate_bytes, lambda path: read_perturbed(path, (6, 8, 8, 3)), 2),
    Reader("manifest", "model.json", lambda: json.dumps(MANIFEST).encode(), m.mutate_json, _manifest, 10),
    Reader("listed model", "model.onnx", lambda: _LINEAR, m.mutate_onnx, _changed_model, 3, {"model.json": _listed}),
    Reader("benchmark", "b.json", _bench, m.mutate_json, _show_bench, 6),
    Reader("attacks", "r.attack.jsonl", _attacks, m.mutate_text, _show_attacks, 4),
    Reader("model.pt", "a.pt", _torch, m.mutate_zip, read_torch_file, 6),
    Reader("trained model", "model.pt", _trained, _mutate_trained, load_model, 3),
    Reader("weights", "b.pt", _torch, m.mutate_bytes, read_weights, 3),
    Reader("safetensors", "a.safetensors", _safetensors, m.mutate_bytes, read_weights, 3),
    Reader("onnx structure", "m.onnx", _made(models.quantised), m.mutate_onnx, _check_structure, 20),
    Reader("onnx, onnxruntime", "m.onnx", _made(models.quantised), m.mutate_onnx, _load(OnnxRuntime), 1),
    Reader("onnx, openvino", "m.onnx", _made(models.quantised), m.mutate_onnx, _load(OpenVino), 1),
    Reader("store, fixed n", "r.sqlite", partial(_store, "fixed.sqlite"), m.mutate_sqlite, _results("fixed.sqlite"), 5),
    Reader("store, adaptive", "r.sqlite", partial(_store, "adaptive.sqlite"), m.mutate_sqlite,
           _results("adaptive.sqlite"), 5),
    Reader("store, inspected", "r.sqlite", partial(_store, "fixed.sqlite"), m.mutate_sqlite, _inspect, 2),
    Reader("store, older", "r.sqlite", (STORES / "fixed.sqlite").read_bytes, m.mutate_sqlite, _rows, 2),
)  # fmt: skip
