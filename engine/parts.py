"""What this machine can run models on and with: processors, GPUs, libraries; and for what it cannot, what to do."""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ars.distribution import install_line
from ars.engine.devices.host import usable_cores, usable_instructions
from ars.engine.places import CPU, CudaPlace, devices_named, open_places
from ars.engine.runners import BACKENDS
from ars.errors import ArsError

__all__ = ["Part", "list_parts", "where_it_runs"]


@dataclass(frozen=True)
class Part:
    name: str
    ready: bool
    what: str
    """Details, or what to do."""


def list_parts() -> Iterator[Part]:
    """Each device and each runner."""
    yield _host()
    yield from _gpus()
    for backend in BACKENDS:
        try:
            yield Part(backend.name, True, f"version {backend.runner().version}")
        except ArsError as error:
            yield Part(backend.name, False, str(error))
    yield from _tensorrt()


def _host() -> Part:
    try:
        fastest, *others = usable_instructions()
    except ArsError as error:
        return Part(CPU, False, str(error))
    also = f" (also here: {', '.join(others)})" if others else ""
    return Part(CPU, True, f"{usable_cores()} cores, noise by {fastest}{also}")


def _gpus() -> Iterator[Part]:
    try:
        from ars.engine.gpu import list_gpus

        found = list_gpus()
    except ArsError as error:
        yield Part("cuda", False, str(error))
        return
    for gpu in found:
        compute = ".".join(map(str, gpu.compute_capability))
        memory = f"{gpu.memory / 2**30:.1f} GiB"
        yield Part(gpu.name, True, f"{gpu.model}, compute {compute}, {memory}, driver for CUDA {gpu.driver}")
    if not found:
        yield Part("cuda", False, "there is no GPU here; use --device cpu")


def _tensorrt() -> Iterator[Part]:
    for flavour, extra in (("tensorrt", "gpu"), ("tensorrt_rtx", "rtx")):
        try:
            yield Part(flavour, True, f"version {importlib.import_module(flavour).__version__}")
        except ImportError:
            yield Part(flavour, False, f"{flavour} is not installed; run `{install_line(extra)}`")


def where_it_runs(engine: Path) -> Iterator[Part]:
    """Whether a model loads on each GPU, or, where none would run it, on the processor."""
    on_gpus = [part for part in _gpus() if part.ready]
    for name in [part.name for part in on_gpus] or devices_named(None, engine):
        try:
            (place,) = open_places([name], engine, "auto", None)
        except ArsError as error:
            yield Part(name, False, str(error))
            continue
        profile = place.model.profile if isinstance(place, CudaPlace) else None
        batches = f", batches of {profile.min_batch} to {profile.max_batch}" if profile else ""
        yield Part(name, True, f"{place.model.name} {place.model.version} runs {engine}{batches}")
        place.close()
