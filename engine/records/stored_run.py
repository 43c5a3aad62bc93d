"""A run read back from its store: its records and what follows from them, also as a table of Arrow or pandas."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ars.engine.records.record import Record
from ars.engine.records.results import Result, make_results, tabulate
from ars.engine.records.settings import RunHeader
from ars.engine.records.store import read_header, read_records
from ars.engine.records.summary import Summary, summarize
from ars.errors import MissingPackage, StoreError
from ars.noise import Scope
from ars.noise.norms import norm_name
from ars.printable import printable

if TYPE_CHECKING:
    import pandas

__all__ = ["Run", "name_runs", "read_run"]


@dataclass(frozen=True)
class Run:
    """A run that has certificates."""

    name: str
    path: Path
    header: RunHeader
    records: tuple[Record, ...]

    @cached_property
    def summary(self) -> Summary:
        return summarize(self.records)

    @cached_property
    def results(self) -> tuple[Result, ...]:
        """The records with their radii in the norm of the noise family, and with why each stopped."""
        return tuple(make_results(self.path, self.header, self.records))

    @property
    def norm(self) -> str:
        """The norm that its noise family certifies."""
        return norm_name(self.records[0].certificate.norm)

    def radii_in(self, norm: float) -> list[float] | None:
        """The radii of its records in this norm; None if a record is too old to say what they need."""
        found = [record.certificate.radius_in(norm) for record in self.records]
        known = [radius for radius in found if radius is not None]
        return known if len(known) == len(found) else None

    @property
    def scope(self) -> Scope:
        return self.records[0].certificate.scope

    @property
    def sigma(self) -> float:
        """The scale of its noise: the median of the smallest scales of its inputs."""
        return float(np.median([record.certificate.sigma_min for record in self.records]))

    @property
    def seconds_deviation(self) -> float:
        return float(np.std([record.seconds for record in self.records]))

    def class_name(self, number: int) -> str:
        names = self.header.classes
        return names[number] if names and 0 <= number < len(names) else f"class {number}"

    def to_arrow(self) -> Any:
        """The columns of `ars-engine results` as a table of pyarrow."""
        return tabulate(self.results)

    def to_pandas(self) -> "pandas.DataFrame":
        """The columns of `ars-engine results` as a data frame."""
        try:
            import pandas  # noqa: F401
        except ImportError as error:
            raise MissingPackage("pandas", "pandas") from error
        return self.to_arrow().to_pandas()


def read_run(path: str | Path, name: str | None = None) -> Run:
    """The run in a store, by default named after its file."""
    path = Path(path)
    records = tuple(read_records(path))
    if not records:
        raise StoreError(path, "it has no certificates yet", "run the same `ars-engine certify` again")
    return Run(path.stem if name is None else name, path, read_header(path), records)


def name_runs(paths: Sequence[Path]) -> list[str]:
    """A name for each run: its file's, or its whole path if another file has the same name."""
    stems = [path.stem for path in paths]
    names = [
        stem if stems.count(stem) == 1 else str(path.with_suffix("")) for path, stem in zip(paths, stems, strict=True)
    ]
    return [printable(name) for name in names]
