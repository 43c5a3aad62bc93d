"""What is done to each input of a run, wherever it is done: in this process, or by the workers of a cluster."""

import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from ars.data import Dataset
from ars.distribution import VERSION
from ars.engine.examples import FromData
from ars.engine.records.inputs import Input, Inputs, content_sha256, read_inputs
from ars.engine.records.record import Record
from ars.engine.records.settings import Environment
from ars.engine.samplers.host import usable_instructions
from ars.engine.smoothed import SmoothedClassifier
from ars.engine.statistics.plan import Plan
from ars.errors import DataError

if TYPE_CHECKING:
    from ars.engine.records.run import RunProgress

__all__ = ["Work", "Workforce", "certify_inputs", "environment_of"]


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is done to the inputs of a run."""

    classifier: SmoothedClassifier
    inputs: Inputs
    source: Dataset
    shape: tuple[int, ...]
    batch: int
    plan: Plan
    seed: int
    only_correct: bool
    on_bad_input: Callable[[DataError], None] | None
    """Is told of inputs that cannot be read; without it, the first of them ends the run."""

    def read(self, ids: Sequence[int]) -> Iterator[Input]:
        return read_inputs(self.source, ids, self.classifier.runner.classes, self.on_bad_input, self.shape)


class Workforce(Protocol):
    """Other computers that certify inputs."""

    def certify(
        self, work: Work, ids: Sequence[int], progress: "RunProgress", on_given_up: Callable[[int, str], None]
    ) -> Generator[Record, None, None]:
        """The records of these inputs, each as soon as it is known. Inputs that workers keep dying of are left out,
        and passed to `on_given_up` with the reason."""
        ...


def environment_of(classifier: SmoothedClassifier, batch: int) -> Environment:
    """What runs the classifier here, with batches of this size."""
    runner = classifier.runner
    entry = classifier.manifest.entry(runner.path.name) if classifier.manifest else None
    return Environment(
        ars=VERSION,
        runner=runner.name,
        runner_version=runner.version,
        precision=(entry and entry.precision) or runner.precision,
        device="; ".join(device.describe() for device in classifier.devices),
        instructions=usable_instructions()[0],
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
        node=platform.node(),
        batch=batch,
    )


def certify_inputs(
    classifier: SmoothedClassifier,
    inputs: Iterable[Input],
    plan: Plan,
    *,
    made_by: Environment,
    batch: int | None,
    seed: int,
    only_correct: bool,
    on_draws: Callable[[int], None],
) -> Generator[Record, None, None]:
    """Certify inputs in this process, which `made_by` describes. Each record comes as soon as it is known."""
    facts: dict[int, tuple[int | None, str, str | None]] = {}
    labels: dict[int, int | None] | None = {} if only_correct else None

    def numbered() -> Iterator[tuple[int, NDArray[np.float32]]]:
        for one in inputs:
            facts[one.idx] = one.label, content_sha256(one.x), one.name
            if labels is not None:
                labels[one.idx] = one.label
            yield one.idx, one.x

    found = classifier.certify_many(
        FromData(numbered()), plan, batch=batch, seed=seed, labels=labels, on_draws=on_draws
    )
    for one in found:
        label, sha256, name = facts.pop(one.input_id)
        yield Record(one.input_id, label, one.result, one.draws, one.seconds, sha256, name, made_by)
