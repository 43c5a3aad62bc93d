"""What the attacks on a run say, in words and one table."""

import math
from collections.abc import Sequence

import numpy as np
from scipy import stats

from ars.bench.attack.attack_file import Attacked, AttackSettings
from ars.engine.decisions.show import align
from ars.engine.records.stored_run import Run
from ars.engine.statistics.certificate import format_radius

__all__ = ["Contradictions", "describe_attacks", "describe_one", "quartiles"]


class Contradictions:
    """The certificates that attacks contradict, and how many are to be expected if every certificate is sound.

    An input has a contradiction only if its certificate is wrong, which has a probability of at most the alpha of the
    run, or if a test of its attacks errs, which has one of at most theirs. The noise of two inputs is independent.
    """

    def __init__(self, run: Run, settings: AttackSettings, attacked: Sequence[Attacked]) -> None:
        self.inputs = [one.idx for one in attacked if one.inside and not settings.moves_maps]
        self.rate = run.header.settings.plan.alpha + settings.alpha
        self.attacked = len(attacked)

    @property
    def expected(self) -> float:
        """The largest expected number."""
        return self.rate * self.attacked

    @property
    def probability(self) -> float:
        """The largest probability of at least as many."""
        return float(stats.binom.sf(len(self.inputs) - 1, self.attacked, self.rate))


def quartiles(values: Sequence[float | None]) -> tuple[float, float, float]:
    """The lower quartile, the median and the upper quartile; a value that is None is beyond all others."""
    known = np.sort([math.inf if value is None else value for value in values])
    low, middle, high = (float(np.quantile(known, share, method="higher")) for share in (0.25, 0.5, 0.75))
    return low, middle, high


def describe_one(run: Run, attacked: Attacked) -> str:
    """The result of one input in a line."""
    radius = f"input {attacked.idx}: {run.norm} radius {format_radius(attacked.radius)}"
    if attacked.success is None:
        return f"{radius}, no attack found up to {format_radius(attacked.limit / attacked.K, 2)} times as far"
    where = " INSIDE" if attacked.inside else ""
    answer = run.class_name(attacked.success.answer)
    return f"{radius}, smallest attack {attacked.success.length:.3f} ({attacked.ratio:.2f} times){where}: {answer}"


def describe_attacks(run: Run, settings: AttackSettings, attacked: Sequence[Attacked]) -> str:
    """The table and the sentences of the attacks on a run, without the verdict on contradictions."""
    lengths = [None if one.success is None else one.success.length for one in attacked]
    rows = [["", "lower quartile", "median", "upper quartile"]]
    for name, values in (
        (f"certified {run.norm} radius", [one.radius for one in attacked]),
        ("smallest attack", lengths),
        ("attack / certificate", [one.ratio for one in attacked]),
    ):
        rows.append([name, *("none" if math.isinf(value) else f"{value:.3f}" for value in quartiles(values))])
    missed, inside = lengths.count(None), sum(one.inside for one in attacked)
    lines = [
        f"{run.name}: {len(attacked):,} certified inputs attacked, scope {run.scope}, seed {settings.seed}",
        align(rows),
        f"No attack was found on {missed:,} inputs, up to {settings.reach:g} times the radius or one scale of noise.",
        f"Inside the certified region, the answer changes for {inside:,} of {len(attacked):,} inputs.",
    ]
    if settings.moves_maps:
        lines.append(
            "The certificates have scope frozen: they speak of the classifier whose noise stays that of the\n"
            "unperturbed input. The attack moves the noise too, so a success inside is no contradiction; it shows\n"
            "what the scope leaves out."
        )
    else:
        found = Contradictions(run, settings, attacked)
        lines.append(
            f"If every certificate is sound, at most {found.expected:.2g} contradictions are expected (alpha is "
            f"{run.header.settings.plan.alpha:g} for a certificate, and {settings.alpha:g} for the tests of an input)."
        )
    return "\n".join(lines)
