"""The tables: certified accuracy by radius, before and after an attack, and runtime; as Markdown."""

from collections.abc import Sequence
from dataclasses import dataclass

from ars.bench.paper import published
from ars.bench.report.runs import Run, certified_accuracy
from ars.engine.statistics.certificate import format_radius
from ars.noise import GAUSSIAN
from ars.printable import printable

__all__ = ["Attacked", "Certified", "Timed", "accuracy_table", "attack_table", "markdown_table", "runtime_table"]

STEP = 0.25


@dataclass(frozen=True)
class Certified:
    """The certificates of a model, with its name, its network and its sigma0."""

    name: str
    network: str
    sigma0: float | None
    run: Run

    @property
    def data(self) -> str:
        return self.run.header.origin.data_name or "?"

    @property
    def kind(self) -> str:
        return self.run.header.settings.kind.value

    @property
    def family(self) -> str:
        return self.run.header.settings.family

    def percent(self, radii: Sequence[float]) -> list[float]:
        return [100 * share for share in certified_accuracy(self.run, radii)]


@dataclass(frozen=True)
class Attacked:
    before: Certified
    after: Certified


@dataclass(frozen=True)
class Timed:
    network: str
    draws: int
    machine: str
    with_generator: float
    without_generator: float


def accuracy_table(certified: Sequence[Certified]) -> str:
    """Tables 1 and 2: a row for each model, the best over sigma0 of each kind, and the paper's rows. There is one table
    for each norm."""
    return "\n".join(
        _accuracy_of_norm(norm, [one for one in certified if one.run.norm == norm])
        for norm in sorted({one.run.norm for one in certified}, reverse=True)
    )


def _accuracy_of_norm(norm: str, certified: Sequence[Certified]) -> str:
    radii = _radii(certified)
    ordered = sorted(certified, key=lambda one: (one.network, one.data, one.kind, one.sigma0 or 0, one.name))
    rows = [[*_what(one), *_figures(one, radii)] for one in ordered] + _best(certified, radii)
    text = (
        f"Certified accuracy in percent by {norm} radius, average certified radius (ACR) and average volume-equivalent "
    )
    text += f"radius.\n\n{markdown_table([*_WHAT, *_heads(radii), 'ACR', 'volume'], rows)}\n"
    if norm != "l2":
        return text
    for table in published.accuracy_tables():
        theirs = [
            [
                *(row.method, row.network, table.data, row.noise, "best", row.scope),
                *_at(table.radii, row.percent, radii),
                *("–", "–"),
            ]
            for row in table.rows
        ]
        text += (
            f"\nThe paper's {table.table}: other networks or data than above. Each figure is the best over sigma.\n\n"
        )
        text += markdown_table([*_WHAT, *_heads(radii), "ACR", "volume"], theirs) + "\n"
    return text


def _figures(one: Certified, radii: Sequence[float]) -> list[str]:
    """Certified accuracy by radius, and the averages; dashes for a run without labels."""
    if not one.run.summary.labelled:
        return ["–"] * (len(radii) + 2)
    acr, volume = one.run.summary.average_certified_radius, one.run.summary.average_volume_radius
    return [*_tenths(one.percent(radii)), format_radius(acr), format_radius(volume)]


_WHAT = ("model", "network", "data", "noise", "sigma0", "scope")


def _what(one: Certified) -> list[str]:
    noise = one.kind if one.family == GAUSSIAN.name else f"{one.kind}, {one.family}"
    if one.run.header.settings.plan.two_sided:  # the paper's figures have binary ones
        noise += ", two-sided bounds"
    sigma0 = "?" if one.sigma0 is None else f"{one.sigma0:g}"
    return [one.name, one.network, one.data, noise, sigma0, one.run.scope.value]


def _best(certified: Sequence[Certified], radii: Sequence[float]) -> list[list[str]]:
    """A row for each network, data and kind of noise that has models of several sigma0: the best at each radius."""
    groups: dict[tuple[str, ...], list[Certified]] = {}
    for one in certified:
        if one.run.summary.labelled:
            bounds = "two-sided" if one.run.header.settings.plan.two_sided else "binary"
            groups.setdefault((one.network, one.data, one.kind, one.family, bounds), []).append(one)
    rows = []
    for group in groups.values():
        if len(group) > 1:
            best = [max(values) for values in zip(*(one.percent(radii) for one in group), strict=True)]
            what = _what(group[0])
            what[0] = "best of " + ", ".join(one.name for one in group)
            what[4] = ", ".join(sorted(_what(one)[4] for one in group))
            rows.append([*what, *_tenths(best), "–", "–"])
    return rows


def attack_table(attacked: Sequence[Attacked], how: str) -> str:
    """Table 3: certified accuracy before and after PGD has perturbed the inputs, and the relative loss."""
    radii = _radii([one.before for one in attacked])
    rows = []
    for one in attacked:
        before, after = one.before.percent(radii), one.after.percent(radii)
        for name, values in (("before", _tenths(before)), ("PGD", _tenths(after)), ("loss", _loss(before, after))):
            rows.append([*_what(one.before), name, *values])
    theirs = []
    for row in published.attack_rows():
        what = [row.method, row.network, row.data, row.noise, f"{row.sigma0:g}", row.scope]
        lines: dict[str, Sequence[object]] = {
            "before": row.before,
            "PGD": row.after,
            "loss": _loss(row.before, row.after),
        }
        theirs += [[*what, name, *_at(row.radii, values, radii)] for name, values in lines.items()]
    knows = {
        "generator": "all of it: the expected loss under noise, through the generator",
        "smoothed": "the expected loss under noise, with the maps as given",
        "classifier": "the classifier without noise",
    }[how]
    heads = [*_WHAT, "", *_heads(radii)]
    text = "Certified accuracy in percent before and after PGD on the inputs (maximum norm 16/255, 10 steps), and the "
    text += f"relative loss. The attack knows {knows}.\n\n{markdown_table(heads, rows)}\n"
    return text + f"\nThe paper's Table 3: another network and other data.\n\n{markdown_table(heads, theirs)}\n"


def runtime_table(timed: Sequence[Timed]) -> str:
    """Section 7.2: the noise generator's share of the time."""
    theirs = published.runtime()
    rows = [
        [one.network, one.machine, f"{one.draws:,}", *_seconds(one.with_generator, one.without_generator)]
        for one in timed
    ]
    both = theirs.seconds_with_generator, theirs.seconds_without_generator
    network = f"{theirs.network}, {theirs.data}: the paper's {theirs.section}"
    rows.append([network, theirs.machine, f"{theirs.draws:,}", *_seconds(*both)])
    heads = ["network", "machine", "draws", "seconds with the generator", "without", "ratio"]
    return (
        f"Seconds to certify an input, with the noise generator and with one sigma.\n\n{markdown_table(heads, rows)}\n"
    )


def _seconds(with_generator: float, without: float) -> list[str]:
    return [f"{with_generator:.4g}", f"{without:.4g}", f"{with_generator / without:.2f}"]


def _radii(certified: Sequence[Certified]) -> list[float]:
    """The field's radii, from 0 to the largest certified one."""
    largest = max(record.certificate.radius for one in certified for record in one.run.records)
    return [STEP * number for number in range(int(largest / STEP) + 1)]


def _heads(radii: Sequence[float]) -> list[str]:
    return [f"{radius:.2f}" for radius in radii]


def _tenths(values: Sequence[float]) -> list[str]:
    return [f"{value:.1f}" for value in values]


def _loss(before: Sequence[float], after: Sequence[float]) -> list[str]:
    return [f"{100 * (b - a) / b:.0f} %" if b else "–" for b, a in zip(before, after, strict=True)]


def _at(theirs: Sequence[float], values: Sequence[object], radii: Sequence[float]) -> list[str]:
    """The paper's values at our radii; dashes where it has none."""
    known = dict(zip(theirs, values, strict=True))
    return ["–" if known.get(radius) is None else str(known[radius]) for radius in radii]


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown, without a line break at its end."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(printable(cell).replace("|", "\\|") for cell in line) + " |" for line in lines)
