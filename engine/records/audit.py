"""A run, checked again: do its certificates follow from their votes, and do the same draws vote the same again?

The first needs the store alone and is done for every certificate. The second needs the model and the data: the noise is
a function of seed, input, phase and draw, so some inputs are certified once more and compared with the record.
"""

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ars.data import Dataset, ImageSize, open_data
from ars.data.pixels import file_sha256
from ars.engine.records.run import content_sha256, environment_of, settings_of
from ars.engine.records.store import Record, read_records, read_settings
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.certificate import Certificate, certify_votes
from ars.engine.statistics.plan import BOUNDS, Plan
from ars.errors import ArgumentError, ArsError, FileError, MissingPackage, ModelError, StoreError
from ars.noise import NoiseKind

__all__ = ["Audit", "audit"]

Settings = Mapping[str, object]


@dataclass
class Audit:
    """What was found. Without differences, the record holds."""

    recomputed: int = 0
    """Certificates whose bounds and radius were computed again from their votes."""
    redrawn: int = 0
    """Certificates whose noise was drawn again."""
    differences: list[str] = field(default_factory=list)
    machine: list[str] = field(default_factory=list)
    """Parts of this machine that are not as in the run. They decide no certificate by themselves."""


def audit(
    path: Path,
    *,
    sample: int,
    engine: Path | None = None,
    data: str | None = None,
    device: str | None = None,
    on_input: Callable[[], None] = lambda: None,
) -> Audit:
    """Check the run in a store. `engine` and `data` are where these are now; by default, where the run had them."""
    settings, environment, _ = read_settings(path)
    records = list(read_records(path))
    if not records:
        raise StoreError(path, "it holds no certificates", "certify some inputs first")
    found = Audit()
    with _reading_settings(path):
        plan, kind = Plan.from_settings(settings), NoiseKind(str(settings["kind"]))
        sigma = None if settings.get("sigma") is None else float(str(settings["sigma"]))
        size = _number(environment, "resize"), _number(environment, "crop")
        if "bounds" in plan.settings and settings.get("bounds") != BOUNDS:
            problem = f"its bounds are of version {settings.get('bounds', 1)}, and this version of ARS has {BOUNDS}"
            raise StoreError(path, problem, "use the version that wrote it")
    for record in records:
        found.differences += _recompute(record, plan, str(settings["family"]), kind)
        found.recomputed += 1
    found.differences += _compare_scales(records, kind, sigma)
    # Others each time: who alters a record cannot know which.
    chosen = random.sample(records, min(sample, len(records)))
    file = engine or _recorded(path, environment, "engine_file", "--engine")
    source = data or _recorded(path, environment, "data_source", "--data")
    if not Path(file).exists():
        raise ModelError(file, "there is no such file", "say with --engine where the model is now")
    if (sha256 := file_sha256(Path(file))) != settings["engine"]:
        found.differences.append(f"{file}: it is not the model of the run (its SHA-256 is {sha256})")
        return found
    with nullcontext() if device else _reading_settings(path):
        loaded = _load(Path(file), settings, sigma, environment, device)
    with loaded as classifier:
        classes = environment.get("classes_file")
        images = ImageSize(*size, classifier.channels)
        opened = open_data(str(source), images, None if classes is None else Path(str(classes)))
        here = settings_of(classifier, opened, plan)
        other = _compare(settings, here, settings.keys() | here.keys())
        machine = environment_of(classifier, opened)
        found.machine += _compare(environment, machine, environment.keys() & machine.keys())
        found.differences += other
        if not other:
            others = _compare_inputs(records, opened)
            found.differences += others.values()
            chosen = [record for record in chosen if record.idx not in others]
            for differences in _redraw(chosen, classifier, opened, plan):
                found.differences += differences
                found.redrawn += 1
                on_input()
    return found


@contextmanager
def _reading_settings(path: Path) -> Iterator[None]:
    """Settings that no run has are the store's fault."""
    try:
        yield
    except (FileError, MissingPackage):
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise StoreError(path, f"its settings are damaged ({error})", "certify again into another store") from error


def _number(environment: Settings, name: str) -> int | None:
    value = environment.get(name)
    return None if value is None else int(str(value))


def _recorded(path: Path, environment: Settings, name: str, option: str) -> str:
    if environment.get(name) is None:
        raise ArgumentError(option.lstrip("-"), None, f"{path} does not say where it was; give {option}")
    return str(environment[name])


def _recompute(record: Record, plan: Plan, family: str, kind: NoiseKind) -> list[str]:
    """The certificate once more, from the votes in the record."""
    made = record.certificate
    try:
        again = certify_votes(
            made.counts, made.selected, plan=plan, family=family, scale=made.sigma_min, kind=kind, looks=made.looks
        )
    except ArsError as error:
        return [f"input {record.idx}: its votes make no certificate ({error})"]
    if record.draws != again.n0 + again.n:
        return [f"input {record.idx}: draws is {record.draws} in the record, and its votes are {again.n0 + again.n}"]
    # The smallest scale alone says nothing of the map's other values.
    return _compare_certificates(record.idx, made, again, "its votes give", without=("sigma_geomean",))


def _compare_scales(records: list[Record], kind: NoiseKind, sigma: float | None) -> list[str]:
    """Noise that is the same for all inputs has the same scale in all records, and where that is one number, it."""
    if kind is NoiseKind.INPUT:
        return []
    first = records[0].certificate
    expected = first.sigma_min if sigma is None else float(np.float32(sigma))
    return [
        f"input {record.idx}: sigma_min is {record.certificate.sigma_min} in the record, and the run's is {expected}"
        for record in records
        if record.certificate.sigma_min != expected
    ]


def _compare_inputs(records: list[Record], data: Dataset) -> dict[int, str]:
    """The inputs that are not in the data as the run read them, and what is there."""
    found = {}
    for idx, label, sha256 in ((record.idx, record.label, record.input_sha256) for record in records):
        if not 0 <= idx < len(data):
            found[idx] = f"input {idx}: {data.name} has only {len(data)} inputs"
        elif (content_sha256((example := data[idx]).x), example.label) != (sha256, label):
            found[idx] = f"input {idx}: {data.name} has another image or label there"
    return found


def _redraw(records: list[Record], classifier: SmoothedClassifier, data: Dataset, plan: Plan) -> Iterator[list[str]]:
    """The differences of each input that is certified again."""
    by_id = {record.idx: record for record in records}
    for one in classifier.certify_many(((idx, data[idx].x) for idx in by_id), plan):
        yield _compare_certificates(one.input_id, by_id[one.input_id].certificate, one.result, "drawn again it is")


def _compare_certificates(
    idx: int, recorded: Certificate, again: Certificate, verb: str, without: tuple[str, ...] = ()
) -> list[str]:
    here = asdict(again)
    return [
        f"input {idx}: {name} is {value} in the record, and {verb} {here[name]}"
        for name, value in asdict(recorded).items()
        if name not in without and value != here[name]
    ]


def _compare(recorded: Settings, here: Settings, names: Collection[str]) -> list[str]:
    """What differs, of these."""
    return [
        f"{name}: the run's is {recorded.get(name)}, and here it is {here.get(name)}"
        for name in sorted(names)
        if recorded.get(name) != here.get(name)
    ]


def _load(
    engine: Path, settings: Settings, sigma: float | None, environment: Settings, device: str | None
) -> SmoothedClassifier:
    noise = environment.get("noise_file")
    return load(
        engine,
        sigma=sigma,
        noise=None if noise is None else str(noise),
        family=str(settings["family"]),
        batch=int(str(settings["batch"])),
        seed=int(str(settings["seed"])),
        backend="auto" if device else str(settings["runner"]),
        device=device,
    )
