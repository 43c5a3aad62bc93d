"""ARS: certified robustness of image classifiers by anisotropic randomized smoothing."""

# ruff: noqa: F403, F405  # the names are those of ars/public.py

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ars.public import *

__all__ = [
    "ABSTAIN",
    "FAMILIES",
    "ArsError",
    "Certificate",
    "Cluster",
    "Family",
    "Finished",
    "Grid",
    "Inputs",
    "NoiseKind",
    "Plan",
    "Prediction",
    "Record",
    "Run",
    "RunProgress",
    "RunResult",
    "Scope",
    "Smooth",
    "SmoothedClassifier",
    "Summary",
    "Tolerance",
    "__version__",
    "certify_run",
    "certify_votes",
    "family_named",
    "format_radius",
    "load",
    "merge_runs",
    "predict_from_votes",
    "read_records",
    "read_run",
    "summarize",
]


def __getattr__(name: str) -> object:
    """The public names are loaded when the first of them is used, so that the commands start, and stop, at once."""
    if name not in __all__:
        raise AttributeError(f"module 'ars' has no attribute {name!r}")
    from ars import public

    globals().update({each: getattr(public, each) for each in __all__})
    return globals()[name]
