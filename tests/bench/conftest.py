from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support import models
from support.browser import open_browser

from ars.engine.cli import main as engine
from ars.engine.runners.onnxruntime import OnnxRuntime


@pytest.fixture(autouse=True)
def comparable_runs(same_seed):
    """Runs of the benchmarks' tests are compared with each other."""


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory):
    """Two real runs on the same 60 inputs: isotropic.sqlite, and generated.sqlite whose maps a generator made."""
    folder = tmp_path_factory.mktemp("runs")
    model = models.linear(folder / "model.onnx", (1, 8, 8))
    models.generator(folder / "noise.onnx", (1, 8, 8), floor=0.1)
    x = np.random.default_rng(1).random((60, 1, 8, 8), dtype=np.float32)
    labels = OnnxRuntime(model).run(x).argmax(1)
    labels[:5] = (labels[:5] + 1) % 3  # some answers are wrong
    np.savez(folder / "data.npz", x=x, y=labels)
    for name, noise in (("isotropic", ["--sigma", "0.25"]), ("generated", ["--noise", folder / "noise.onnx"])):
        given = [
            "certify",
            "--engine",
            folder / "model.onnx",
            "--data",
            folder / "data.npz",
            "--n",
            500,
            "--batch",
            64,
            "--seed",
            0,
        ]
        out = ["--out", folder / f"{name}.sqlite", "--quiet"]
        result = CliRunner().invoke(engine, [str(word) for word in [*given, *noise, *out]])
        assert result.exit_code == 0, result.output
    return folder


@pytest.fixture
def runs(run_folder) -> list[Path]:
    return [run_folder / "isotropic.sqlite", run_folder / "generated.sqlite"]


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver
