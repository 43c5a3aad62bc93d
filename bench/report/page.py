"""One HTML page that needs no other file and no network: style, script, data and pictures are inside.

The policy in its head allows the one style and the one script by their hashes, and pictures from data addresses. So a
name in the data could not become code even if it were taken for markup.
"""

import base64
import datetime
import hashlib
import html
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ars.bench.report.attacks import RunAttacks, attacks_of, farthest
from ars.bench.report.pictures import map_pictures, photograph, picture_address, region_picture
from ars.bench.report.runs import Run, accuracy_curves, draw_histogram
from ars.bench.report.strips import Strip, Strips
from ars.bench.run.export import HEADS, cells, footnote
from ars.bench.run.result import BenchResult, deviation
from ars.distribution import VERSION
from ars.engine.decisions.overview import p_a_quartiles
from ars.engine.decisions.sample import describe_unfinished
from ars.engine.records.columns import REPORTED
from ars.engine.statistics.accuracy import LEVEL
from ars.engine.statistics.certificate import format_radius
from ars.engine.statistics.losses import MAX_LOSS
from ars.noise import NoiseKind
from ars.noise.norms import NORMS, norm_name

__all__ = ["render_page", "render_template"]

_FOLDER = Path(__file__).with_name("page")
_SCRIPTS = ("elements.js", "charts.js", "table.js", "page.js")


def render_page(runs: Sequence[Run], strips: Sequence[Strips], benches: Sequence[BenchResult] = ()) -> str:
    """The page of these runs, with the strips of each, and of these benchmarks, as text."""
    title = "Certified robustness: " + ", ".join([*(run.name for run in runs), *(bench.network for bench in benches)])
    return render_template("page.html", _SCRIPTS, title, _content(runs, strips, benches))


def render_template(name: str, scripts: Sequence[str], title: str, content: Mapping[str, object]) -> str:
    """A page of this folder with the common style, these scripts, and its content as JSON."""
    style = (_FOLDER / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in scripts)
    policy = f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:"
    parts = {
        "policy": policy + "; base-uri 'none'; form-action 'none'",
        "title": html.escape(title),
        "style": style,
        "script": script,
        "data": _script_safe(json.dumps(content, allow_nan=False, separators=(",", ":"))),
    }
    return re.sub(r"{{(\w+)}}", lambda match: parts[match[1]], (_FOLDER / name).read_text(encoding="utf-8"))


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _script_safe(text: str) -> str:
    """JSON that cannot end its script element early: only `</script` and `<!--` mean anything inside one."""
    return text.replace("<", "\\u003c")


def _content(runs: Sequence[Run], strips: Sequence[Strips], benches: Sequence[BenchResult]) -> dict[str, object]:
    histogram = draw_histogram(runs) if runs else None
    return {
        "version": VERSION,
        "made": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"),
        "runs": [_run(run, of_run) for run, of_run in zip(runs, strips, strict=True)],
        "columns": [{"name": column.name, "title": column.title} for column in REPORTED],
        "norms": [norm_name(norm) for norm in NORMS],
        "accuracy": [
            {"norm": one.norm, "step": one.step, "radii": one.radii, "shares": one.shares, "bands": one.bands}
            | {"best": [{"runs": best.runs, "shares": best.shares} for best in one.best], "level": f"{LEVEL:.0%}"}
            | {"acr": {number: _printed(average, runs[number], one.norm) for number, average in one.averages.items()}}
            for one in accuracy_curves(runs)
        ],
        "draws": histogram and {"edges": histogram.edges, "counts": histogram.counts},
        "benches": [_bench(bench) for bench in benches],
    }


def _bench(bench: BenchResult) -> dict[str, object]:
    ratios = [{"name": one.name, "times": f"{ratio.median:.2f}"} for one, ratio in bench.ratios()]
    bars = [
        {
            "name": one.name,
            "value": float(np.mean(one.seconds_per_sample)),
            "deviation": deviation(one.seconds_per_sample),
            "rate": one.draws_per_second,
            "extrapolated": one.extrapolated,
            "ours": one.name.startswith("ars "),
        }
        for one in bench.slowest_first()
    ]
    return {
        "network": bench.network,
        "bars": bars,
        "heads": HEADS,
        "rows": cells(bench),
        "footnote": footnote(bench),
        "fastest": bench.fastest.name,
        "ratios": ratios,
        "leftOut": bench.left_out,
        "environment": _words(bench.environment),
    }


def _run(run: Run, strips: Strips) -> dict[str, object]:
    summary, header, plan = run.summary, run.header, run.header.settings.plan
    attacks = attacks_of(run)
    return {
        "name": run.name,
        "data": header.origin.data_name,
        "kind": header.settings.kind,
        "family": header.settings.family,
        "norm": run.norm,
        "unit": header.origin.unit,
        "scope": run.scope.value,
        "stream": header.settings.noise_stream,
        "alpha": plan.alpha,
        "stopping": "fixed" if plan.question is None else "adaptive",
        "loss": None if plan.question is None or plan.max_loss == MAX_LOSS else f"{plan.max_loss:g}",
        "question": None if plan.question is None else plan.question.describe(),
        "sigma": f"{run.sigma:.4g}",
        "pA": [format_radius(value) for value in p_a_quartiles(run.records)],
        "n0": plan.n0,
        "n": plan.n,
        "inputs": summary.inputs,
        "labelled": summary.labelled,
        "unfinished": describe_unfinished(run),
        "abstained": summary.abstained,
        "correct": sum(record.correct is True for record in run.records),
        "ended": summary.ended_after_selection,
        "nobody": summary.nobody,
        "volume": format_radius(summary.average_volume_radius),
        "draws": summary.draws / summary.inputs,
        "seconds": summary.seconds / summary.inputs,
        "deviation": run.seconds_deviation,
        "rate": summary.draws / max(summary.seconds, 1e-9),
        "classes": header.classes,
        "settings": _words(header.settings.to_json()),
        "environment": _words(header.origin.to_json() | header.environment.to_json()),
        "strips": [_strip(run, strip) for strip in strips.strips],
        "regions": _regions(run, strips),
        "missing": strips.missing,
        "attacks": attacks and _attacks(attacks),
        "records": _records(run) | {"attack": [attacks.show(record.idx) if attacks else "" for record in run.records]},
    }


def _attacks(attacks: RunAttacks) -> dict[str, object]:
    """The points of the chart, and what it takes to describe them."""
    return {
        "points": [
            {"idx": one.idx, "radius": one.radius, "found": bound is not None, "attack": bound or farthest(one)}
            for one in attacks.attacked.values()
            for bound in (one.upper_radius,)
        ],
        "inside": attacks.inside,
        "movesMaps": attacks.settings.moves_maps,
        "ratio": attacks.median_ratio,
        "alpha": attacks.settings.alpha,
        "n": attacks.settings.n,
    }


def _regions(run: Run, strips: Strips) -> dict[str, object]:
    """The pictures of certified regions, as far as their scale maps are at hand: by the number of the input, or one for
    all inputs, whose regions differ only in their size."""
    kind = run.header.settings.kind
    if kind is NoiseKind.DATASET:
        return {"all": _region(strips.strips[0])} if strips.strips else {}
    return {str(strip.record.idx): _region(strip) for strip in strips.strips if kind is NoiseKind.INPUT}


def _region(strip: Strip) -> dict[str, object]:
    pixels, low, high = region_picture(strip.scale)
    return {"picture": picture_address(pixels), "low": low, "high": high}


def _words(facts: Mapping[str, object]) -> dict[str, str]:
    return {name: "none" if value is None else str(value) for name, value in facts.items()}


def _records(run: Run) -> dict[str, object]:
    """The table of certificates by columns: those that the page lays out itself, and as text those of columns.py.

    A radius is given in each norm as a number to sort by (null if it is infinite) and as a text that is rounded down;
    the norms in which the radii of an older run are not known are left out.
    """
    radii = {norm_name(norm): run.radii_in(norm) for norm in NORMS}
    known = {norm: found for norm, found in radii.items() if found is not None}
    certificates = [record.certificate for record in run.records]
    return {
        "idx": [record.idx for record in run.records],
        "label": [record.label for record in run.records],
        "predict": [certificate.predicted for certificate in certificates],
        "K": [certificate.K if np.isfinite(certificate.K) else None for certificate in certificates],
        "radius": {
            norm: [radius if np.isfinite(radius) else None for radius in found] for norm, found in known.items()
        },
        "printed": {norm: [_printed(radius, run, norm) for radius in found] for norm, found in known.items()},
    } | {column.name: [column.reported(column.value(result)) for result in run.results] for column in REPORTED}


def _printed(radius: float, run: Run, norm: str) -> str:
    """A radius rounded down, with more digits in norms that are larger than the run's own, where radii are small."""
    return format_radius(radius, 3 if norm <= run.norm else 5)


def _strip(run: Run, strip: Strip) -> dict[str, object]:
    record, certificate = strip.record, strip.record.certificate
    return {
        "idx": record.idx,
        "label": None if record.label is None else run.class_name(record.label),
        "answer": None if certificate.abstained else run.class_name(certificate.predicted),
        "correct": record.correct,
        "radius": {
            norm_name(norm): _printed(radius, run, norm_name(norm))
            for norm in NORMS
            if (radius := certificate.radius_in(norm)) is not None
        },
        "image": picture_address(photograph(strip.x)),
        "smallest": f"{float(strip.scale.min()):.3g}",
        "copies": [picture_address(photograph(copy, strip.x)) for copy in strip.copies],
    } | (_maps(strip) if run.header.settings.kind is not NoiseKind.ISOTROPIC else {})


def _maps(strip: Strip) -> dict[str, object]:
    """What only noise with maps has."""
    maps = map_pictures(strip.mean, strip.scale)
    return {
        "mean": picture_address(maps.mean),
        "meanBound": f"{maps.bound:.2g}",
        "scale": picture_address(maps.scale),
        "scaleRange": [f"{maps.low:.3g}", f"{maps.high:.3g}"],
        "isotropic": [picture_address(photograph(copy, strip.x)) for copy in strip.isotropic],
    }
