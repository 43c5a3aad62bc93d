"""The model, the data and the noise maps of a run, found again where they were, or where they are now.

A store says where they came from: as the user named them, in which folder, and where the store was made. They are
looked for there, at the same place relative to the store, beside the store, and in the working folder. What is found is
used only if its hash is that of the run.

Whoever wrote a store could name any file of this machine. Therefore a path from a store is opened only if it is inside
the folder of the store or the working folder; the user has to name other places.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import Dataset, ImageSize, open_data
from ars.engine.backends import ENGINE_SUFFIXES, TORCH_SUFFIXES, load_generator, load_runner, manifest_of
from ars.engine.noise_maps import Isotropic, Maps, NoiseMaps, open_generator
from ars.engine.records.inputs import content_sha256
from ars.engine.records.record import Record
from ars.engine.records.settings import RunHeader, RunSettings
from ars.engine.records.store import read_header
from ars.engine.smoothed import SmoothedClassifier, load
from ars.errors import ArsError, ModelError, StoreError
from ars.external_data import hash_model
from ars.output import refuse_inputs

__all__ = [
    "check_near",
    "find_file",
    "find_model",
    "find_noise",
    "load_as_run",
    "read_input",
    "refuse_machine_code",
    "refuse_runs",
    "reopen_data",
    "reopen_noise",
]


def likely_places(header: RunHeader, store: Path, given: str) -> list[str]:
    """Where a file or folder may be now that the run was given by this name, the likeliest place first."""
    origin, name = header.origin, os.path.basename(given.rstrip("/"))
    places = [given]
    if origin.folder is not None:
        absolute = os.path.join(origin.folder, given)
        places.append(absolute)
        if origin.store_folder is not None:
            places.append(os.path.join(store.parent, os.path.relpath(absolute, origin.store_folder)))
    places += [os.path.join(store.parent, name), name]
    there = [place for place in dict.fromkeys(places) if place == given or os.path.exists(place)]
    return [place for place in there if is_near(store, place)]


def is_near(store: Path, place: str) -> bool:
    """Whether a path that a store names is inside the folder of the store or the working folder, links followed. What
    is not there at all, like the name of a data set, harms nobody."""
    file = place if os.path.exists(place) else place.rpartition(":")[0]
    if not os.path.exists(file):
        return True
    real = Path(os.path.realpath(file))
    return any(real.is_relative_to(os.path.realpath(folder)) for folder in (store.parent, "."))


def check_near(store: Path, place: str | None, fix: str) -> str | None:
    """Refuse to open a path that a store names elsewhere."""
    if place is not None and not is_near(store, place):
        problem = f"it names {place}, which is neither in its folder nor in the working folder"
        raise StoreError(store, problem, fix)
    return place


def refuse_runs(output: Path, stores: Iterable[Path]) -> None:
    """Reject an output that would overwrite a run store, or the model, the noise or the data of its run."""
    refuse_inputs(output, stores)
    for store in stores:
        header = read_header(store)
        origin = header.origin
        named = [
            name for name in (origin.engine_file, origin.noise_file, origin.data_source, origin.classes_file) if name
        ]
        refuse_inputs(output, [place for name in named for place in likely_places(header, store, name)])


def find_file(header: RunHeader, store: Path, given: str | None, sha256: str | None) -> Path | None:
    """The model or noise file that the run was given by this name; None if no file with this hash is found."""
    places = [] if given is None else likely_places(header, store, given)
    for path in map(Path, places):
        try:
            if path.is_file() and hash_model(path).sha256 == sha256:
                return path
        except (ArsError, OSError):
            continue
    return None


def find_model(header: RunHeader, store: Path) -> Path | None:
    """The model of the run; None if it is not found."""
    return find_file(header, store, header.origin.engine_file, header.settings.engine)


def refuse_machine_code(store: Path, model: Path) -> None:
    """Refuse a TensorRT engine that only a store names: whoever wrote the store could have made it."""
    if model.suffix in ENGINE_SUFFIXES:
        problem = f"its model, {model}, is a TensorRT engine, which is machine code"
        raise StoreError(store, problem, "name it with --engine if you trust it")


def reopen_data(header: RunHeader, store: Path, spec: str | None = None) -> Dataset | None:
    """The data that `spec` names, or by default that of the run in a likely place, read as the run read it; None if it
    is not there, or not what it was.

    The store has the size of the images and the file of the classes. The channels, which only the model knows, are
    found by trying.
    """
    given = header.origin.data_source
    places = [spec] if spec else [] if given is None else likely_places(header, store, given)
    return next((found for place in places if (found := _open(header, store, place)) is not None), None)


def _open(header: RunHeader, store: Path, spec: str) -> Dataset | None:
    origin, classes_file = header.origin, None
    if origin.classes_file is not None:
        classes_file = Path(next(filter(os.path.exists, likely_places(header, store, origin.classes_file)), ""))
    try:
        for channels in (None, 1, 3):
            source = open_data(spec, ImageSize(origin.resize, origin.crop, channels), classes_file)
            if source.fingerprint() == header.settings.data:
                return source
    except (ArsError, OSError):
        pass
    return None


def find_noise(header: RunHeader, store: Path, engine: Path | None = None) -> Path | None:
    """The file that the noise maps of a run come from: the one that the user gave, or the one of its model, which is
    in a likely place, or at `engine`. None if it is not there."""
    origin = header.origin
    path = find_file(header, store, origin.noise_file, header.settings.noise.file)
    if path is None and origin.noise_file is not None and is_near(store, origin.noise_file):
        path = Path(origin.noise_file)
    engine = engine or find_model(header, store)
    if path is None and engine is not None:
        try:
            manifest = manifest_of(engine)
            path = manifest.file("noise", engine.parent) if manifest else engine  # a model.pt has its noise inside
        except (ArsError, OSError):
            return None
    return path if path is not None and path.is_file() else None


def reopen_noise(header: RunHeader, files: Iterable[Path], shape: tuple[int, ...]) -> NoiseMaps | None:
    """The noise maps of a run for inputs of this shape; None if they come from a file that is not among these."""
    source, kind = header.settings.noise, header.settings.kind
    if source.sigma is not None:
        return Isotropic(source.sigma)
    path = next((path for path in files if hash_model(path).sha256 == source.file), None)
    if path is None:
        return None
    if source.maps is not None:
        return Maps(path, len(shape))
    generator = load_runner(path).own_generator if path.suffix in TORCH_SUFFIXES else load_generator(path)
    if generator is None:
        raise ModelError(path, "it has no noise of its own", "give the file that the run was made with")
    noise = open_generator(path, generator, kind, shape)
    if source.constant_maps not in (None, noise.source.constant_maps):
        raise ModelError(path, "it makes other maps here than it made for the run", "use the machine of the run")
    return noise


def read_input(data: Dataset, record: Record, path: Path) -> NDArray[np.float32]:
    """The input of a record, if the data still has it; `path` is the store."""
    if not 0 <= record.idx < len(data) or content_sha256(x := data[record.idx].x) != record.input_sha256:
        problem = f"input {record.idx} of {data.name} is not what it was when it was certified"
        raise StoreError(path, problem, "say with --data where the data of the run is now")
    return x


def load_as_run(
    engine: Path, settings: RunSettings, noise_file: str | None, device: str | None = None
) -> SmoothedClassifier:
    """The smoothed classifier of a run, with its noise, seed and batch; on another device, with the backend that suits
    it."""
    return load(
        engine,
        sigma=settings.noise.sigma,
        noise=noise_file,
        family=settings.family,
        batch=settings.batch,
        seed=settings.seed,
        noise_stream=settings.noise_stream,
        lattice_step=settings.lattice_step,
        backend="auto" if device else settings.runner,
        device=device,
    )
