"""ARS: certified robustness of image classifiers by anisotropic randomized smoothing."""

from ars.distribution import VERSION
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.certificate import ABSTAIN, Certificate, certify_votes, predict_from_votes
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Tolerance
from ars.errors import ArsError
from ars.noise import FAMILIES, Family, NoiseKind, Scope, family_named

__all__ = [
    "ABSTAIN",
    "FAMILIES",
    "ArsError",
    "Certificate",
    "Family",
    "Grid",
    "NoiseKind",
    "Plan",
    "Scope",
    "SmoothedClassifier",
    "Tolerance",
    "__version__",
    "certify_votes",
    "family_named",
    "load",
    "predict_from_votes",
]

__version__ = VERSION
