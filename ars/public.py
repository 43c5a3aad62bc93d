"""The public names of ARS, with all that they need. `import ars` loads this module when the first of them is used."""

from ars.distribution import VERSION
from ars.engine.algorithms import Prediction
from ars.engine.cluster import Cluster
from ars.engine.records.inputs import Inputs
from ars.engine.records.merge import merge_runs
from ars.engine.records.record import Record
from ars.engine.records.run import RunProgress, RunResult, certify_run
from ars.engine.records.store import read_records
from ars.engine.records.stored_run import Run, read_run
from ars.engine.records.summary import Summary, summarize
from ars.engine.scheduler import Finished
from ars.engine.smooth import Smooth
from ars.engine.smoothed import SmoothedClassifier, load
from ars.engine.statistics.certificate import (
    ABSTAIN,
    Certificate,
    certify_votes,
    format_radius,
    predict_from_votes,
)
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Tolerance
from ars.errors import ArsError
from ars.noise import FAMILIES, Family, NoiseKind, Scope, family_named

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

__version__ = VERSION
