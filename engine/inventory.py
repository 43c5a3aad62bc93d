"""What this machine can run models on, and with: the CPU, GPUs and backends. What is missing has the reason and the
remedy."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from ars.engine.backends import list_backends
from ars.engine.devices import CPU, choose_devices, open_devices
from ars.engine.samplers.host import usable_cores, usable_instructions
from ars.errors import ArsError

__all__ = ["Item", "find_devices_for", "take_inventory"]


@dataclass(frozen=True)
class Item:
    """A device or a backend."""

    name: str
    ready: bool
    details: str
    """Its version and the like; or, if it is not ready, the reason and the remedy."""


def take_inventory() -> Iterator[Item]:
    """Every device, and then every backend."""
    yield _cpu()
    yield from _gpus()
    for backend in list_backends():
        try:
            yield Item(backend.name, True, f"version {backend.load().version}")
        except ArsError as error:
            yield Item(backend.name, False, str(error))


def _cpu() -> Item:
    try:
        fastest, *others = usable_instructions()
    except ArsError as error:
        return Item(CPU, False, str(error))
    also = f" (also here: {', '.join(others)})" if others else ""
    return Item(CPU, True, f"{usable_cores()} cores, noise by {fastest}{also}")


def _gpus() -> Iterator[Item]:
    try:
        from ars.engine.gpu import list_gpus

        found = list_gpus()
    except ArsError as error:
        yield Item("cuda", False, str(error))
        return
    for gpu in found:
        compute = ".".join(map(str, gpu.compute_capability))
        memory = f"{gpu.memory / 2**30:.1f} GiB"
        yield Item(gpu.name, True, f"{gpu.model}, compute {compute}, {memory}, driver for CUDA {gpu.driver}")
    if not found:
        yield Item("cuda", False, "there is no GPU here; use --device cpu")


def find_devices_for(engine: Path) -> Iterator[Item]:
    """Whether a model loads on each GPU; or, on a machine without GPUs, on the device that certify would use."""
    gpus = [item.name for item in _gpus() if item.ready]
    for name in gpus or choose_devices(None, engine):
        try:
            (device,) = open_devices([name], engine, "auto", None)
        except ArsError as error:
            yield Item(name, False, str(error))
            continue
        with closing(device):
            runner, profile = device.runner, device.runner.profile
            batches = f", batches of {profile.min_batch} to {profile.max_batch}" if profile else ""
            yield Item(name, True, f"{runner.name} {runner.version} runs {engine}{batches}")
