"""The noise of a smoothed classifier: its families, what each of them certifies, and where its maps come from.

To add a family, derive its G (docs/families.md). Give it a file beside gaussian.py and a place in the list below, and a
struct and a line in the list of engine/native/distributions.h. The command line, the engine and training follow from
these two lists. The tests fail until there are an independent implementation (tests/support/reference.py), known
answers (tests/known_answers.txt) and measurements of its rounding errors (fast_path.cpp and slow_path.cpp in
tests/engine/native/), from which docs/soundness.md proves eta.
"""

from ars.errors import UnknownName
from ars.noise.exponential import EXPONENTIAL
from ars.noise.family import Family, hits_at, scale_map
from ars.noise.gaussian import GAUSSIAN
from ars.noise.kinds import NoiseKind, Scope
from ars.noise.laplace import LAPLACE
from ars.noise.pareto import PARETO
from ars.noise.uniform import UNIFORM

__all__ = [
    "EXPONENTIAL",
    "FAMILIES",
    "GAUSSIAN",
    "LAPLACE",
    "PARETO",
    "UNIFORM",
    "Family",
    "NoiseKind",
    "Scope",
    "family_named",
    "hits_at",
    "scale_map",
]

FAMILIES = {family.name: family for family in (GAUSSIAN, LAPLACE, UNIFORM, PARETO, EXPONENTIAL)}


def family_named(family: str | Family) -> Family:
    """Look a family up by its name. A Family is returned as it is."""
    if isinstance(family, Family):
        return family
    if isinstance(family, str) and family in FAMILIES:
        return FAMILIES[family]
    raise UnknownName("noise family", family, FAMILIES)
