"""Runs of `ars-engine` in the tests, on the files that the fixture `files` writes."""

import sys
from pathlib import Path

from click.testing import CliRunner

from ars.data.pixels import file_sha256
from ars.engine.cli import main
from ars.engine.records.store import read_records
from ars.manifest import Manifest, ModelFile, NoiseSettings
from ars.noise import NoiseKind
from support import models

ENGINE = Path(sys.executable).parent / "ars-engine"


def certify(*arguments, engine="model.onnx", data="data.npz", n=200):
    given = ["certify", "--engine", engine, "--data", data, "--n", str(n), "--n0", "10", "--batch", "64"]
    return CliRunner().invoke(main, [*given, "--sigma", "0.1", "--out", "run.sqlite", *arguments])


def records(path="run.sqlite"):
    """What decides the results, without the times."""
    return [(one.idx, one.label, one.certificate, one.draws, one.input_sha256) for one in read_records(Path(path))]


def refused(result, *parts, status=2):
    assert result.exit_code == status, result.output
    assert result.stderr.startswith("Error: ") or "\nError: " in result.stderr
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr
    return result


def write_manifest(kind=NoiseKind.INPUT):
    models.generator(Path("model.noise.onnx"), floor=0.05)
    names = [("classifier", "model.onnx"), ("noise", "model.noise.onnx")]
    files = tuple(ModelFile(role, name, file_sha256(Path(name))) for role, name in names)
    Manifest((1, 4, 4), ("a", "b", "c"), NoiseSettings("laplace", kind, 0.05), files).write(Path("model.json"))
