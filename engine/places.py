"""Where a classifier runs: the processor, or a GPU. A place has the model there, and makes lanes and devices."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from ars.engine.batch_size import best_batch
from ars.engine.devices import Device
from ars.engine.devices.host import Host, usable_cores
from ars.engine.lanes import Lane, Lanes
from ars.engine.lanes.host import host_lanes
from ars.engine.model_files import GpuModel, Model
from ars.engine.runners import ENGINE_SUFFIXES, load_runner
from ars.errors import ArgumentError, ModelError
from ars.noise import GAUSSIAN, Family

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = ["CPU", "CudaPlace", "HostPlace", "Place", "devices_named", "open_places"]

CPU = "cpu"
ONNX_ON_GPU = "onnxruntime-gpu"
# Two batches are at work or wait on a GPU, so that it never waits for Python.
_GPU_LANES = 2
# Without a profile: large enough to fill any GPU with small images, and of free memory a part that leaves room to work.
_LARGEST_BATCH, _SHARE_OF_MEMORY = 1024, 0.25


class Place(Protocol):
    name: str
    """As --device takes it."""
    lanes: int

    @property
    def model(self) -> Model: ...

    @property
    def least_batch(self) -> int: ...

    def describe(self) -> str:
        """The place for the record."""
        ...

    def choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        """A good batch size here, and the draws a second that were measured with it, if they were."""
        ...

    def make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        """Lanes that have run once; OutOfMemory where a smaller batch may fit."""
        ...

    def make_device(self, slots: int, dimensions: int, family: Family, seed: int) -> Device: ...

    def close(self) -> None:
        """Give back what the place holds; it is taken again when it is used again."""
        ...


class HostPlace:
    name, least_batch = CPU, 1

    def __init__(self, engine: Path, backend: str, lanes: int | None) -> None:
        self.lanes = lanes or usable_cores()
        self.model = load_runner(engine, backend, self.lanes)

    def describe(self) -> str:
        return f"{CPU}, {self.lanes} lanes"

    def choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        device = self.make_device(1, math.prod(shape), GAUSSIAN, 0)
        return best_batch(lambda batch: self.make_lanes(shape, batch), device, shape)

    def make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        return host_lanes(self.model, shape, batch, self.lanes)

    def make_device(self, slots: int, dimensions: int, family: Family, seed: int) -> Device:
        return Host(slots, dimensions, family, seed)

    def close(self) -> None:
        return


class CudaPlace:
    def __init__(self, number: int, engine: Path, backend: str, lanes: int | None) -> None:
        self.name, self.lanes = f"cuda:{number}", lanes or _GPU_LANES
        self._number, self._engine, self._backend = number, engine, backend
        self._opened: tuple[Gpu, GpuModel] | None = None
        self.model: GpuModel = self._open()[1]

    @property
    def least_batch(self) -> int:
        return self.model.profile.min_batch if self.model.profile else 1

    def describe(self) -> str:
        facts = self._open()[0].facts
        return f"{self.name}, {facts.model}, CUDA {facts.driver}, {self.lanes} lanes"

    def choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        """What the engine was made for, within the free memory: a batch is there once a lane."""
        gpu, model = self._open()
        wanted = model.profile.opt_batch if model.profile else _LARGEST_BATCH
        row = np.dtype(model.image.dtype).itemsize * math.prod(shape) + 4 * (2 * model.classes + 11)
        room = int(gpu.free_bytes() * _SHARE_OF_MEMORY / (row * self.lanes))
        while wanted > max(room, self.least_batch):
            wanted = max(wanted // 2, self.least_batch)
        return wanted, None

    def make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        from ars.engine.lanes.cuda import CudaLane

        gpu, model = self._open()
        if model.profile and not model.profile.min_batch <= batch <= model.profile.max_batch:
            takes = f"{self._engine} takes batches of {model.profile.min_batch} to {model.profile.max_batch}"
            raise ArgumentError("batch", batch, takes)
        made: list[Lane] = []
        try:
            for _ in range(self.lanes):
                made.append(CudaLane(gpu, model, shape, batch))
                made[-1].run(np.zeros((1, *shape), np.float32))
        except BaseException:
            for lane in made:
                lane.close()
            raise
        return Lanes(made, batch)

    def make_device(self, slots: int, dimensions: int, family: Family, seed: int) -> Device:
        from ars.engine.devices.cuda import Cuda

        return Cuda(self._open()[0], slots, dimensions, family, seed)

    def close(self) -> None:
        if self._opened:
            gpu, model = self._opened
            self._opened = None
            model.close()
            gpu.close()

    def _open(self) -> "tuple[Gpu, GpuModel]":
        if self._opened is None:
            from ars.engine.gpu import Gpu

            gpu = Gpu(self._number)
            try:
                self._opened = gpu, _load_on(gpu, self._engine, self._backend)
            except BaseException:
                gpu.close()
                raise
        return self._opened


def _load_on(gpu: "Gpu", engine: Path, backend: str) -> GpuModel:
    if engine.suffix in ENGINE_SUFFIXES and backend in ("auto", "tensorrt", "tensorrt_rtx"):
        from ars.engine.runners.tensorrt import TensorRT

        return TensorRT(engine, gpu)
    if engine.suffix == ".onnx" and backend in ("auto", "onnxruntime", ONNX_ON_GPU):
        from ars.engine.runners.onnxruntime_gpu import OnnxRuntimeGpu

        return OnnxRuntimeGpu(engine, gpu)
    fix = "give a TensorRT engine (.trt), or an ONNX file with --backend onnxruntime; or use --device cpu"
    raise ModelError(engine, f"{'it' if backend == 'auto' else backend} does not run on {gpu.name}", fix)


def devices_named(device: str | None, engine: Path, backend: str = "auto") -> list[str]:
    """The places of --device. Without one, TensorRT engines run on the first GPU, and other files on the processor,
    unless the backend is one for GPUs."""
    if device is None:
        return ["cuda:0"] if engine.suffix in ENGINE_SUFFIXES or backend == ONNX_ON_GPU else [CPU]
    names = device.split(",")
    if device != CPU and (len(set(names)) < len(names) or not all(re.fullmatch(r"cuda:\d+", name) for name in names)):
        raise ArgumentError("device", device, "it is cpu, cuda:0, or several GPUs like cuda:0,cuda:1")
    return names


def open_places(names: Sequence[str], engine: Path, backend: str, lanes: int | None) -> list[Place]:
    """The model, loaded at each place."""
    places: list[Place] = []
    try:
        for name in names:
            on_gpu = name != CPU
            places.append(
                CudaPlace(int(name.removeprefix("cuda:")), engine, backend, lanes)
                if on_gpu
                else HostPlace(engine, backend, lanes)
            )
    except BaseException:
        for place in places:
            place.close()
        raise
    return places
