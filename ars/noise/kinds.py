"""Where the mean and scale maps of the noise come from, and which classifier a certificate is about."""

from enum import StrEnum

from ars.errors import UnknownName

__all__ = ["NoiseKind", "Scope"]


class Scope(StrEnum):
    """The classifier that a certificate is about. The theorems hold for noise that does not depend on the input."""

    GLOBAL = "global"
    """The deployed classifier: it has the same noise at every input."""
    FROZEN = "frozen"
    """A classifier with the maps of this input at every input. The deployed classifier may have others elsewhere."""


class NoiseKind(StrEnum):
    """Where the mean and the scale come from."""

    ISOTROPIC = "isotropic"
    """No mean, and one scale for every dimension (Cohen et al., 2019)."""
    DATASET = "dataset"
    """One mean map and one scale map for all inputs."""
    INPUT = "input"
    """Maps that a noise generator makes for each input (the paper)."""

    @property
    def scope(self) -> Scope:
        """The scope of certificates under noise of this kind."""
        return Scope.FROZEN if self is NoiseKind.INPUT else Scope.GLOBAL

    @classmethod
    def _missing_(cls, value: object) -> "NoiseKind":
        raise UnknownName("noise kind", value, [kind.value for kind in cls])
