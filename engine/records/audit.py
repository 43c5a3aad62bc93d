"""An audit of a run: do its certificates follow from their votes, and do the same draws give the same votes again?

The first question needs the store alone, and is answered for every certificate. The second needs the model and the
data: since the noise is a function of seed, input, phase and draw, a sample of the inputs is certified once more and
compared with the record.
"""

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.data import Dataset, ImageSize, open_data
from ars.engine.examples import FromData
from ars.engine.records.inputs import content_sha256
from ars.engine.records.record import Record
from ars.engine.records.reopen import (
    check_near,
    find_file,
    find_model,
    load_as_run,
    refuse_machine_code,
    reopen_data,
)
from ars.engine.records.run import settings_of
from ars.engine.records.settings import Difference, RunSettings, differences
from ars.engine.records.store import read_header, read_records
from ars.engine.records.work import environment_of
from ars.engine.smoothed import SmoothedClassifier
from ars.engine.statistics.certificate import (
    Certificate,
    certify_votes,
    end_after_selection,
    geometric_mean,
)
from ars.errors import ArgumentError, ArsError, FileError, MissingPackage, ModelError, StoreError
from ars.external_data import hash_model
from ars.noise import NoiseKind
from ars.noise.norms import inverse_norms

__all__ = ["Audit", "audit"]


@dataclass
class Audit:
    """What an audit found. The record holds if there are no differences."""

    recomputed: int = 0
    """Certificates whose bounds and radius were computed again from their votes."""
    redrawn: int = 0
    """Certificates whose noise was drawn again."""
    differences: list[str] = field(default_factory=list)
    machine: list[str] = field(default_factory=list)
    """What differs between the environment of the run and this one. A difference here is not a failure."""


def audit(
    path: Path,
    *,
    sample: int,
    engine: Path | None = None,
    data: str | None = None,
    device: str | None = None,
    on_input: Callable[[], None] = lambda: None,
) -> Audit:
    """Check the run in a store. `engine` and `data` say where these are now; by default, where the run had them."""
    header = read_header(path)
    settings, origin, plan = header.settings, header.origin, header.settings.plan
    records = list(read_records(path))
    if not records:
        raise StoreError(path, "it holds no certificates", "certify some inputs first")
    if settings.bounds != plan.bounds_version:
        problem = f"its bounds are of version {settings.bounds or 1}, and this version of ARS has {plan.bounds_version}"
        raise StoreError(path, problem, "use the version that wrote it")
    found = Audit()
    for record in records:
        found.differences += _recompute(record, settings)
        found.recomputed += 1
    found.differences += _compare_scales(records, settings)
    found.differences += [
        f"input {record.idx}: its eta is not that of noise stream {settings.noise_stream}"
        for record in records
        if record.certificate.noise_stream != settings.noise_stream
    ]
    # The sample is another one each time, so that whoever alters a record cannot know which inputs are drawn again.
    chosen = random.sample(records, min(sample, len(records)))
    file = engine or find_model(header, path) or Path(_recorded(path, origin.engine_file, "--engine"))
    if engine is None:
        refuse_machine_code(path, file)
    source = data or _recorded(path, origin.data_source, "--data")
    beside = "put it beside the store"
    classes_file = check_near(path, origin.classes_file, beside)
    noise = find_file(header, path, origin.noise_file, settings.noise.file)
    noise_file = check_near(path, origin.noise_file, beside) if noise is None else str(noise)
    if not file.exists():
        raise ModelError(file, "there is no such file", "say with --engine where the model is now")
    if (sha256 := hash_model(file).sha256) != settings.engine:
        found.differences.append(f"{file}: it is not the model of the run (its SHA-256 is {sha256})")
        return found
    with nullcontext() if device else _blaming_settings(path):
        loaded = load_as_run(file, settings, noise_file, device)
    with loaded as classifier:
        size = ImageSize(origin.resize, origin.crop, classifier.channels)
        opened = None if data else reopen_data(header, path)
        if opened is None:  # it is not what it was, or not there: say what differs
            opened = open_data(source, size, None if classes_file is None else Path(classes_file))
        here = settings_of(classifier, opened, plan, settings.batch, settings.seed, only_correct=settings.only_correct)
        # Runs before noise stream 2 did not record the maps of a generator that makes the same maps for all inputs.
        known = settings.noise_stream == 2
        other = _say([each for each in differences(settings, here) if known or each.name != "constant_maps"])
        # What an older store does not say of its machine cannot be compared.
        ran = dict.fromkeys(record.made_by or header.environment for record in records)
        parts = dict.fromkeys(
            part for each in ran for part in differences(each, environment_of(classifier, each.batch or settings.batch))
        )
        found.machine += _say([part for part in parts if part.one is not None])
        found.differences += other
        if not other:
            others = _compare_inputs(records, opened, classifier)
            found.differences += others.values()
            chosen = [record for record in chosen if record.idx not in others]
            for changed in _redraw(chosen, classifier, opened, settings):
                found.differences += changed
                found.redrawn += 1
                on_input()
    return found


@contextmanager
def _blaming_settings(path: Path) -> Iterator[None]:
    """If a classifier cannot be made from the settings of a store, they are damaged."""
    try:
        yield
    except (FileError, MissingPackage):
        raise
    except ValueError as error:
        raise StoreError(path, f"its settings are damaged ({error})", "certify again into another store") from error


def _recorded(path: Path, where: str | None, option: str) -> str:
    if where is None:
        raise ArgumentError(option.lstrip("-"), None, f"{path} does not say where it was; give {option}")
    check_near(path, where, f"if you trust it, name it with {option}")
    return where


def _recompute(record: Record, settings: RunSettings) -> list[str]:
    """Compute the certificate once more, from the votes in the record, and compare. With `only_correct`, exactly those
    inputs have no votes whose selected class is not their label."""
    made = record.certificate
    try:
        if settings.only_correct and record.label not in (None, made.selected):
            again = end_after_selection(
                made.selected,
                len(made.counts) - 1,
                plan=settings.plan,
                family=settings.family,
                scale=made.sigma_min,
                kind=settings.kind,
                dimensions=made.dimensions,
                eta=made.eta,
            )
        else:
            again = certify_votes(
                made.counts,
                made.selected,
                plan=settings.plan,
                family=settings.family,
                scale=made.sigma_min,
                kind=settings.kind,
                dimensions=made.dimensions,
                looks=made.looks,
                eta=made.eta,
            )
    except ArsError as error:
        return [f"input {record.idx}: its votes make no certificate ({error})"]
    if record.draws != again.n0 + again.n:
        return [f"input {record.idx}: draws is {record.draws} in the record, and its votes are {again.n0 + again.n}"]
    # The other facts about the scale map do not follow from the smallest scale.
    others = ("sigma_geomean", "inverse_scale_l1", "inverse_scale_l2")
    return _compare_certificates(record.idx, made, again, "its votes give", without=others)


def _compare_scales(records: Sequence[Record], settings: RunSettings) -> list[str]:
    """If the noise is the same for all inputs, the smallest scale must be the same in all records; if it is isotropic
    with a known sigma, it must be that."""
    if settings.kind is NoiseKind.INPUT:
        return []
    sigma = settings.noise.sigma
    expected = records[0].certificate.sigma_min if sigma is None else float(np.float32(sigma))
    return [
        f"input {record.idx}: sigma_min is {record.certificate.sigma_min} in the record, and the run's is {expected}"
        for record in records
        if record.certificate.sigma_min != expected
    ]


def _compare_inputs(records: Sequence[Record], data: Dataset, classifier: SmoothedClassifier) -> dict[int, str]:
    """The inputs that are not in the data as the run read them, or whose dimensions, scales or eta do not follow from
    their noise maps, with a sentence for each."""
    found = {}
    for record in records:
        idx = record.idx
        if not 0 <= idx < len(data):
            found[idx] = f"input {idx}: {data.name} has only {len(data)} inputs"
        elif (content_sha256(x := (example := data[idx]).x), example.label) != (record.input_sha256, record.label):
            found[idx] = f"input {idx}: {data.name} has another image or label there"
        else:
            mean, scale = classifier.noise.at(idx, x)
            eta = classifier.lattice.error(x, mean, scale, classifier.family) if classifier.lattice else 0.0
            if different := _compare_noise(record.certificate, scale, eta):
                found[idx] = f"input {idx}: {different}"
    return found


def _compare_noise(made: Certificate, scale: NDArray[np.float32], eta: float) -> str | None:
    """The first part of a certificate that does not follow from the noise of its input."""
    inverse_l1, inverse_l2 = inverse_norms(scale, scale.size)
    expected = {
        "sigma_min": float(scale.min()),
        "sigma_geomean": geometric_mean(scale),
        "dimensions": scale.size,
        "inverse_scale_l1": inverse_l1,
        "inverse_scale_l2": inverse_l2,
        "eta": eta,
    }
    for name, value in expected.items():
        recorded = getattr(made, name)
        if recorded is None:
            continue  # an older store does not say it, and nothing is concluded from it
        # The logarithms of another machine may differ in their last bits.
        if not math.isclose(recorded, value, rel_tol=1e-12 if name == "sigma_geomean" else 0.0):
            return f"{name} is {recorded} in the record, and its noise has {value}"
    return None


def _redraw(
    records: Sequence[Record], classifier: SmoothedClassifier, data: Dataset, settings: RunSettings
) -> Iterator[list[str]]:
    """Certify the inputs again, and give the differences of each."""
    by_id = {record.idx: record for record in records}
    labels = {record.idx: record.label for record in records} if settings.only_correct else None
    batches: dict[int, list[int]] = {}  # shards of a run may have had batches of different sizes
    for record in records:
        batch = (record.made_by and record.made_by.batch) or settings.batch
        batches.setdefault(batch, []).append(record.idx)
    for batch, ids in batches.items():
        inputs = FromData((idx, data[idx].x) for idx in ids)
        for one in classifier.certify_many(inputs, settings.plan, batch=batch, labels=labels):
            yield _compare_certificates(one.input_id, by_id[one.input_id].certificate, one.result, "drawn again it is")


def _compare_certificates(
    idx: int, recorded: Certificate, again: Certificate, verb: str, without: tuple[str, ...] = ()
) -> list[str]:
    """The differences, without what an older store does not say."""
    here = asdict(again)
    # Older versions, which did not keep the dimensions, rounded the regions of some families in other last digits.
    older = recorded.dimensions is None
    if (
        older
        and math.isclose(recorded.K, again.K, rel_tol=1e-12)
        and recorded.radius == recorded.K * recorded.sigma_min
    ):
        without = (*without, "K", "radius")
    return [
        f"input {idx}: {name} is {value} in the record, and {verb} {here[name]}"
        for name, value in asdict(recorded).items()
        if name not in without and value is not None and value != here[name]
    ]


def _say(found: Sequence[Difference]) -> list[str]:
    said = []
    for name, group in itertools.groupby(sorted(found), lambda difference: difference.name):
        one, *more = group
        others = f" (and {len(more)} others)" if more else ""  # on a cluster, each computer has its own name
        said.append(f"{name}: the run's is {one.one}{others}, and here it is {one.other}")
    return said
