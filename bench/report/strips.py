"""The paper's Figure 2 for chosen inputs: the image, its noise maps, and noisy copies beside isotropic ones.

A store says where its data and its noise came from; if they have moved since, the user says where they are now.
The noisy copies are draws that were counted, made again from the run's seed. A strip is made only if the hashes of its
input and of its noise file are those of the run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ars.bench.report.runs import Run
from ars.data import Dataset
from ars.engine.lattice import Lattice
from ars.engine.noise_maps import NoiseMaps
from ars.engine.records.inputs import content_sha256
from ars.engine.records.record import Record
from ars.engine.records.reopen import reopen_noise
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.errors import ArsError
from ars.noise import NoiseKind, family_named

__all__ = ["COPIES", "Strip", "Strips", "choose_inputs", "make_strips"]

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
    """The strips of a run, or a sentence that says why there are none."""

    strips: tuple[Strip, ...]
    missing: str | None = None


def choose_inputs(runs: Sequence[Run]) -> list[int]:
    """Inputs worth looking at, from the first run with maps: those with the largest and the median radius among the
    correct answers, and one that is wrong or abstained."""
    run = next((run for run in runs if run.header.settings.kind is not NoiseKind.ISOTROPIC), runs[0])
    certified = sorted(
        (record for record in run.records if not record.certificate.abstained and record.correct is not False),
        key=lambda record: -record.certificate.radius,
    )
    others = [record for record in run.records if record.correct is False or record.certificate.abstained]
    chosen = [certified[0], certified[len(certified) // 2]] if certified else []
    return list(dict.fromkeys(record.idx for record in [*chosen, *others[:1]]))


def make_strips(run: Run, inputs: Sequence[int], data: Dataset | None, noise_files: Sequence[Path]) -> Strips:
    """The strips of these inputs, as far as the run certified them, from its data and its noise files."""
    records = {record.idx: record for record in run.records}
    if data is None:
        name = run.header.origin.data_name or "the data"
        return Strips(
            (), f"The store keeps certificates, not images: say with --data where {name} is now to see its inputs here."
        )
    try:
        certified = [(records[idx], data[idx].x) for idx in inputs if idx in records]
        noise = reopen_noise(run.header, noise_files, certified[0][1].shape) if certified else None
        if certified and noise is None:
            return Strips(
                (), "The noise maps come from a file of their own: say with --noise where it is now to see them here."
            )
        return Strips(tuple(_strip(run, record, x, noise) for record, x in certified if noise))
    except (ArsError, IndexError) as error:
        return Strips((), f"The inputs cannot be shown: {error}.")


def _strip(run: Run, record: Record, x: Array, noise: NoiseMaps) -> Strip:
    if content_sha256(x) != record.input_sha256:
        raise ArsError(f"input {record.idx} is not what it was when it was certified")
    mean, scale = noise.at(record.idx, x)
    smallest = np.full_like(scale, scale.min())
    return Strip(
        record, x, mean, scale, _copies(run, record.idx, x, mean, scale), _copies(run, record.idx, x, 0, smallest)
    )


def _copies(run: Run, idx: int, x: Array, mean: Array | int, scale: Array) -> Array:
    settings = run.header.settings
    lattice = None if settings.lattice_step is None else Lattice(settings.lattice_step)
    sampler = HostSampler(1, x.size, family_named(settings.family), settings.seed, lattice=lattice)
    sampler.load(0, x, mean, scale)
    copies = np.empty((COPIES, *x.shape), np.float32)
    sampler.fill(copies, [Request(0, idx, Phase.ESTIMATION, 0, COPIES)])
    return copies
