"""The summary of runs as text, JSON, CSV, Markdown or LaTeX."""

import csv
import dataclasses
import io
import json
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal

from ars.engine.decisions.overview import Best, Overview, describe_level
from ars.engine.statistics.accuracy import LEVEL, Interval
from ars.engine.statistics.certificate import format_radius, format_upper, name_radius
from ars.noise import GAUSSIAN
from ars.printable import printable

__all__ = [
    "FORMATS",
    "align",
    "percent",
    "percent_down",
    "percent_up",
    "radius_head",
    "show_difference",
    "show_interval",
]

Table = tuple[list[str], list[list[str]]]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def percent_down(share: float, digits: int = 1) -> Decimal:
    return _percent(share, ROUND_FLOOR, digits)


def percent_up(share: float) -> Decimal:
    return _percent(share, ROUND_CEILING, 1)


def _percent(share: float, rounding: str, digits: int) -> Decimal:
    found = (100 * Decimal(repr(share))).quantize(Decimal(1).scaleb(-digits), rounding)
    return found if found else abs(found)  # no negative zero


def radius_head(radius: float) -> str:
    """A radius at the head of a column: exactly this number, with two digits if they are enough."""
    return f"{radius:.2f}" if radius == round(radius, 2) < 1e6 else name_radius(radius)


def show_interval(interval: Interval) -> str:
    """The interval in percent, rounded outward."""
    return f"{percent_down(interval.low)}–{percent_up(interval.high)}"


def show_difference(interval: Interval) -> str:
    """The interval of a difference in percent, rounded outward."""
    return f"{percent_down(interval.low):+} to {percent_up(interval.high):+}"


def align(rows: Sequence[Sequence[str]]) -> str:
    """The rows as lines with aligned columns: the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = (
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )
    return "\n".join(line.rstrip() for line in lines)


def _noise(one: Overview) -> str:
    return one.kind if one.family == GAUSSIAN.name else f"{one.kind} {one.family}"


def _radius(value: float, one: Overview) -> str:
    return ("≥ " if one.at_least else "") + format_radius(value)


def _averages(one: Overview) -> str:
    return f"{format_radius(one.acr_interval.low)}–{format_upper(one.acr_interval.high)}"


def _names(overviews: Sequence[Overview]) -> list[str]:
    """The names of the runs, with the norms of their radii if these differ."""
    return [one.name if len({one.norm for one in overviews}) == 1 else f"{one.name} ({one.norm})" for one in overviews]


def _best_names(best: Sequence[Best]) -> list[str]:
    """What stands before the best over sigma, with the runs if there are several groups of them."""
    return ["best over sigma" if len(best) == 1 else f"best of {', '.join(group.runs)}" for group in best]


def _heads(overviews: Sequence[Overview]) -> list[str]:
    radii = next((one.accuracies for one in overviews if one.accuracies), ())
    return [radius_head(found.radius) for found in radii]


def as_text(overviews: Sequence[Overview], best: Sequence[Best]) -> str:
    heads = _heads(overviews)
    norms = " and ".join(sorted({one.norm for one in overviews}))
    lines = []
    if heads:
        rows = [["", "sigma", *heads]]
        for one, name in zip(overviews, _names(overviews), strict=True):
            rows.append(
                [
                    name,
                    f"{one.sigma:.4g}",
                    *([percent(found.share) for found in one.accuracies] or ["–"] * len(heads)),
                ]
            )
            if one.accuracies and not one.exact:
                rows.append(["", "", *(show_interval(found.interval) for found in one.accuracies)])
        rows += [[name, "", *map(percent, group.shares)] for group, name in zip(best, _best_names(best), strict=True)]
        lines += [f"Certified accuracy in percent, by {norms} radius", align(rows), describe_level(overviews), ""]
    rows = [["", "inputs", "abstained", "pA quartiles", "ACR", "ACR interval", "draws", "seconds"]]
    for one in overviews:
        of = "" if one.population in (None, one.inputs) else f" of {one.population:,}"
        averages = [_radius(one.acr, one), "exact" if one.exact else _averages(one)] if one.labelled else ["–", "–"]
        quartiles = " ".join(format_radius(value) for value in one.p_a)
        rows.append(
            [
                one.name,
                f"{one.inputs:,}{of}",
                f"{one.abstained:,}",
                quartiles,
                *averages,
                f"{one.draws:,}",
                f"{one.seconds:.3g}",
            ]
        )
    lines.append(align(rows))
    for one in overviews:
        what = f"{one.model or 'a model'} on {one.data or 'its data'}, {_noise(one)} noise, scope {one.scope}"
        lines.append(f"{one.name}: {printable(what)}, n = {one.n:,}, alpha = {one.alpha:g}, {one.stopping} stopping")
        lines += [f"{one.name}: {note}" for note in one.notes]
        if not one.labelled:
            lines.append(f"{one.name}: its inputs have no labels, so there is no accuracy")
    return "\n".join(lines) + "\n"


def as_json(overviews: Sequence[Overview], best: Sequence[Best]) -> str:
    runs = [dataclasses.asdict(one) for one in overviews]
    content = {
        "level": LEVEL,
        "intervals": describe_level(overviews),
        "runs": runs,
        "best_over_sigma": [dataclasses.asdict(one) for one in best],
    }
    return json.dumps(content, indent=2) + "\n"


def as_csv(overviews: Sequence[Overview], best: Sequence[Best]) -> str:
    """A row for each run and radius."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = [
        "name",
        "model",
        "data",
        "family",
        "kind",
        "scope",
        "norm",
        "sigma",
        "n",
        "alpha",
        "stopping",
        "inputs",
        "population",
        "labelled",
        "abstained",
    ]
    writer.writerow(["run", *columns[1:], "radius", "certified_accuracy", "low", "high", "level"])
    for one in overviews:
        facts = [getattr(one, column) for column in columns]
        for found in one.accuracies:
            writer.writerow([*facts, found.radius, found.share, *found.interval, LEVEL])
    for group, name in zip(best, _best_names(best), strict=True):
        radii = [found.radius for found in next(one for one in overviews if one.name in group.runs).accuracies]
        blank = [name, *[""] * 5, group.norm, *[""] * (len(columns) - 7)]
        for radius, share in zip(radii, group.shares, strict=True):
            writer.writerow([*blank, radius, share, "", "", ""])
    return text.getvalue()


def _table(overviews: Sequence[Overview], best: Sequence[Best], cell: Callable[[str, str | None], str]) -> Table:
    """A row for each run; `cell` makes one of a number and its interval, both as text."""
    heads = ["run", "noise", "sigma", "scope", "inputs", *_heads(overviews), "ACR"]
    rows = []
    for one, name in zip(overviews, _names(overviews), strict=True):
        found = [cell(percent(at.share), None if one.exact else show_interval(at.interval)) for at in one.accuracies]
        acr = cell(_radius(one.acr, one), None if one.exact else _averages(one)) if one.labelled else "–"
        rows.append(
            [
                name,
                _noise(one),
                f"{one.sigma:.4g}",
                one.scope,
                f"{one.inputs:,}",
                *(found or ["–"] * (len(heads) - 6)),
                acr,
            ]
        )
    for group, name in zip(best, _best_names(best), strict=True):
        sigmas = ", ".join(f"{sigma:.4g}" for sigma in group.sigmas)
        rows.append([name, "", sigmas, "", "", *(cell(percent(share), None) for share in group.shares), "–"])
    return heads, rows


def as_markdown(overviews: Sequence[Overview], best: Sequence[Best]) -> str:
    heads, rows = _table(
        overviews, best, lambda number, interval: number if interval is None else f"{number} ({interval})"
    )
    lines = [heads, [":---", *["---:"] * (len(heads) - 1)], *rows]
    table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
    return f"{table}\n\n{_caption(overviews)}\n"


_BREAK = "\0"
"""Between a number and its interval."""

_LATEX = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "≥": r"$\geq$",
}


def _escape(text: str) -> str:
    return "".join(_LATEX.get(sign, sign) for sign in text)


def as_latex(overviews: Sequence[Overview], best: Sequence[Best]) -> str:
    """A table for \\usepackage{booktabs}. Intervals are small, below their numbers, and what all runs have in common is
    said in the caption, so that five radii fit a page."""
    heads, rows = _table(overviews, best, lambda number, interval: f"{number}{_BREAK}{interval or ''}")
    common = [
        (place, f"{heads[place]} {cells[0]}")
        for place in map(heads.index, ("noise", "scope", "inputs"))
        if len(set(cells := [row[place] for row in rows[: len(overviews)]])) == 1
    ]
    left_out = {place for place, _ in common}

    def lines(cells: Sequence[str]) -> Iterator[str]:
        kept = [cell.partition(_BREAK) for place, cell in enumerate(cells) if place not in left_out]
        yield f"    {' & '.join(_escape(number) for number, _, _ in kept)} \\\\"
        if any(interval for _, _, interval in kept):
            small = (f"{{\\scriptsize {_escape(interval)}}}" if interval else "" for _, _, interval in kept)
            yield f"    {' & '.join(small)} \\\\"

    body = [line for row in rows[: len(overviews)] for line in lines(row)]
    if best:
        blank = [[cell if head != "sigma" else "" for head, cell in zip(heads, row, strict=True)] for row in rows]
        body += [r"    \midrule", *(line for row in blank[len(overviews) :] for line in lines(row))]
    caption = " ".join(
        [_caption(overviews), *([f"All runs: {', '.join(said for _, said in common)}."] if common else [])]
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"  \centering",
            r"  \setlength{\tabcolsep}{3pt}",
            f"  \\caption{{{_escape(caption)}}}",
            r"  \smallskip",
            f"  \\begin{{tabular}}{{l{'r' * (len(heads) - len(common) - 1)}}}",
            r"    \toprule",
            *lines(heads),
            r"    \midrule",
            *body,
            r"    \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _caption(overviews: Sequence[Overview]) -> str:
    norms = " and ".join(sorted({one.norm for one in overviews}))
    data = ", ".join(dict.fromkeys(one.data for one in overviews if one.data))
    more = [f"{one.name}: {note}." for one in overviews for note in one.notes]
    return " ".join(
        [
            f"Certified accuracy in percent by {norms} radius{' on ' + data if data else ''}.",
            describe_level(overviews),
            *more,
        ]
    )


FORMATS: dict[str, Callable[[Sequence[Overview], Sequence[Best]], str]] = {
    "text": as_text,
    "json": as_json,
    "csv": as_csv,
    "markdown": as_markdown,
    "latex": as_latex,
}
