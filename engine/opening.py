"""Opens what a smoothed classifier is made of: the model on its devices, and the noise that smooths it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.checks import whole_number
from ars.engine.backends import choose_backend, manifest_of
from ars.engine.devices import CPU, Device, choose_devices, open_devices
from ars.engine.in_process import InProcess
from ars.engine.lattice import UNKNOWN_STEP, Lattice, choose_step
from ars.engine.noise_maps import Isotropic, NoiseMaps, open_noise
from ars.engine.runners import CpuRunner, Runner
from ars.errors import ArgumentError
from ars.manifest import Manifest
from ars.noise import Family, family_named

__all__ = ["Opened", "Wanted", "check_wanted", "open_file", "open_in_process"]


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What `ars.load` was asked for; None where nothing was."""

    sigma: float | None
    noise: Path | None
    family: str | None
    noise_stream: int
    lattice_step: float | None
    backend: str
    device: str | None
    lane_count: int | None


@dataclass(frozen=True)
class Opened:
    devices: list[Device]
    manifest: Manifest | None
    noise: NoiseMaps
    family: Family
    lattice: Lattice | None
    why: str | None
    """Why `auto` took this backend, as a note to the user."""

    @property
    def runner(self) -> Runner:
        return self.devices[0].runner


def open_file(engine: Path, wanted: Wanted) -> Opened:
    """Open a model file, with the manifest beside it."""
    beside = manifest_of(engine)
    names, backend, why = choose_devices(wanted.device, engine, wanted.backend), wanted.backend, None
    if backend == "auto" and names == [CPU]:
        backend, why = choose_backend(engine, beside)
    devices = open_devices(names, engine, backend, wanted.lane_count)
    try:
        runner = devices[0].runner
        manifest = beside or runner.own_manifest
        if manifest:
            manifest.check(engine, runner.sha256, runner.shape, runner.classes)
        return _add_noise(devices, manifest, wanted, why)
    except BaseException:
        _close(devices)
        raise


def check_wanted(wanted: Wanted) -> None:
    """Reject at once what would be rejected when a model of this process is opened, at its first input."""
    if wanted.sigma is None and wanted.noise is None:
        raise ArgumentError("sigma", None, "a model without a manifest needs sigma or noise")
    if wanted.sigma is not None and wanted.noise is not None:
        raise ArgumentError("sigma", wanted.sigma, "give either sigma or noise")
    if wanted.sigma is not None:
        Isotropic(wanted.sigma)
    family_named(wanted.family or "gaussian")


def open_in_process(model: InProcess, wanted: Wanted, x: NDArray[np.float32]) -> Opened:
    """Open a model of this process for inputs like x. What a module was exported to is compared with it there."""
    devices, why = model.open(x.shape, wanted.lane_count)
    try:
        opened = _add_noise(devices, None, wanted, why)
        if isinstance(opened.runner, CpuRunner):
            model.check(opened.runner.run, x, *opened.noise.at(0, x), opened.family.name)
        return opened
    except BaseException:
        _close(devices)
        raise


def _add_noise(devices: list[Device], manifest: Manifest | None, wanted: Wanted, why: str | None) -> Opened:
    noise = open_noise(manifest, devices[0].runner, wanted.sigma, wanted.noise)
    own = manifest is not None and wanted.sigma is None and wanted.noise is None
    family = family_named(wanted.family or (manifest.noise.family if own and manifest else "gaussian"))
    return Opened(devices, manifest, noise, family, _choose_lattice(wanted, noise), why)


def _choose_lattice(wanted: Wanted, noise: NoiseMaps) -> Lattice | None:
    step = wanted.lattice_step
    if whole_number("noise_stream", wanted.noise_stream, 1, 2, "there are the noise streams 1 and 2") == 1:
        if step is not None:
            raise ArgumentError("lattice_step", step, "noise stream 1 has no lattice: leave it out")
        return None
    if step is None:
        argument = "scale" if noise.source.sigma is None else "sigma"
        step = UNKNOWN_STEP if noise.scale_hint is None else choose_step(noise.scale_hint, argument)
    return Lattice(step)


def _close(devices: list[Device]) -> None:
    for device in devices:
        device.close()
