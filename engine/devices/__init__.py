"""The devices that `--device` names: the CPU, and GPUs. A device holds the classifier's runner, and makes the lanes and
samplers that work there."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ars.engine.backends import CPU, CUDA, backend_named, list_backends, load_runner
from ars.engine.lanes import Lanes
from ars.engine.lattice import Lattice
from ars.engine.runners import Runner
from ars.engine.samplers import Sampler
from ars.errors import ArgumentError, ModelError
from ars.noise import Family

__all__ = ["CPU", "Device", "choose_devices", "open_devices"]


class Device(Protocol):
    name: str
    """The name that `--device` takes: cpu, cuda:0."""
    lane_count: int

    @property
    def runner(self) -> Runner: ...

    @property
    def least_batch(self) -> int:
        """The smallest batch size that the runner accepts."""
        ...

    def describe(self) -> str:
        """One line about the device, which a run store records."""
        ...

    def choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        """A good batch size for this device, and the draws per second measured with it, or None if it was not
        measured."""
        ...

    def make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        """Lanes that have each run one batch. Raises OutOfMemory if a smaller batch may fit."""
        ...

    def make_sampler(
        self, slots: int, dimensions: int, family: Family, seed: int, lattice: Lattice | None = None
    ) -> Sampler: ...

    def close(self) -> None:
        """Release what the device holds. Using the device again acquires it again."""
        ...


def choose_devices(device: str | None, engine: Path, backend: str = "auto") -> list[str]:
    """The names of the devices in `--device`.

    Without the option it is the CPU, or the first GPU if the backend, or every backend that reads the file, needs one.
    """
    if device is None:
        able = [one for one in list_backends() if one.reads(engine)] if backend == "auto" else [backend_named(backend)]
        return ["cuda:0"] if able and all(one.runs_on == CUDA for one in able) else [CPU]
    names = device.split(",")
    if device != CPU and (len(set(names)) < len(names) or not all(re.fullmatch(r"cuda:\d+", name) for name in names)):
        raise ArgumentError("device", device, "it is cpu, cuda:0, or several GPUs like cuda:0,cuda:1")
    return names


def open_devices(names: Sequence[str], engine: Path, backend: str, lane_count: int | None) -> list[Device]:
    """The named devices, with the model loaded on each of them."""
    devices: list[Device] = []
    try:
        for name in names:
            if name == CPU:
                from ars.engine.devices.cpu import CpuDevice
                from ars.engine.samplers.host import usable_cores

                devices.append(CpuDevice(load_runner(engine, backend, lane_count or usable_cores())))
            else:
                from ars.engine.devices.cuda import CudaDevice

                devices.append(CudaDevice(int(name.removeprefix("cuda:")), engine, backend, lane_count))
        if len({device.runner.sha256 for device in devices}) > 1:
            raise ModelError(engine, "it changed while it was being read", "start again when it is complete")
    except BaseException:
        for device in devices:
            device.close()
        raise
    return devices
