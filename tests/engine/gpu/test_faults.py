"""What goes wrong on a GPU: one sentence, what is certified stays, and nothing is left behind."""

import gc
import itertools
import threading
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from simulated_gpu.faults import answer
from simulated_gpu.machine import Failure, Faults, current_gpu
from simulated_gpu.tensorrt import make_plan
from support import models
from support.engine_runs import certify, records, refused

from ars.engine.records.store import read_header
from ars.engine.row_check import RowCheck
from ars.engine.runners import gpu_error
from ars.errors import ArsError, OutOfMemory

pytestmark = pytest.mark.usefixtures("files", "machine", "plan")


# What stays behind if the call that ends it fails once, and nothing else does.
ENDS = {
    "cuCtxPopCurrent": {"current"},
    "cuDevicePrimaryCtxRelease": {"contexts"},
    **{f"cu{end}": {"left"} for end in ("MemFree", "MemFreeHost", "StreamDestroy", "EventDestroy", "ModuleUnload")},
    **{f"cuGraph{end}": {"left"} for end in ("Destroy", "ExecDestroy")},
    # Whatever had to be released in a context that could not be made current ended with the context.
    "cuCtxPushCurrent": {"left"},
}
GRAPHS = {"cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphLaunch", "cuGraphExecDestroy"}
MODEL_CALLS = {
    "model.trt": {"execute_async_v3", "set_tensor_address", "deserialize_cuda_engine", *GRAPHS},
    "model.onnx": {"InferenceSession", "run_with_iobinding"},
}
CALLS = {"cuMemAlloc", "cuMemHostAlloc", "cuLaunchKernel", "cuEventSynchronize", "cuMemcpyDtoHAsync", "cuInit"}
CALLS |= {end for end in ENDS if "Graph" not in end}


def answers_with_each_call_failing(machine, monkeypatch, engine, kind, lasting):
    """For each call of the driver and of the libraries: the call, and the answer or the error of a run in which this
    call fails, once or from then on. The last answer is that of a run in which nothing fails."""
    x = np.load("data.npz")["x"][0]
    monkeypatch.setattr(RowCheck, "choose", lambda self, draws: np.empty(0, np.intp))  # every run makes the same calls
    monkeypatch.setenv("PATH", "")  # kernels that do not load are not compiled: it takes long
    gc.freeze()  # what is alive already need not be searched after every run
    try:
        for number in itertools.count(1):
            faults = Faults(at=number, kind=kind, lasting=lasting)
            found = answer(machine, engine, x, faults)
            yield faults.happened, found
            if faults.happened is None:
                return
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(("engine", "kind"), [("model.trt", "error"), ("model.trt", "memory"), ("model.onnx", "error")])
def test_a_failure_of_any_call_is_one_sentence_and_leaves_nothing_behind(machine, monkeypatch, engine, kind):
    answers, failed = [], set()
    for call, found in answers_with_each_call_failing(machine, monkeypatch, engine, kind, lasting=False):
        failed.add(call)
        if isinstance(found, ArsError):
            assert any(part in str(found) for part in ("this is a test", "out of memory", "there is no nvcc")), found
            assert "\n" not in str(found)
        else:  # it could go on: with less memory, or without having given some back
            answers.append(found)
        held = {what for what, number in machine.held().items() if number}
        assert held <= ENDS.get(call, set()), call
    assert len(set(answers)) == 1
    assert failed >= CALLS | MODEL_CALLS[engine], "every step was made to fail"
    machine.reset()


@pytest.mark.parametrize("engine", ["model.trt"])
def test_a_gpu_that_is_lost_at_any_call_is_one_sentence(machine, monkeypatch, engine):
    """It cannot give back anything, but nothing hangs, aborts, or answers something else."""
    answers, errors = [], []
    for _, found in answers_with_each_call_failing(machine, monkeypatch, engine, "launch", lasting=True):
        (errors if isinstance(found, ArsError) else answers).append(found)
    assert len(set(answers)) == 1
    assert len(errors) > 80
    for error in errors:
        assert any(part in str(error) for part in ("fallen off the bus", "this is a test", "there is no nvcc")), error
        assert "\n" not in str(error)
    machine.reset()


BATCH = ("execute_async_v3", "cuGraphLaunch")


def test_a_lost_gpu_ends_the_run_in_one_sentence_and_what_is_certified_stays(machine):
    assert certify("--device", "cpu", "--out", "expected.sqlite").exit_code == 0
    machine.faults = Faults(at=60, kind="launch", lasting=True, only=lambda name: name in BATCH)
    result = certify("--threads", "1", engine="model.trt")
    refused(result, "cuda:0", status=1)  # from the lane, or from the thread that loads inputs, whichever meets it first
    before = records()
    assert 0 < len(before) < 40
    machine.reset()
    assert certify("--threads", "1", engine="model.trt").exit_code == 0
    assert records() == records("expected.sqlite")
    assert records()[: len(before)] == before


def test_a_gpu_that_is_lost_while_it_computes_says_what_to_do(machine):
    machine.faults = Faults(at=70, kind="launch", lasting=True, only=lambda name: name == "cuEventSynchronize")
    result = certify(engine="model.trt")
    fix = "what is certified is kept: check it with nvidia-smi, and run the same command again"
    refused(result, "cuda:0 does not work, or was lost (", fix, status=1)
    machine.reset()


def test_where_one_of_two_gpus_is_lost_the_other_finishes_what_it_began(machine):
    assert certify("--device", "cpu", "--out", "expected.sqlite").exit_code == 0
    machine.reset(gpus=2)
    begun, lost, at = threading.Event(), threading.Event(), machine.at

    def lose_the_second_at_its_third_batch():
        if threading.current_thread().name.startswith("lane"):
            if current_gpu() == 0:
                assert begun.wait(60), "the second GPU has begun, too, before the first has finished"
            else:
                machine.calls["batches of cuda:1"] += 1
                begun.set()
                if machine.calls["batches of cuda:1"] == 3:
                    lost.set()

    def fail_where_it_is_lost(gpu, address, size):
        if gpu == 1 and lost.is_set():
            raise Failure("launch", "cuda:1 has fallen off the bus")
        return at(gpu, address, size)

    machine.before_wait, machine.at = lose_the_second_at_its_third_batch, fail_where_it_is_lost
    result = certify("--device", "cuda:0,cuda:1", engine="model.trt")
    machine.before_wait = lambda: None
    del machine.at
    refused(result, "cuda:1", "fallen off the bus", status=1)
    machine.gpus = 1  # what the second one held may have ended with its context; the first must have released all
    before = [row[0] for row in records()]
    assert 0 < len(before) < 40
    assert certify("--device", "cuda:0", engine="model.trt").exit_code == 0
    assert records() == records("expected.sqlite")


def test_too_little_memory_halves_the_batch_says_so_and_goes_on(machine):
    assert certify("--device", "cpu", "--limit", "4", "--out", "expected.sqlite").exit_code == 0
    machine.reset(memory=60_000)
    result = certify("--limit", "4", "--batch", "256", engine="model.trt")
    assert result.exit_code == 0, result.output
    assert "cuda:0 has not enough memory for batches of 256; going on with 128\n" in result.stderr
    used = read_header(Path("run.sqlite")).settings.batch
    assert used in (32, 64, 128)
    assert f"going on with {used}\n" in result.stderr
    assert records() == records("expected.sqlite")
    again = certify("--limit", "8", "--batch", "auto", engine="model.trt")
    assert again.exit_code == 0, again.output
    assert "going on" not in again.stderr, "the run keeps the batch that it has"


def test_no_memory_at_all_is_one_sentence(machine):
    machine.reset(memory=200)
    refused(certify(engine="model.trt"), "cuda:0 has not enough memory left", status=1)


def test_free_memory_bounds_the_batch_that_is_chosen(machine):
    models.linear(Path("wide.onnx"), shape=(3, 32, 32))
    np.savez("wide.npz", x=np.random.default_rng(3).random((2, 3, 32, 32), dtype=np.float32), y=[0] * 2)
    machine.reset(memory=2**24)
    result = certify("--device", "cuda:0", "--batch", "auto", engine="wide.onnx", data="wide.npz")
    assert result.exit_code == 0, result.output
    assert read_header(Path("run.sqlite")).settings.batch == 128


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"version": "10.1.0"}, "not compatible with this version of TensorRT, expecting 10.99.0 got 10.1.0"),
        ({"compute_capability": (9, 0)}, "generated on an incompatible device, compute 9.0"),
    ],
)
def test_an_engine_for_another_version_or_gpu_is_one_sentence(changed, said):
    Path("other.trt").write_bytes(make_plan(Path("model.onnx").read_bytes(), **changed))
    refused(certify(engine="other.trt"), "other.trt: cuda:0 has compute 8.6, where it does not load", said, "build it")


def test_an_engine_whose_manifest_says_another_gpu_is_not_even_loaded(machine):
    from ars.data.pixels import file_sha256
    from ars.manifest import EngineBuild, Manifest, ModelFile, NoiseSettings, Profile
    from ars.noise import NoiseKind

    build = EngineBuild("tensorrt", "10.99.0", ("9.0+", "12.0"), Profile(1, 64, 256), "model.onnx", "")
    files = (ModelFile("engine", "model.trt", file_sha256(Path("model.trt")), build=build),)
    noise = NoiseSettings("gaussian", NoiseKind.ISOTROPIC, 0.1)
    Manifest((1, 4, 4), ("a", "b", "c"), noise, files).write(Path("model.json"))
    refused(certify(engine="model.trt"), "it was built for GPUs of compute 9.0+, 12.0, and cuda:0 has compute 8.6")
    assert not machine.calls["deserialize_cuda_engine"]
    machine.reset(compute_capability=(12, 0))
    refused(certify(engine="model.trt"), "it was built by tensorrt 10.99.0, and cuda:0 has compute 12.0")


def test_a_file_that_is_no_engine_is_one_sentence():
    Path("no.trt").write_bytes(b"this is not a plan")
    refused(certify(engine="no.trt"), "no.trt: cuda:0 has compute 8.6, where it does not load", "magic tag")
    refused(certify(engine="none.trt"), "none.trt: there is no such file")


def test_an_engine_that_is_no_classifier_is_one_sentence():
    Path("two.trt").write_bytes(make_plan(models.two_inputs(Path("two.onnx")).read_bytes()))
    refused(certify(engine="two.trt"), "two.trt: it has 2 inputs")


def test_a_batch_that_the_engine_does_not_take_is_refused():
    refused(
        certify("--batch", "512", engine="model.trt"), "batch = 512 is not valid; model.trt takes batches of 1 to 256"
    )


def test_a_model_with_a_fixed_batch_takes_that_one():
    Path("fixed.trt").write_bytes(make_plan(models.linear(Path("fixed.onnx"), batch=32).read_bytes(), (32, 32, 32)))
    for engine in ("fixed.trt", "fixed.onnx"):
        refused(certify("--device", "cuda:0", engine=engine), "takes batches of 32 to 32")
        result = certify("--device", "cuda:0", "--batch", "auto", "--out", f"{engine}.sqlite", engine=engine)
        assert result.exit_code == 0, result.output
        assert read_header(Path(f"{engine}.sqlite")).settings.batch == 32


@pytest.mark.parametrize("device", ["gpu", "cuda", "cuda:x", "cuda:0,cuda:0", "cuda:0,cpu", "cuda:-1", ""])
def test_a_device_that_cannot_be_is_refused(device):
    refused(certify("--device", device), f"device = {device} is not valid; it is cpu, cuda:0, or several GPUs")


def test_a_gpu_that_is_not_there_is_refused(machine):
    refused(certify("--device", "cuda:1"), "device = cuda:1 is not valid; this machine has cuda:0")
    machine.reset(gpus=0)
    refused(certify("--device", "cuda:0"), "CUDA does not work, or was lost (cuInit failed: no CUDA-capable", status=1)


def test_files_and_backends_that_do_not_run_on_a_gpu_are_refused():
    Path("model.pt").write_bytes(b"")
    refused(certify("--device", "cuda:0", engine="model.pt"), "model.pt: it does not run on cuda:0; use --device cpu")
    refused(certify("--device", "cuda:0", "--backend", "openvino"), "model.onnx: openvino does not run on cuda:0")


def test_a_gpu_without_cudas_libraries_is_one_sentence_and_no_lack_of_memory(machine):
    machine.lacks_libraries = True
    result = certify("--device", "cuda:0", "--batch", "64", engine="model.onnx")
    refused(result, "model.onnx: onnxruntime ", "cannot use cuda:0; install the CUDA and cuDNN", status=1)
    assert "not enough memory" not in result.stderr


@pytest.mark.parametrize(
    ("reason", "is_memory"),
    [
        ("CUDA failure 2: out of memory ; GPU=0", True),
        ("BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 1024", True),
        ("CUDA failure 700: an illegal memory access was encountered", False),
        ("There's no data transfer registered for copying tensors from MemoryType: Cpu to Gpu", False),
    ],
)
def test_only_a_failed_allocation_is_a_lack_of_memory(reason, is_memory):
    assert isinstance(gpu_error("model.onnx: it failed", reason), OutOfMemory) == is_memory


@pytest.mark.parametrize(("kind", "tf32"), [(TensorProto.FLOAT, "0"), (TensorProto.FLOAT16, None)])
def test_tf32_is_off_for_float32_models_only(machine, kind, tf32):
    models.linear(Path("kind.onnx"), kind=kind)
    assert certify("--device", "cuda:0", "--max", "1", engine="kind.onnx").exit_code == 0
    assert machine.sessions
    assert {session.get("use_tf32") for session in machine.sessions} == {tf32}
