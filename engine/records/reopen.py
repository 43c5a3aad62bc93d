"""The data and the noise maps of a run, opened again where they were, or where they are now.

A store says where its data and its noise came from. What is found there is used only if its hash is that of the run.
"""

from collections.abc import Iterable
from pathlib import Path

from ars.data import Dataset, ImageSize, open_data
from ars.engine.backends import TORCH_SUFFIXES, load_generator, load_runner, manifest_of
from ars.engine.noise_maps import Isotropic, Maps, NoiseMaps, open_generator
from ars.engine.records.settings import RunHeader
from ars.errors import ArsError, ModelError
from ars.external_data import hash_model

__all__ = ["find_noise", "reopen_data", "reopen_noise"]


def reopen_data(header: RunHeader, spec: str | None = None) -> Dataset | None:
    """The data that `spec` names (by default, as the run named it), read as the run read it; None if it is not there,
    or not what it was.

    The store has the size of the images and the file of the classes. The channels, which only the model knows, are
    found by trying.
    """
    origin = header.origin
    spec = spec or origin.data_source
    if spec is None:
        return None
    classes_file = None if origin.classes_file is None else Path(origin.classes_file)
    try:
        for channels in (None, 1, 3):
            source = open_data(spec, ImageSize(origin.resize, origin.crop, channels), classes_file)
            if source.fingerprint() == header.settings.data:
                return source
    except (ArsError, OSError):
        pass
    return None


def find_noise(header: RunHeader, engine: Path | None = None) -> Path | None:
    """The file that the noise maps of a run come from: the one that the user gave, or the one of its model, which is
    where the run had it, or at `engine`. None if it is not there."""
    origin = header.origin
    path = None if origin.noise_file is None else Path(origin.noise_file)
    if engine is None and origin.engine_file is not None:
        engine = Path(origin.engine_file)
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
