"""The paper's Figure 2 for chosen inputs: the image, its noise maps, and noisy copies beside isotropic ones.

A store says where its data and its noise came from; where they are elsewhere by now, they are given.
The copies are draws that were counted: the noise is made again from the run's seed. A strip is shown only for inputs,
and with noise files, whose hashes are those of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.bench.report.runs import Run
from ars.data import Dataset, ImageSize, open_data
from ars.data.images import ImageFolder, OneImage
from ars.data.pixels import file_sha256
from ars.engine.backends import load_generator
from ars.engine.noise_maps import Generated, Isotropic, Maps, NoiseMaps
from ars.engine.records.run import content_sha256
from ars.engine.records.store import Record
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.errors import ArsError
from ars.manifest import Manifest, manifest_beside
from ars.noise import NoiseKind, family_named

__all__ = ["COPIES", "Strip", "Strips", "choose_inputs", "data_of", "make_strips", "recorded_data", "recorded_noise"]

COPIES = 3

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Strip:
    record: Record
    x: Array
    mean: Array
    scale: Array
    copies: Array
    """The first draws that bounded the class's share."""
    isotropic: Array
    """The same noise with one scale everywhere, the smallest of the map."""


@dataclass(frozen=True)
class Strips:
    """The strips of a run; or why there are none."""

    strips: tuple[Strip, ...]
    missing: str | None = None


def data_of(run: Run, spec: str) -> Dataset | None:
    """The data that `spec` names, read as the run read it; None where the run was not made with it as it is now.

    The store says the size of its images and the file of its classes. Their channels, which only the model knows, are
    tried.
    """
    origin, classes = run.environment, run.environment.get("classes_file")
    resize, crop = (None if origin.get(name) is None else int(str(origin[name])) for name in ("resize", "crop"))
    try:
        for channels in (None, 1, 3):
            size = ImageSize(resize, crop, channels)
            source = open_data(spec, size, None if classes is None else Path(str(classes)))
            if source.fingerprint() == run.settings["data"]:
                return source
            if not isinstance(source, ImageFolder | OneImage):
                break  # its channels are what they are
    except (ArsError, OSError):
        pass
    return None


def recorded_data(run: Run) -> Dataset | None:
    """The data of a run, from where the store says that it came from, if it is still there."""
    spec = run.environment.get("data_source")
    return None if spec is None else data_of(run, str(spec))


def recorded_noise(run: Run) -> Path | None:
    """The file of a run's noise maps, from where the store says that it came from, if it is still there."""
    given, manifest = run.environment.get("noise_file"), _manifest(run)
    path = None if given is None else Path(str(given))
    if path is None and manifest is not None:
        name = next((file.path for file in manifest.files if file.role == "noise"), None)
        path = None if name is None else Path(str(run.environment["engine_file"])).with_name(name)
    return path if path is not None and path.is_file() else None


def _manifest(run: Run) -> Manifest | None:
    engine = run.environment.get("engine_file")
    try:
        return None if engine is None else manifest_beside(Path(str(engine)))
    except (ArsError, OSError):
        return None


def choose_inputs(runs: Sequence[Run]) -> list[int]:
    """Inputs worth looking at: of those that the first run with maps has right, the largest and the middle radius; and
    one that it has not."""
    run = next((run for run in runs if run.settings["kind"] != NoiseKind.ISOTROPIC), runs[0])
    certified = sorted(
        (record for record in run.records if not record.certificate.abstained and record.correct is not False),
        key=lambda record: -record.certificate.radius,
    )
    others = [record for record in run.records if record.correct is False or record.certificate.abstained]
    chosen = [certified[0], certified[len(certified) // 2]] if certified else []
    return list(dict.fromkeys(record.idx for record in [*chosen, *others[:1]]))


def make_strips(run: Run, inputs: Sequence[int], data: Dataset | None, noise_files: Sequence[Path]) -> Strips:
    """The strips of those of the inputs that are certified in a run, from the data and the noise files that it had."""
    records = {record.idx: record for record in run.records}
    if data is None:
        name = run.environment.get("data_name", "the data")
        return Strips(
            (), f"The store keeps certificates, not images: say with --data where {name} is now to see its inputs here."
        )
    try:
        certified = [(records[idx], data[idx].x) for idx in inputs if idx in records]
        noise = _noise_of(run, noise_files, certified[0][1].ndim) if certified else None
        if certified and noise is None:
            return Strips(
                (), "The noise maps come from a file of their own: say with --noise where it is now to see them here."
            )
        return Strips(tuple(_strip(run, record, x, noise) for record, x in certified if noise))
    except (ArsError, IndexError) as error:
        return Strips((), f"The inputs cannot be shown: {error}.")


def _noise_of(run: Run, files: Sequence[Path], input_axes: int) -> NoiseMaps | None:
    settings = run.settings
    if "sigma" in settings:
        return Isotropic(float(str(settings["sigma"])))
    wanted = settings.get("maps") or settings.get("generator")
    path = next((path for path in files if file_sha256(path) == wanted), None)
    if path is None:
        return None
    if "maps" in settings:
        return Maps(path, input_axes)
    return Generated(path, load_generator(path), NoiseKind(str(settings["kind"])))


def _strip(run: Run, record: Record, x: Array, noise: NoiseMaps) -> Strip:
    if content_sha256(x) != record.input_sha256:
        raise ArsError(f"input {record.idx} is not what it was when it was certified")
    mean, scale = noise.at(record.idx, x)
    smallest = np.full_like(scale, scale.min())
    return Strip(
        record, x, mean, scale, _copies(run, record.idx, x, mean, scale), _copies(run, record.idx, x, 0, smallest)
    )


def _copies(run: Run, idx: int, x: Array, mean: Array | int, scale: Array) -> Array:
    sampler = HostSampler(1, x.size, family_named(str(run.settings["family"])), int(str(run.settings["seed"])))
    sampler.load(0, x, mean, scale)
    copies = np.empty((COPIES, *x.shape), np.float32)
    sampler.fill(copies, [Request(0, idx, Phase.ESTIMATION, 0, COPIES)])
    return copies
