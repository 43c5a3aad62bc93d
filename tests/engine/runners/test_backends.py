"""The table of backends, and the backends that other packages add through the entry point `ars.backends`."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.engine_runs import certify, records, refused

import ars
from ars.bench.cli import main as bench
from ars.engine import backends
from ars.engine.backends import BACKENDS, Backend, list_backends
from ars.engine.cli import main

FASTNET = '''
import json

import numpy as np

from ars.engine.backends import CPU, Backend
from ars.engine.runners import CpuRunner, Port


class Fastnet(CpuRunner):
    """Reads weights from JSON: the logits are x @ weights."""

    name, version = "fastnet", "1.5"

    def open(self, model):
        self._weights = np.array(json.loads(model.content), np.float32)
        dimensions, classes = self._weights.shape
        return [Port("x", "float32", (None, 1, 4, 4))], [Port("logits", "float32", (None, classes))]

    def infer(self, batch):
        return batch.reshape(len(batch), -1) @ self._weights


BACKEND = Backend("fastnet", "fastnet_ars:Fastnet", "fastnet-ars", None, (".fast",), CPU, "only it reads .fast")
'''


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Installs packages in a temporary folder, each with one entry point of the group `ars.backends`."""
    home = tmp_path / "site-packages"
    home.mkdir()
    monkeypatch.syspath_prepend(home)
    modules = []

    def install(name, source, value, module="fastnet_ars"):
        (home / f"{module}.py").write_text(source)
        info = home / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ars.backends]\n{name} = {value}\n")
        modules.append(module)
        list_backends.cache_clear()

    yield install
    for module in modules:
        sys.modules.pop(module, None)
    monkeypatch.undo()
    list_backends.cache_clear()


def weights(path):
    path.write_text(json.dumps([[float(i % 3 == j) for j in range(3)] for i in range(16)]))


def test_names_are_unique_and_every_row_says_where_it_runs_what_it_reads_and_why():
    names = [backend.name for backend in BACKENDS]
    assert len(set(names)) == len(names)
    for backend in BACKENDS:
        assert backend.runs_on in (backends.CPU, backends.CUDA)
        assert backend.suffixes
        assert backend.why


@pytest.mark.usefixtures("files")
def test_a_package_adds_a_backend_that_certifies_and_is_listed(installed):
    installed("fastnet", FASTNET, "fastnet_ars:BACKEND")
    weights(Path("model.fast"))
    result = certify(engine="model.fast")
    assert result.exit_code == 0, result.output
    assert "backend fastnet: only it reads .fast" in result.stderr
    assert len(records()) == 40
    with ars.load("model.fast", sigma=0.1, backend="fastnet") as classifier:
        assert (classifier.runner.name, classifier.runner.version) == ("fastnet", "1.5")
    listed = CliRunner().invoke(main, ["devices"]).stdout.splitlines()
    assert "fastnet         ready    version 1.5" in listed
    refused(certify("--backend", "fastnet"), "model.onnx: fastnet does not read such files; leave --backend out, or")
    given = ["run", "--engine", "model.fast", "--rounds", "3", "--n", "100", "--batch", "64"]
    assert "ars fastnet fp32" in CliRunner().invoke(bench, [*given, "--backend", "fastnet"]).stdout


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("source", "value", "said"),
    [
        (
            "raise OSError('not\\ntoday')",
            "broken:BACKEND",
            "broken cannot be loaded (not today); install broken again",
        ),
        ("BACKEND = 5", "broken:BACKEND", "broken cannot be loaded (broken:BACKEND is not a Backend); install"),
        ("", "broken:BACKEND", "broken cannot be loaded (module 'broken' has no attribute 'BACKEND'); install broken"),
        ("import no_such_library", "broken:BACKEND", "no_such_library is not installed; run `pip install broken`"),
    ],
)
def test_an_entry_point_that_is_broken_says_so_when_it_is_used_and_harms_no_other(installed, source, value, said):
    installed("fastnet", FASTNET, "fastnet_ars:BACKEND")
    installed("broken", source, value, module="broken")
    weights(Path("model.fast"))
    for engine in ("model.onnx", "model.fast"):
        result = certify("--limit", "1", "--out", f"{engine}.sqlite", engine=engine)
        assert result.exit_code == 0, result.output
    refused(certify("--backend", "broken"), said)
    listed = CliRunner().invoke(main, ["devices"]).stdout
    assert "fastnet         ready" in listed
    assert "broken          missing" in listed


def test_a_runner_of_the_wrong_kind_is_refused():
    wrong = Backend("wrong", "ars.engine.runners.onnxruntime:OnnxRuntime", "wrong", None, (".w",), backends.CUDA, "")
    assert "OnnxRuntime is not a GpuRunner" in str(wrong.find_problem())
