"""Requirements of a run for pipelines: certified accuracy at a radius, and the scope of its certificates."""

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass

from ars.engine.decisions.overview import find_reach, overview
from ars.engine.decisions.show import percent_down, percent_up
from ars.engine.records.stored_run import Run
from ars.engine.statistics.accuracy import LEVEL
from ars.engine.statistics.certificate import format_radius, name_radius
from ars.errors import ArgumentError, StoreError
from ars.noise import Scope

__all__ = ["Check", "Requirement", "check_run", "write_junit"]


@dataclass(frozen=True)
class Requirement:
    """At this radius, certified accuracy is at least this share."""

    radius: float
    share: float

    @classmethod
    def parse(cls, text: str) -> "Requirement":
        """The requirement that "0.5:0.60" stands for."""
        wanted = "it is a radius and a certified accuracy between 0 and 1, like 0.5:0.60"
        try:
            radius, share = map(float, text.split(":"))
        except ValueError:
            raise ArgumentError("require", text, wanted) from None
        if not 0 <= radius < float("inf") or not 0 <= share <= 1:
            raise ArgumentError("require", text, wanted)
        return cls(radius, share)


@dataclass(frozen=True)
class Check:
    """One requirement and whether it is met."""

    name: str
    met: bool
    said: str


def check_run(
    run: Run, requirements: Sequence[Requirement], scope: Scope | None, *, lower_bound: bool
) -> tuple[list[Check], tuple[str, ...]]:
    """Check each requirement of a run, with `lower_bound` by the lower end of the interval; and what a reader of the
    numbers has to know besides."""
    found = overview(run, [requirement.radius for requirement in requirements])
    if requirements and not found.labelled:
        raise StoreError(run.path, "its inputs have no labels, so it has no accuracy", "check a run over labelled data")
    reach, checks = find_reach(run), []
    for requirement, accuracy in zip(requirements, found.accuracies, strict=True):
        measured = accuracy.interval.low if lower_bound else accuracy.share
        of = "" if found.population is None else f" of {found.population:,}"
        said = f"{percent_down(accuracy.share, 2)}% of {found.labelled:,}{of} inputs"
        if not found.exact:
            low, high = percent_down(accuracy.interval.low), percent_up(accuracy.interval.high)
            said += f", {LEVEL:.0%} interval {low}% to {high}%"
        if requirement.radius > reach:
            said += f"; no certificate of this run can reach it, the largest possible radius is {format_radius(reach)}"
        what = "lower end of certified accuracy" if lower_bound else "certified accuracy"
        name = f"{what} at radius {name_radius(requirement.radius)} is at least {_required(requirement.share)}%"
        checks.append(Check(name, measured >= requirement.share, said))
    if scope is not None:
        checks.append(Check(f"scope is {scope}", run.scope is scope, f"scope {run.scope}"))
    return checks, found.notes


def _required(share: float) -> str:
    """The share in percent, with as many digits as were given."""
    text = f"{100 * share:.10g}"
    return text if "." in text or "e" in text else f"{text}.0"


def write_junit(name: str, checks: Sequence[Check]) -> str:
    """The checks as JUnit XML, which most pipelines can show: a test case for each requirement."""
    failures = str(sum(not check.met for check in checks))
    suite = ET.Element("testsuite", name=f"ars-engine check {name}", tests=str(len(checks)), failures=failures)
    for check in checks:
        case = ET.SubElement(suite, "testcase", classname=name, name=check.name)
        if check.met:
            ET.SubElement(case, "system-out").text = check.said
        else:
            ET.SubElement(case, "failure", message=check.said)
    ET.indent(suite)
    return ET.tostring(suite, "unicode", xml_declaration=True) + "\n"
