"""`ars-engine` on the simulated GPU: the certificates are the processor's, and little moves between host and GPU."""

import importlib
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto
from simulated_gpu.tensorrt import make_plan
from support import models
from support.engine_runs import certify, records, refused, write_manifest

import ars
from ars.engine.cli import main
from ars.engine.records.store import read_header
from ars.engine.row_check import RowCheck
from ars.noise import FAMILIES

NVCC = shutil.which("nvcc")

pytestmark = pytest.mark.usefixtures("files", "machine")


def both(*arguments, engine="model.onnx", data="data.npz"):
    """The same run on the processor, on a TensorRT engine and by ONNX Runtime on the GPU: three stores' records."""
    Path("model.trt").write_bytes(make_plan(Path(engine).read_bytes()))
    stores = {"cpu": (engine, "cpu"), "tensorrt": ("model.trt", "cuda:0"), "onnxruntime": (engine, "cuda:0")}
    for store, (file, device) in stores.items():
        result = certify("--device", device, "--out", f"{store}.sqlite", *arguments, engine=file, data=data)
        assert result.exit_code == 0, result.output
    return [records(f"{store}.sqlite") for store in stores]


@pytest.mark.parametrize("family", FAMILIES)
def test_certificates_are_the_processors(machine, family):
    cpu, tensorrt, onnxruntime = both("--family", family)
    assert cpu == tensorrt == onnxruntime
    assert len(cpu) == 40
    assert machine.calls["execute_async_v3"] + machine.calls["cuGraphLaunch"] > 100
    assert machine.calls["run_with_iobinding"] > 100


@pytest.mark.parametrize("shape", [(1, 3, 5), (3, 7, 3), (2,)])
def test_certificates_are_the_processors_for_odd_shapes(shape):
    models.linear(Path("odd.onnx"), shape, classes=4)
    np.savez("odd.npz", x=np.random.default_rng(3).random((5, *shape), dtype=np.float32), y=[0] * 5)
    cpu, tensorrt, onnxruntime = both(engine="odd.onnx", data="odd.npz")
    assert cpu == tensorrt == onnxruntime


def test_certificates_of_a_half_precision_model_are_the_processors():
    """The noise is rounded to half precision on the GPU, and on the host."""
    models.linear(Path("half.onnx"), kind=TensorProto.FLOAT16)
    cpu, tensorrt, onnxruntime = both(engine="half.onnx")
    assert cpu == tensorrt == onnxruntime


def test_certificates_with_maps_for_each_input_are_the_processors():
    rng = np.random.default_rng(5)
    np.savez("maps.npz", mean=rng.normal(0, 0.1, (40, 1, 4, 4)), scale=rng.uniform(0.05, 0.3, (40, 1, 4, 4)))
    write_manifest()
    Path("model.json").unlink()
    stores = []
    Path("model.trt").write_bytes(make_plan(Path("model.onnx").read_bytes()))
    for noise in ("maps.npz", "model.noise.onnx"):
        for engine in ("model.onnx", "model.trt"):
            with ars.load(engine, noise=noise, batch=64) as classifier:
                x = np.load("data.npz")["x"][:6]
                done = classifier.certify_many(enumerate(x), ars.engine.algorithms.Plan(10, 300, 0.01))
                stores.append({one.input_id: one.result for one in done})
    assert stores[0] == stores[1] != stores[2] == stores[3]


def test_logits_that_are_not_finite_vote_for_nobody_on_the_gpu_too(plan):
    models.linear(Path("nan.onnx"), nan=True)
    Path("nan.trt").write_bytes(make_plan(Path("nan.onnx").read_bytes()))
    result = certify(engine="nan.trt")
    assert result.exit_code == 1
    assert "none of the first 10 draws has finite logits" in result.stderr


def test_the_batch_is_the_engines_own_where_none_is_given(plan):
    result = certify("--batch", "auto", engine="model.trt")
    assert result.exit_code == 0, result.output
    header = read_header(Path("run.sqlite"))
    assert (header.settings.batch, header.settings.runner) == (64, "tensorrt")
    assert re.fullmatch(r"cuda:0, Simulated GPU, CUDA 13.0, [234] lanes", header.environment.device)


@pytest.mark.parametrize(("seconds", "lanes"), [(0.0005, 4), (0.0015, 3), (0.0025, 2)])
def test_there_are_more_lanes_where_batches_are_short(plan, machine, monkeypatch, seconds, lanes):
    lane = importlib.import_module("ars.engine.lanes.cuda").CudaLane
    monkeypatch.setattr(lane, "time_batch", lambda self: seconds)
    assert certify("--device", "cpu", "--out", "expected.sqlite").exit_code == 0
    result = certify(engine="model.trt")
    assert f", {lanes} lanes: " in result.stderr
    assert records() == records("expected.sqlite")
    result = certify("--threads", "3", "--out", "asked.sqlite", engine="model.trt")
    assert ", 3 lanes: " in result.stderr, "as many as are asked for"


def test_lanes_that_would_fill_the_memory_are_not_made(plan, machine, monkeypatch):
    lane = importlib.import_module("ars.engine.lanes.cuda").CudaLane
    monkeypatch.setattr(lane, "time_batch", lambda self: 0.0005)
    machine.reset(memory=200_000)
    result = certify("--batch", "256", engine="model.trt")
    assert "CUDA 13.0, 2 lanes: " in result.stderr
    assert "batches of 256" in result.stderr


def test_two_batches_are_on_the_gpu_before_either_is_waited_for(plan, machine):
    barrier, seen = threading.Barrier(2, timeout=60), []

    def meet():
        if threading.current_thread().name.startswith("lane") and len(seen) < 2:
            seen.append(None)
            barrier.wait()
            seen.append(machine.busy_streams())
            barrier.wait()

    machine.before_wait = meet
    assert certify("--threads", "2", engine="model.trt").exit_code == 0
    assert min(seen[2:]) >= 2


def moved_for(machine, shape, n):
    """What one lane moved in a run on inputs of that shape: loads of inputs, and the rest."""
    models.linear(Path("some.onnx"), shape)
    Path("some.trt").write_bytes(make_plan(Path("some.onnx").read_bytes()))
    np.savez("some.npz", x=np.random.default_rng(3).random((4, *shape), dtype=np.float32), y=[0] * 4)
    machine.forget_log()
    result = certify("--threads", "1", "--out", f"{shape}{n}.sqlite", engine="some.trt", data="some.npz", n=n)
    assert result.exit_code == 0, result.output
    size = 4 * int(np.prod(shape))
    moved = [(way, bytes_, pinned) for way, _, bytes_, pinned in machine.log if way != "taken"]
    pinned = [(way, bytes_) for way, bytes_, pinned in moved if pinned]
    tables = {("down", size): 3 * 4, ("down", 2 * size): 4}  # three tables of float32, and one of double precision
    assert {table: pinned.count(table) for table in tables} == tables, "each input once"
    return [one for one in pinned if one not in tables], len(moved) - len(pinned)


def test_only_requests_go_down_and_counts_come_up_however_large_the_inputs_are(machine, monkeypatch):
    monkeypatch.setattr(RowCheck, "choose", lambda self, draws: np.empty(0, np.intp))
    small, checks = moved_for(machine, (1, 4, 4), n=500)
    large, _ = moved_for(machine, (3, 31, 31), n=500)
    longer, checks_of_longer = moved_for(machine, (1, 4, 4), n=1500)
    assert small == large
    assert len(longer) > 2 * len(small)
    assert checks == checks_of_longer, "without rows that are run again, the model is checked once, whatever n is"
    batches = len(small) // 2
    requests = [moved // 40 for way, moved in small if way == "down"]
    assert [moved for way, moved in small if way == "up"] == [4 * 4 * number for number in requests]
    assert batches >= 4 * 510 / 64
    print(f"\na batch of {sum(requests) / batches:.2f} requests moves {sum(m for _, m in small) / batches:.0f} bytes")


def test_a_thousand_batches_take_no_more_memory_than_one(plan, machine):
    x = np.load("data.npz")["x"][0]
    with ars.load("model.trt", sigma=0.1, batch=64, threads=2) as classifier:
        classifier.predict(x, n=64)
        taken, held = machine.calls["cuMemAlloc"], machine.held()
        classifier.predict(x, n=64 * 1000)
        assert machine.calls["execute_async_v3"] + machine.calls["cuGraphLaunch"] > 1000
        assert machine.calls["cuMemAlloc"] == taken + 4, "the slots of the run"
        assert machine.held() | {"graphs": 0} == held
        assert machine.held()["graphs"] <= 2, "one a lane"


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_kernels_that_do_not_fit_the_gpu_are_compiled(plan, machine, monkeypatch):
    gpu = importlib.import_module("ars.engine.gpu")
    load, images = gpu.BINDING.load_module, []

    def load_no_fatbin(image):
        images.append(image[:4])
        if image.startswith(b"\x50\xed\x55\xba"):
            raise gpu.BINDING.error("no kernel image is available for execution on the device")
        return load(image)

    monkeypatch.setattr(gpu.BINDING, "load_module", load_no_fatbin, raising=False)
    result = certify(engine="model.trt")
    assert result.exit_code == 0, result.output
    assert set(images) == {b"\x50\xed\x55\xba", b"\x7fELF"}


def test_kernels_that_the_driver_is_too_old_for_say_so(plan, machine, monkeypatch):
    gpu = importlib.import_module("ars.engine.gpu")
    monkeypatch.setattr(gpu, "_compile_kernels", lambda folder, facts: b"\x7fELF")
    machine.reset(driver_version=12040)
    machine.refuse_images()
    refused(
        certify(engine="model.trt"), "do not load on cuda:0", "its driver is for CUDA 12.4: install a newer", status=1
    )


def test_without_nvcc_kernels_that_do_not_fit_the_gpu_are_one_sentence(plan, machine, monkeypatch):
    machine.refuse_images()
    monkeypatch.setenv("PATH", "")
    refused(certify(engine="model.trt"), "the kernels cannot be compiled for cuda:0 (there is no nvcc)", status=1)


def test_a_classifier_that_was_closed_opens_its_gpu_again(plan, machine):
    x = np.load("data.npz")["x"][0]
    classifier = ars.load("model.trt", sigma=0.1, batch=64)
    with classifier:
        first = classifier.predict(x, input_id=0)
    assert not any(machine.held().values())
    with classifier:
        assert classifier.predict(x, input_id=0) == first


def test_two_gpus_give_the_certificates_of_one(plan, machine):
    machine.reset(gpus=2)
    assert certify("--device", "cuda:0", engine="model.trt").exit_code == 0
    machine.forget_log()
    result = certify("--device", "cuda:0,cuda:1", "--out", "two.sqlite", engine="model.trt")
    assert result.exit_code == 0, result.output
    assert {gpu for way, gpu, _, _ in machine.log if way == "taken"} == {0, 1}
    assert records("two.sqlite") == records()
    assert "cuda:1" in read_header(Path("two.sqlite")).environment.device


@pytest.mark.parametrize("engine", ["model.trt", "model.onnx"])
def test_a_run_on_a_gpu_says_so_and_can_be_audited(plan, engine):
    result = certify("--device", "cuda:0", engine=engine)
    assert re.search(r"cuda:0, Simulated GPU, CUDA 13.0, [234] lanes: ", result.stderr)
    assert "batches of 64\n" in result.stderr
    audited = CliRunner().invoke(main, ["audit", "run.sqlite", "--sample", "3"])
    if engine == "model.trt":  # machine code that only the store names
        problem = "run.sqlite: its model, model.trt, is a TensorRT engine, which is machine code; name it with --engine"
        assert (audited.exit_code, problem in audited.stderr) == (2, True), audited.output
        audited = CliRunner().invoke(main, ["audit", "run.sqlite", "--sample", "3", "--engine", engine])
    assert audited.exit_code == 0, audited.output
