from pathlib import Path

import numpy as np
import pytest
from support import models


@pytest.fixture(autouse=True)
def comparable_runs(same_seed):
    """Runs of the engine's tests are compared with each other."""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A classifier, and data whose labels are what it says of the clean inputs."""
    monkeypatch.chdir(tmp_path)
    models.linear(Path("model.onnx"))
    rng = np.random.default_rng(1)
    x = rng.random((40, 1, 4, 4), dtype=np.float32)
    from ars.engine.runners.onnxruntime import OnnxRuntime

    np.savez("data.npz", x=x, y=OnnxRuntime(Path("model.onnx")).run(x).argmax(1))
    return tmp_path


@pytest.fixture
def plan(files, machine):
    """model.trt beside the model.onnx that it is made of."""
    from simulated_gpu.tensorrt import make_plan

    Path("model.trt").write_bytes(make_plan(Path("model.onnx").read_bytes()))
    return Path("model.trt")
