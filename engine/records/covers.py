"""Whether a perturbed input lies inside the region that a run has certified around the input."""

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import ImageSize, image_channels
from ars.data.arrays import Npz, read_npy
from ars.data.decode import IMAGE_SUFFIXES
from ars.data.images import OneImage
from ars.data.pixels import to_pixels
from ars.engine.records.record import Record
from ars.engine.records.reopen import find_noise, read_input, reopen_data, reopen_noise
from ars.engine.records.settings import RunHeader
from ars.engine.records.store import read_header, read_records
from ars.engine.statistics.certificate import format_radius, format_upper
from ars.errors import ArgumentError, DataError, ModelError
from ars.noise import Scope
from ars.noise.norms import norm_name

__all__ = ["Coverage", "check_coverage"]

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Coverage:
    """Where a perturbed input lies relative to the certificate of an input."""

    record: Record
    class_name: str | None
    """The certified class, if there is one."""
    measure: float
    """||delta / scale|| in the norm of the certificate, never below its exact value."""
    length: float
    """||delta|| in the same norm, never below its exact value."""

    @property
    def covered(self) -> bool:
        """Whether the certificate says that the answer at the perturbed input is the certified class."""
        return self.measure < self.record.certificate.K

    def describe(self, perturbed: Path) -> str:
        """The answer in a sentence."""
        certificate, idx = self.record.certificate, self.record.idx
        if certificate.abstained:
            return f"{perturbed} is not covered, because the certificate of input {idx} abstained and claims nothing."
        norm = norm_name(certificate.norm)
        inside, K = _compare(self.measure, certificate.K)
        length, radius = _compare(self.length, certificate.radius)
        region = f"{norm} norm of delta / scale {inside} against K = {K}"
        ball = f"{norm} norm of delta {length} against the radius {radius}"
        if not self.covered:
            return f"{perturbed} is not covered: it is outside the certified region of input {idx} ({region}; {ball})."
        # The ball is a part of the region.
        where = "region and ball" if self.length < certificate.radius else "region, though outside the ball,"
        return (
            f"{perturbed} is covered: it is inside the certified {where} of input {idx} ({region}; {ball}), so the "
            f"smoothed classifier answers {self.class_name} with confidence {1 - certificate.alpha:.12g}; scope "
            f"{certificate.scope}, {_SCOPES[certificate.scope]}."
        )


_SCOPES = {
    Scope.GLOBAL: "that is, the classifier that is deployed",
    Scope.FROZEN: "that is, the classifier whose noise is frozen at the maps of the unperturbed input, and not the "
    "deployed one, which may make other maps for the perturbed input",
}


def check_coverage(
    path: Path,
    idx: int,
    perturbed: Path,
    *,
    engine: Path | None = None,
    noise: Path | None = None,
    data: str | None = None,
) -> Coverage:
    """Compare a perturbed input with the certificate of input `idx` in a run store. `engine`, `noise` and `data` say
    where these are now; by default, where the run had them."""
    header = read_header(path)
    record = next((record for record in read_records(path) if record.idx == idx), None)
    if record is None:
        raise ArgumentError("input", idx, f"{path} has no certificate of it; `ars-engine results` lists all")
    source = reopen_data(header, path, data)
    if source is None:
        name = data or header.origin.data_source
        raise DataError(
            name or "data", "it is not there, or not the data of the run", "say with --data where it is now"
        )
    x = read_input(source, record, path)
    scale = _read_scale(header, path, record.idx, x, engine, noise)
    delta = read_perturbed(perturbed, x.shape).astype(np.float64) - x
    certificate = record.certificate
    return Coverage(
        record,
        None if certificate.abstained else _class_name(header, certificate.predicted),
        measure=certificate.measure(delta, scale),
        length=certificate.noise_family.weighted_norm(delta, 1.0),
    )


def read_perturbed(path: Path, shape: tuple[int, ...]) -> Array:
    """One input of this shape from an image, an .npy, or the array x of an .npz file. It is not resized: the region is
    about what the model sees."""
    if not path.is_file():
        raise DataError(path, "there is no such file", "give an image, an .npy or an .npz file")
    if path.suffix.lower() in IMAGE_SUFFIXES:
        x = OneImage(path, ImageSize(channels=image_channels(shape)))[0].x
    elif path.suffix == ".npy":
        x = to_pixels(read_npy(path, DataError), path)
    elif path.suffix == ".npz":
        arrays = Npz(path, DataError)
        if "x" not in arrays.headers:
            found = ", ".join(arrays.headers) or "nothing"
            raise DataError(path, f"it has no array x, only {found}", "name the input x")
        x = to_pixels(arrays.read("x"), path)
    else:
        raise DataError(path, "files of this kind are not supported", "give an image, an .npy or an .npz file")
    if x.shape not in (shape, (1, *shape)):
        fix = "give the perturbed input as the model sees it, after any --resize and --crop"
        raise DataError(path, f"its shape is {x.shape}, and the input has {shape}", fix)
    return x.reshape(shape)


def _read_scale(header: RunHeader, store: Path, idx: int, x: Array, engine: Path | None, noise: Path | None) -> Array:
    if noise is not None and not noise.is_file():
        raise ModelError(noise, "there is no such file", "give the noise generator or the maps of the run")
    file = noise or find_noise(header, store, engine)
    maps = reopen_noise(header, [] if file is None else [file], x.shape)
    if maps is None:
        name = file or header.origin.noise_file or engine or header.origin.engine_file or "noise"
        fix = "say with --engine where the model is now, or with --noise where its noise is"
        raise ModelError(name, "the noise maps of the run are not there", fix)
    return maps.at(idx, x)[1]


def _class_name(header: RunHeader, number: int) -> str:
    return f"class {number}" + (f" ({header.classes[number]})" if header.classes else "")


def _compare(value: float, bound: float) -> tuple[str, str]:
    """Both numbers as text, the value rounded up and the bound rounded down, with enough digits to show which is the
    smaller one."""
    for digits in range(4, 20):
        texts = format_upper(value, digits), format_radius(bound, digits)
        if value >= bound or Decimal(texts[0]) < Decimal(texts[1]):
            break
    return texts
