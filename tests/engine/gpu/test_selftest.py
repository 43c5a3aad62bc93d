"""`ars-engine devices` and `ars-engine selftest`, on the processor and on the simulated GPU."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from simulated_gpu.machine import Faults
from simulated_gpu.tensorrt import make_plan
from support import models, reference

from ars.engine import selftest
from ars.engine.cli import main
from ars.noise import FAMILIES


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def test_the_network_is_what_its_maker_makes(tmp_path):
    assert models.selftest(tmp_path / "made.onnx").read_bytes() == selftest.MODEL.read_bytes()


def test_the_processor_passes():
    result = run("selftest")
    assert result.exit_code == 0, result.output
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [
        ["cpu", "noise"],
        ["cpu", "votes"],
        ["cpu", "onnxruntime"],
        ["cpu", "certificate,"],
        ["cpu", "openvino"],
        ["cpu", "certificate,"],
    ]
    assert result.stdout.count(" ok ") == 6


def test_the_simulated_gpu_passes(machine):
    result = run("selftest", "--device", "cuda:0")
    assert result.exit_code == 0, result.output
    assert result.stdout.count(" ok ") == 6
    assert "of each family and noise stream, in float32 and float16, equal the host's bit for bit" in result.stdout
    assert "certificate, tensorrt" in result.stdout
    assert "0 of 6,000 draws vote differently" in result.stdout


@pytest.mark.parametrize(
    ("kernel", "check"),
    [
        ("fill_noisy_float16", "noise"),
        ("fill_noisy_float32", "noise"),
        ("fill_lattice_float16", "noise"),
        ("fill_lattice_float32", "noise"),
        ("fill_stretched_noisy_float16", "noise"),
        ("fill_stretched_lattice_float32", "noise"),
        ("count_votes_float16", "votes"),
    ],
)
def test_a_kernel_that_computes_something_else_fails(machine, monkeypatch, kernel, check):
    workspace = importlib.import_module("ars.engine.gpu").Workspace
    launch = workspace.launch

    def slightly_wrong(self, right):
        given = right.parameters
        wrong = (*given[:-1], given[-1] ^ 1) if "fill" in kernel else (*given[:4], 1, given[5])
        launch(self, right._replace(parameters=wrong) if right.kernel == kernel else right)

    monkeypatch.setattr(workspace, "launch", slightly_wrong)
    result = run("selftest", "--device", "cuda:0")
    assert result.exit_code == 1
    assert f"cuda:0   {check:<28} FAILED" in result.stdout
    assert "Error: cuda:0 failed" in result.stderr


def test_a_gpu_that_fails_a_check_is_one_line_and_the_others_go_on(machine):
    machine.faults = Faults(at=1, only=lambda name: name == "deserialize_cuda_engine")
    result = run("selftest", "--device", "cuda:0")
    assert result.exit_code == 1
    assert "Error: cuda:0 failed 1 checks; do not certify with it" in result.stderr
    assert result.stdout.count(" ok ") == 5
    assert "this is a test" in result.stdout


def test_a_tensorrt_that_cannot_be_initialised_is_one_line(machine):
    machine.faults = Faults(at=1, only=lambda name: name == "Builder")
    result = run("selftest", "--device", "cuda:0")
    assert result.exit_code == 1
    assert "Error: cuda:0 failed 1 checks; do not certify with it" in result.stderr
    (line,) = [line for line in result.stdout.splitlines() if "FAILED" in line]
    assert "cannot build it (this is a test; " in line
    assert "factory function returned nullptr" in line


def test_the_engine_is_built_on_the_gpu_that_is_checked(machine):
    machine.reset(gpus=2)
    assert all(check.passed for check in selftest.run_checks("cuda:1", "tensorrt"))
    assert machine.built_on == [1]


def test_a_backend_that_fails_while_an_engine_is_built_is_one_line(machine, monkeypatch):
    def fail(*arguments):
        raise OSError("libnvinfer.so is broken")

    monkeypatch.setattr(importlib.import_module("ars.engine.runners.plans").PlanRunner, "convert", fail)
    result = run("selftest", "--device", "cuda:0")
    assert result.exit_code == 1
    assert "FAILED  OSError: libnvinfer.so is broken; please report this" in result.stdout
    assert result.stdout.count(" ok ") == 4


def test_an_error_of_a_library_that_nobody_expects_is_one_line(machine, monkeypatch):
    monkeypatch.setattr("ars.engine.selftest._some_logits", lambda: {}["no such key"])
    result = run("selftest", "--device", "cuda:0")
    assert result.exit_code == 1
    assert "FAILED  KeyError: 'no such key'; please report this" in result.stdout


def test_what_cannot_be_checked_is_refused(machine):
    assert "check one at a time" in run("selftest", "--device", "cuda:0,cuda:1").stderr
    assert "it is cpu, cuda:0, or several" in run("selftest", "--device", "gpu").stderr
    assert run("selftest", "--device", "cuda:3").exit_code == 2


def test_devices_lists_each_gpu_and_where_an_engine_fits(files, machine):
    machine.reset(gpus=2)
    Path("model.trt").write_bytes(make_plan(Path("model.onnx").read_bytes()))
    lines = run("devices", "--engine", "model.trt").stdout.splitlines()
    gpu = "Simulated GPU, compute 8.6, 1.0 GiB, driver for CUDA 13.0"
    assert lines[1:3] == [f"cuda:0          ready    {gpu}", f"cuda:1          ready    {gpu}"]
    assert "tensorrt        ready    version 10.99.0" in lines
    fits = "fits     tensorrt 10.99.0 runs model.trt, batches of 1 to 256"
    assert lines[-2:] == [f"cuda:0          {fits}", f"cuda:1          {fits}"]
    Path("other.trt").write_bytes(make_plan(Path("model.onnx").read_bytes(), compute_capability=(9, 0)))
    last = run("devices", "--engine", "other.trt").stdout.splitlines()[-1]
    assert last.startswith("cuda:1          refuses  other.trt: cuda:1 has compute 8.6, where it does not load")
    assert run("devices", "--engine", "model.onnx").stdout.splitlines()[-1].startswith("cuda:1          fits     onnxr")


def test_devices_without_a_gpu_says_what_to_do(files, machine):
    machine.reset(gpus=0)
    assert "cuda            missing  CUDA does not work" in run("devices").stdout


def test_devices_without_a_binding_says_what_to_install(files, monkeypatch):
    for name in ("ars.engine.gpu", "ars.engine.bindings.cuda_python", "ars.engine.bindings.pycuda"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for name in ("cuda", "cuda.bindings", "pycuda"):
        monkeypatch.setitem(sys.modules, name, None)
    missing = "cuda-bindings is not installed; run `pip install 'ars-certify[gpu]'`"
    result = run("devices", "--engine", "model.onnx")
    assert f"cuda            missing  {missing}" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("cpu             fits     onnxruntime")
    Path("model.trt").write_bytes(b"engine")
    assert run("devices", "--engine", "model.trt").stdout.splitlines()[-1] == f"cuda:0          refuses  {missing}"


def test_devices_without_a_driver_says_so(machine, monkeypatch):
    def find_no_library(flags):
        raise RuntimeError('"cuda" is an NVIDIA driver library')

    binding = importlib.import_module("ars.engine.gpu").BINDING
    if binding.name != "cuda-python":
        pytest.skip("pycuda does not load without a driver")
    monkeypatch.setattr("ars.engine.bindings.cuda_python.driver.cuInit", find_no_library)
    assert 'cuda            missing  no NVIDIA driver is installed ("cuda" is an NVIDIA' in run("devices").stdout


def test_a_driver_without_a_function_that_is_called_is_too_old(machine, monkeypatch):
    def find_no_function(*arguments):
        raise RuntimeError("function cuDeviceGetCount is not found")

    if importlib.import_module("ars.engine.gpu").BINDING.name != "cuda-python":
        pytest.skip("pycuda does not load with such a driver")
    monkeypatch.setattr("ars.engine.bindings.cuda_python.driver.cuDeviceGetCount", find_no_function)
    result = run("selftest", "--device", "cuda:0")
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    said = (
        "the NVIDIA driver is too old for cuda-python (function cuDeviceGetCount is not found); install a newer driver"
    )
    assert said in result.stderr


REQUEST = selftest._REQUESTS[1]  # its third draw is row 7
WHERE = (2**63 + 11, REQUEST.input_id, REQUEST.phase, REQUEST.first_draw + 2)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_noise_that_is_known_is_noise_stream_1(family):
    center, scale = (values[REQUEST.slot] for values in selftest._slots())
    values = selftest._host_noise(family, 1, "scalar")
    assert selftest._is_known(values, family, 1)
    row = reference.stream_row(family.name, *WHERE, 1023)
    np.testing.assert_allclose((values[7] - center) / scale, row, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
def test_the_noise_that_is_known_is_noise_stream_2_by_either_path(family):
    center, scale = (values[REQUEST.slot] for values in selftest._slots())
    values = selftest._host_noise(family, 2, "precise")
    assert selftest._is_known(values, family, 2)
    z = np.concatenate([reference.lattice_noise(family.name, *WHERE, block, 1023) for block in range(256)])[:1023]
    step = selftest._STREAMS[2].step
    row = [reference.lattice_value(z[i], center[i], 0, scale[i], step) for i in range(1023)]
    assert values[7].tolist() == row
