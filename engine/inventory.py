"""What this machine can run models on and with: processors, GPUs, libraries; and for what it cannot, what to do."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ars.distribution import install_line
from ars.engine.backends import BACKENDS
from ars.engine.devices import CPU, choose_devices, open_devices
from ars.engine.samplers.host import usable_cores, usable_instructions
from ars.errors import ArsError

__all__ = ["Item", "find_devices_for", "take_inventory"]


@dataclass(frozen=True)
class Item:
    name: str
    ready: bool
    details: str
    """Its version and the like; or, if it is not ready, why, and what to do."""


def take_inventory() -> Iterator[Item]:
    """Each device and each runner."""
    yield _host()
    yield from _gpus()
    for backend in BACKENDS:
        try:
            yield Item(backend.name, True, f"version {backend.runner().version}")
        except ArsError as error:
            yield Item(backend.name, False, str(error))
    yield from _tensorrt()


def _host() -> Item:
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


def _tensorrt() -> Iterator[Item]:
    for flavour, extra in (("tensorrt", "gpu"), ("tensorrt_rtx", "rtx")):
        try:
            yield Item(flavour, True, f"version {importlib.import_module(flavour).__version__}")
        except ImportError:
            yield Item(flavour, False, f"{flavour} is not installed; run `{install_line(extra)}`")


def find_devices_for(engine: Path) -> Iterator[Item]:
    """Whether a model loads on each GPU, or, where none would run it, on the processor."""
    on_gpus = [item for item in _gpus() if item.ready]
    for name in [item.name for item in on_gpus] or choose_devices(None, engine):
        try:
            (device,) = open_devices([name], engine, "auto", None)
        except ArsError as error:
            yield Item(name, False, str(error))
            continue
        profile = device.runner.profile
        batches = f", batches of {profile.min_batch} to {profile.max_batch}" if profile else ""
        yield Item(name, True, f"{device.runner.name} {device.runner.version} runs {engine}{batches}")
        device.close()
