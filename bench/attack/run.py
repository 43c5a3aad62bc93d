"""Attack the certified inputs of a run, and keep what was found beside its store."""

import dataclasses
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.bench.attack.attack_file import Attacked, AttackFile, AttackSettings, Success, attack_path, open_attack_file
from ars.bench.attack.gradients import Ascent, load_gradients
from ars.bench.attack.search import find_smallest
from ars.data import Dataset
from ars.data.pixels import file_sha256
from ars.engine.algorithms import Prediction
from ars.engine.backends import TORCH_SUFFIXES, manifest_of
from ars.engine.examples import FromData
from ars.engine.records.record import Record
from ars.engine.records.reopen import (
    check_near,
    find_file,
    find_model,
    load_as_run,
    read_input,
    refuse_machine_code,
    reopen_data,
)
from ars.engine.records.settings import RunHeader
from ars.engine.records.store import read_header, read_records
from ars.engine.smoothed import SmoothedClassifier
from ars.engine.statistics.certificate import ABSTAIN
from ars.errors import ArsError, DataError, ModelError, StoreError
from ars.external_data import hash_model
from ars.noise import NoiseKind
from ars.output import replacing
from ars.train.smoothing import SmoothedModel

__all__ = ["Effort", "attack_run", "evidence_path"]

Array = NDArray[np.float32]

SCREENING = 500
"""The draws that choose among the perturbations of one size, and decide whether one is worth a test."""
FIRST_SCALES = 1.0
"""The search goes at least this many scales of the noise far: a small radius says little about where attacks begin."""


@dataclass(frozen=True)
class Effort:
    """How hard to try, and how sure to be."""

    n: int = 10_000
    alpha: float = 1e-6
    steps: int = 20
    draws: int = 32
    restarts: int = 3
    reach: float = 3.0


def attack_run(
    store: Path,
    effort: Effort,
    *,
    limit: int | None = None,
    seed: int | None = None,
    model: Path | None = None,
    engine: Path | None = None,
    data: str | None = None,
    on_input: Callable[[Attacked], None] = lambda attacked: None,
) -> tuple[AttackSettings, list[Attacked]]:
    """Attack the first `limit` certified inputs of a run, except those that are done already.

    `model` is the model.pt that gives the gradients, by default the one that the run's model was exported from;
    `engine` and `data` say where these are now. `on_input` is told of each new result.
    """
    header = read_header(store)
    certified = [record for record in read_records(store) if not record.certificate.abstained][:limit]
    if not certified:
        raise StoreError(store, "it has no certified inputs", "certify some inputs first")
    source = reopen_data(header, store, data)
    if source is None:
        name = data or header.origin.data_source or "data"
        raise DataError(name, "it is not there, or not the data of the run", "say with --data where it is now")
    file = _find_engine(header, store, engine)
    trained = model or _find_trained(file)
    noise = find_file(header, store, header.origin.noise_file, header.settings.noise.file)
    noise_file = str(noise) if noise else check_near(store, header.origin.noise_file, "put it beside the store")
    with load_as_run(file, header.settings, noise_file) as classifier:
        moves_maps = classifier.noise.kind is NoiseKind.INPUT and classifier.noise.source.generator is not None
        x = read_input(source, certified[0], store)
        maps = classifier.noise.at(certified[0].idx, x) if moves_maps else None
        gradients = load_gradients(trained, x, classifier.runner.classes, maps)
        wanted = AttackSettings(
            run=header.settings.to_json(),
            model=file_sha256(trained),
            seed=secrets.randbits(64) if seed is None else seed,
            moves_maps=moves_maps,
            **dataclasses.asdict(effort),
        )
        with open_attack_file(attack_path(store), wanted, any_seed=seed is None) as kept:
            done = _attack_rest(store, certified, source, classifier, gradients, kept, on_input)
    return kept.settings, done


def _attack_rest(
    store: Path,
    certified: list[Record],
    source: Dataset,
    classifier: SmoothedClassifier,
    gradients: SmoothedModel,
    kept: AttackFile,
    on_input: Callable[[Attacked], None],
) -> list[Attacked]:
    done = {one.idx: one for one in kept.done}
    for record in certified:
        if record.idx in done:
            continue
        x = read_input(source, record, store)
        attacked, perturbed = attack_input(record, x, classifier, gradients, kept.settings)
        if attacked.inside and not kept.settings.moves_maps and perturbed is not None:
            with replacing(evidence_path(store, record.idx)) as place, place.open("wb") as file:
                np.save(file, perturbed)
        kept.write(attacked)
        done[record.idx] = attacked
        on_input(attacked)
    return [done[record.idx] for record in certified]


def attack_input(
    record: Record, x: Array, classifier: SmoothedClassifier, gradients: SmoothedModel, settings: AttackSettings
) -> tuple[Attacked, Array | None]:
    """The smallest attack on one input, and the perturbed input itself. They depend on the seed and the input, and not
    on other inputs."""
    started = time.perf_counter()
    certificate = record.certificate
    seeds = _Seeds(settings.seed, record.idx)
    ascent = Ascent(
        gradients,
        classifier.noise,
        classifier.family.in_dimensions(x.size),
        record.idx,
        x,
        certificate.predicted,
        moves_maps=settings.moves_maps,
        draws=settings.draws,
        restarts=settings.restarts,
        steps=settings.steps,
        seed=seeds.next(),
    )
    scale = classifier.noise.at(record.idx, x)[1]
    tests = 0

    def ask(perturbed: Array, n: int, level: float) -> Prediction:
        """The answer of the smoothed classifier, with noise that nothing has seen before."""
        one = FromData([(record.idx, perturbed)])
        (finished,) = classifier.predict_many(one, n=n, alpha=level, seed=seeds.next())
        return finished.result

    def propose(size: float, earlier: Array | None) -> tuple[Array, bool]:
        leads = []
        for perturbed in ascent.perturb(size, earlier):
            counts = list(ask(perturbed, SCREENING, settings.alpha).counts[:-1])
            own = counts.pop(certificate.predicted)
            leads.append((max(counts) - own, perturbed))
        lead, best = max(leads, key=lambda pair: pair[0])
        return best, lead > 0

    def confirm(perturbed: Array) -> Success | None:
        nonlocal tests
        tests += 1
        level = settings.alpha / (tests * (tests + 1))  # all tests of an input together have alpha
        found = ask(perturbed, settings.n, level)
        if found.predicted in (ABSTAIN, certificate.predicted):
            return None
        delta = perturbed.astype(np.float64) - x
        return Success(
            answer=found.predicted,
            measure=certificate.measure(delta, scale),
            length=certificate.noise_family.weighted_norm(delta, 1.0),
            counts=found.counts,
            level=level,
        )

    limit = max(settings.reach * certificate.K, FIRST_SCALES)
    perturbed, success = find_smallest(certificate.K, limit, propose, confirm) or (None, None)
    attacked = Attacked(
        idx=record.idx,
        input_sha256=record.input_sha256,
        predicted=certificate.predicted,
        K=certificate.K,
        radius=certificate.radius,
        limit=limit,
        tests=tests,
        seconds=time.perf_counter() - started,
        success=success,
    )
    return attacked, perturbed


class _Seeds:
    """Seeds for one input, none of them used for anything else."""

    def __init__(self, seed: int, idx: int) -> None:
        self._seed, self._idx, self._used = seed, idx, 0

    def next(self) -> int:
        self._used += 1
        sequence = np.random.SeedSequence(self._seed, spawn_key=(self._idx, self._used))
        return int(sequence.generate_state(1, np.uint64)[0])


def evidence_path(store: Path, idx: int) -> Path:
    """Where a perturbed input that contradicts its certificate is kept."""
    return store.with_name(f"{store.stem}.contradiction-{idx}.npy")


def _find_engine(header: RunHeader, store: Path, engine: Path | None) -> Path:
    file = engine or find_model(header, store)
    if file is None:
        name = header.origin.engine_file or "model"
        raise ModelError(name, "it is not there, or not the model of the run", "say with --engine where it is now")
    if engine is None:
        refuse_machine_code(store, file)
    if not file.is_file():
        raise ModelError(file, "there is no such file", "say with --engine where the model of the run is now")
    if hash_model(file).sha256 != header.settings.engine:
        raise ModelError(file, "it is not the model of the run", "say with --engine where that is now")
    return file


def _find_trained(engine: Path) -> Path:
    """The model.pt that a model was exported from."""
    if engine.suffix in TORCH_SUFFIXES:
        return engine
    try:
        manifest = manifest_of(engine)
        trained = manifest.file("trained", engine.parent) if manifest else None
    except ArsError:
        trained = None
    if trained is None:
        problem = "an attack needs gradients, and the model.pt that it was exported from is not beside it"
        raise ModelError(engine, problem, "say with --model where that is")
    return trained
