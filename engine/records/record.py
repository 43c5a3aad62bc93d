"""One certified input of a run."""

from dataclasses import dataclass

from ars.engine.records.settings import Environment
from ars.engine.statistics.certificate import Certificate

__all__ = ["Record"]


@dataclass(frozen=True)
class Record:
    """One certified input."""

    idx: int
    label: int | None
    certificate: Certificate
    draws: int
    seconds: float
    input_sha256: str
    name: str | None = None
    """The input's file, relative to the data; None if the data has no file for each input."""
    made_by: Environment | None = None
    """What certified this input; None in older stores, which say it only for the whole run."""

    @property
    def correct(self) -> bool | None:
        """Whether the certificate is for the right class; None without a label."""
        return None if self.label is None else self.certificate.predicted == self.label
