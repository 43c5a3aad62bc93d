"""`ars-bench report`: the numbers are those of the stores, names stay text, and bad input is one sentence."""

import html
import json
import re
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from support import models

from ars.bench.cli import main
from ars.bench.report.page import render_page
from ars.bench.report.runs import accuracy_curves, draw_histogram, read_runs
from ars.bench.report.strips import Strips
from ars.bench.report.write import strips_of
from ars.bench.run.result import BenchResult, Measurement
from ars.data import open_data
from ars.engine.cli import main as engine
from ars.engine.records.settings import Origin, RunHeader
from ars.engine.records.store import Store
from ars.engine.statistics.stopping import Grid
from ars.errors import ArgumentError


def report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def refused(result, *parts):
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def content(page):
    """The data inside a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


def rows(store, query):
    database = sqlite3.connect(store)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def test_the_curves_are_those_of_the_stores(runs):
    (curves,) = (curves for curves in accuracy_curves(read_runs(runs)) if curves.norm == "l2")
    assert (curves.norm, list(curves.shares)) == ("l2", [0, 1])
    for number, store in enumerate(runs):
        right = rows(store, "SELECT label, predict, radius FROM certificates")
        for radius, share in zip(curves.radii, curves.shares[number], strict=True):
            assert share == sum(a == b and found >= radius for a, b, found in right) / len(right)
        assert curves.shares[number][-1] == 0
        assert 0 < curves.shares[number][0] < 1


def test_what_adaptive_stopping_may_lose_is_data_of_the_page_if_it_is_not_the_usual(runs):
    run = read_runs(runs)[0]

    def loss(**plan):
        settings = replace(run.header.settings, plan=replace(run.header.settings.plan, **plan))
        changed = replace(run, header=replace(run.header, settings=settings))
        return content(render_page([changed], [Strips(())]))["runs"][0]["loss"]

    question = Grid((0, 0.25))
    assert [loss(question=None), loss(question=question), loss(question=question, max_loss=2)] == [None, None, "2"]


def test_the_histogram_counts_every_input_once(runs):
    histogram = draw_histogram(read_runs(runs))
    for number, store in enumerate(runs):
        draws = np.array([draws for (draws,) in rows(store, "SELECT draws FROM certificates")])
        inside = [
            np.sum((draws >= low) & (draws < high))
            for low, high in zip(histogram.edges, histogram.edges[1:], strict=False)
        ]
        assert histogram.counts[number] == inside
        assert sum(histogram.counts[number]) == 60


def test_inputs_with_different_draws_fall_into_bins_of_equal_width_on_a_logarithmic_axis(runs):
    (run, _) = read_runs(runs)
    records = tuple(replace(record, draws=100 * 10 ** (number % 4)) for number, record in enumerate(run.records))
    histogram = draw_histogram([replace(run, records=records)])
    assert np.allclose(np.diff(np.log10(histogram.edges)), 3 / 24)
    assert [count for count in histogram.counts[0] if count] == [15, 15, 15, 15]


def test_the_page_has_the_figures_of_the_stores(runs, tmp_path):
    result = report(*runs, "-o", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    page = content((tmp_path / "page.html").read_text())
    averages = {curves["norm"]: curves["acr"] for curves in page["accuracy"]}
    for number, (shown, store) in enumerate(zip(page["runs"], runs, strict=True)):
        found = rows(store, "SELECT label, predict, radius, K * sigma_geomean, draws, seconds FROM certificates")
        right = [row for row in found if row[0] == row[1]]
        average = sum(row[2] for row in right) / len(found)
        assert 0 <= average - float(averages["l2"][str(number)]) < 0.001, "rounded down"
        assert 0 <= sum(row[3] for row in right) / len(found) - float(shown["volume"]) < 0.001
        assert shown["draws"] == sum(row[4] for row in found) / len(found)
        assert shown["seconds"] == pytest.approx(sum(row[5] for row in found) / len(found))
        assert (shown["inputs"], shown["correct"]) == (60, len(right))
        assert shown["records"]["radius"]["l2"] == shown["records"]["radius"]["l1"] == [row[2] for row in found]
        assert all(float(text) <= row[2] for text, row in zip(shown["records"]["printed"]["l2"], found, strict=True))
        assert shown["settings"]["seed"] == "0"


def test_the_copies_are_the_draws_that_were_counted(runs, run_folder):
    (isotropic, generated) = read_runs(runs)
    spec = str(run_folder / "data.npz")
    shown = strips_of([isotropic, generated], [spec], [run_folder / "noise.onnx"], None)
    assert [strip.record.idx for strip in shown[0].strips] == [strip.record.idx for strip in shown[1].strips]
    one = shown[1].strips[0]
    x = open_data(spec)[one.record.idx].x
    assert np.array_equal(one.scale, np.abs(x) + np.float32(0.1))
    noise = (one.copies - x - one.mean) / one.scale
    assert np.allclose((one.isotropic - x) / one.scale.min(), noise, atol=0.02), (
        "the same noise with one scale, but for the lattice"
    )
    assert np.allclose((shown[0].strips[0].copies - x) / 0.25, noise, atol=0.02), "the same input and seed"


def test_data_and_noise_are_found_where_the_store_says(runs):
    assert [len(shown.strips) for shown in strips_of(read_runs(runs), [], [], None)] == [3, 3]


def test_without_the_data_the_page_says_what_to_give(runs, run_folder):
    origin = Origin(data_name="data.npz", data_source="no.npz")
    moved = [replace(run, header=replace(run.header, origin=origin)) for run in read_runs(runs)]
    missing = [shown.missing for shown in strips_of(moved, [], [], None)]
    assert all("say with --data where data.npz is" in words for words in missing)
    shown = strips_of(moved, [str(run_folder / "data.npz")], [], None)
    assert shown[0].missing is None
    assert "--noise" in shown[1].missing


@pytest.fixture(scope="module")
def image_run(tmp_path_factory):
    """A run of a model without a manifest on a folder of colour images, which it takes gray, resized and cropped, with
    classes from a file: run.sqlite, images/, classes.txt."""
    folder = tmp_path_factory.mktemp("images")
    models.linear(folder / "model.onnx", (1, 8, 8))
    rng = np.random.default_rng(0)
    for name in ("cat", "dog", "emu"):
        (folder / "images" / name).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 256, (12, 14, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / "images" / name / f"{number}.png")
    (folder / "classes.txt").write_text("emu\ncat\ndog\n")
    given = ["--engine", folder / "model.onnx", "--sigma", "0.25", "--data", folder / "images", "--resize", 10]
    how = ["--crop", 8, "--classes", folder / "classes.txt", "--n", 100, "--batch", 64, "--quiet"]
    words = ["certify", *given, *how, "--out", folder / "run.sqlite"]
    result = CliRunner().invoke(engine, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return folder


def test_images_are_read_again_as_the_run_read_them(image_run, tmp_path):
    runs = read_runs([image_run / "run.sqlite"])
    (shown,) = strips_of(runs, [], [], None)
    assert shown.missing is None
    assert shown.strips[0].x.shape == (1, 8, 8)
    moved = tmp_path / "moved"
    shutil.copytree(image_run / "images", moved)
    (run,) = runs
    gone = replace(run.header.origin, data_source="gone")
    runs = [replace(run, header=replace(run.header, origin=gone))]
    assert "say with --data where images is" in strips_of(runs, [], [], None)[0].missing
    assert len(strips_of(runs, [str(moved)], [], None)[0].strips) == len(shown.strips)
    (moved / "cat" / "0.png").unlink()
    with pytest.raises(ArgumentError, match="data = moved is not valid; no run was made with it as it is now"):
        strips_of(runs, [str(moved)], [], None)


def test_inputs_can_be_chosen(runs, run_folder):
    shown = strips_of(read_runs(runs), [str(run_folder / "data.npz")], [run_folder / "noise.onnx"], "7,3")
    assert [strip.record.idx for strip in shown[1].strips] == [7, 3]


EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def test_names_stay_text(runs, tmp_path):
    path = tmp_path / "<svg onload=alert(1)>.sqlite"
    (run, _) = read_runs(runs)
    environment = replace(run.header.environment, device=EVIL)
    settings = replace(run.header.settings, runner=EVIL)
    with Store(path, RunHeader(settings, Origin(data_name=EVIL), environment, (EVIL, "<b>b", "c"))) as store:
        for record in run.records:
            store.add(record)
    page = render_page(read_runs([path]), [Strips((), EVIL)])
    assert "<svg onload" not in page
    assert page.count("<script") == 2
    assert page.count("</script") == 2
    assert "<img" not in page
    assert html.escape(path.stem) in page
    shown = content(page)["runs"][0]
    assert (shown["data"], shown["classes"][0], shown["missing"]) == (EVIL, EVIL, EVIL)


def test_the_policy_allows_the_one_script_and_nothing_from_elsewhere(runs):
    import base64
    import hashlib

    page = render_page(read_runs(runs), [Strips(())] * 2)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for element, rule in (("style", "style-src"), ("script", "script-src")):
        inside = re.search(rf"<{element}>(.*?)</{element}>", page, re.S)[1]
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_each_chart_has_the_radii_of_all_runs_in_one_norm(runs):
    (run, _) = read_runs(runs)
    laplace = tuple(
        replace(record, certificate=replace(record.certificate, family="laplace")) for record in run.records
    )
    curves = {one.norm: one for one in accuracy_curves([run, replace(run, records=laplace)])}
    assert {norm: list(one.shares) for norm, one in curves.items()} == {
        "l1": [0, 1],
        "l2": [0, 1],
        "linf": [0, 1],
    }
    assert curves["l1"].averages[1] == pytest.approx(curves["l1"].averages[0])
    assert curves["l2"].averages[1] == pytest.approx(curves["l2"].averages[0] / 8), "there are 64 dimensions"
    assert curves["linf"].averages[0] == pytest.approx(curves["l2"].averages[0] / 8)
    assert curves["linf"].averages[1] == pytest.approx(curves["l2"].averages[0] / 64)
    for one in curves.values():
        assert one.radii[-1] > max(radius for radius in one.radii if one.shares[0][one.radii.index(radius)] > 0)
        parts = (len(one.radii) - 1) / round(one.radii[-1] / one.step)
        assert parts == int(parts), "the radii of the table are among those of the curve"
    assert curves["linf"].step < curves["l2"].step == 0.1


def test_a_run_that_does_not_say_its_scales_has_no_curve_in_larger_norms(runs):
    (run, _) = read_runs(runs)
    unknown = {"dimensions": None, "inverse_scale_l1": None, "inverse_scale_l2": None}
    older = tuple(replace(record, certificate=replace(record.certificate, **unknown)) for record in run.records)
    curves = accuracy_curves([replace(run, records=older), run])
    assert {one.norm: list(one.shares) for one in curves} == {"l1": [0, 1], "l2": [0, 1], "linf": [1]}
    shown = content(render_page([replace(run, records=older)], [Strips(())]))["runs"][0]["records"]
    assert shown["radius"].keys() == shown["printed"].keys() == {"l1", "l2"}


def test_the_page_says_of_each_input_why_it_stopped(runs):
    shown = content(render_page(read_runs(runs), [Strips(())] * 2))["runs"][0]["records"]["explanation"]
    assert len(shown) == 60
    assert all("It took all 500 draws. " in sentence for sentence in shown)
    assert any(sentence.startswith("It abstains: ") for sentence in shown)


def test_figures_are_written_in_three_formats(runs, run_folder, tmp_path):
    given = ["--data", run_folder / "data.npz", "--noise", run_folder / "noise.onnx", "--figures", tmp_path / "figures"]
    result = report(*runs, "-o", tmp_path / "page.html", *given)
    assert result.exit_code == 0, result.output
    names = (*(f"certified-accuracy-{norm}" for norm in ("l1", "l2", "linf")), "draws", "inputs", "seconds")
    written = {path.name for path in (tmp_path / "figures").iterdir()}
    assert written == {f"{name}.{form}" for name in names for form in ("svg", "png", "pdf")}
    assert (tmp_path / "figures" / "draws.pdf").read_bytes().startswith(b"%PDF")
    assert "isotropic, ACR" in (tmp_path / "figures" / "certified-accuracy-l2.svg").read_text()


def test_a_benchmark_is_a_figure_too(runs, tmp_path):
    bench, figures = tmp_path / "bench.json", tmp_path / "figures"
    loop, ours = (
        Measurement(name, name, "fp32", "fixed", "input", 64, 2, "ab12", rate, 100, 1, 100.0, 0.0, seconds)
        for name, rate, seconds in (("loop", True, (2.0, 2.0)), ("ars $x$", False, (1.0, 1.5)))
    )
    result = BenchResult("net$", 10, 90, 2, (loop, ours), (), {"cpu": "x", "cores": 2})
    bench.write_text(result.as_json())
    made = report(runs[0], "--bench", bench, "--bench", bench, "--figures", figures, "-o", tmp_path / "page.html")
    assert made.exit_code == 0, made.output
    assert (figures / "benchmark-2.pdf").exists()
    drawn = (figures / "benchmark-1.svg").read_text()
    assert all(words in drawn for words in ("net$ (* extrapolated", "loop *", "ars $x$<", "per sample", " 1.25 s"))


def test_a_folder_of_figures_that_cannot_be_made_is_found_before_the_page_is_written(runs, tmp_path):
    (tmp_path / "file").touch()
    refused(report(runs[0], "--figures", tmp_path / "file", "-o", tmp_path / "page.html"), "file: it cannot be created")
    assert not (tmp_path / "page.html").exists()


def test_the_closing_line_counts_the_runs(runs, tmp_path):
    assert "60 certificates of one run;" in report(runs[0], "-o", tmp_path / "page.html").stderr
    assert "120 certificates of 2 runs;" in report(*runs, "-o", tmp_path / "page.html").stderr


def test_a_page_never_overwrites_what_it_is_made_of(runs, tmp_path):
    for name in ("bench.json", "data.npz", "noise.onnx"):
        (tmp_path / name).write_text("precious")
    (tmp_path / "link.html").symlink_to(runs[0])
    refused(report(runs[0], "-o", runs[0]), "it belongs to the input", "choose another one")
    refused(report(runs[0], "-o", tmp_path / "link.html"), "it belongs to the input")
    for option, name in (("--bench", "bench.json"), ("--data", "data.npz"), ("--noise", "noise.onnx")):
        refused(report(runs[0], option, tmp_path / name, "-o", tmp_path / name), "it belongs to the input")
        assert (tmp_path / name).read_text() == "precious"


def test_bad_input_is_one_sentence(runs, run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(report("no.sqlite"), "no.sqlite: there is no such file")
    refused(report(), "Missing argument")
    refused(report(runs[0], "-o", "no/page.html"), "no/page.html: it cannot be written")
    refused(report(runs[0], "-o", tmp_path), "it is a folder")
    refused(report(run_folder / "data.npz"), "data.npz", "not a run store")
    refused(report(runs[0], "--data", "no.npz"), "no.npz: there is no such file")
    np.savez("other.npz", x=np.zeros((3, 1, 8, 8), np.float32))
    refused(report(runs[0], "--data", "other.npz"), "data = other.npz", "no run was made with it")
    refused(report(runs[1], "--noise", "no.onnx"), "no.onnx: there is no such file")
    refused(report(runs[1], "--noise", run_folder / "model.onnx"), "model.onnx: no run was made with it")
    data = ["--data", run_folder / "data.npz"]
    refused(report(runs[0], *data, "--only", "cat"), "only = cat")
    refused(report(runs[0], *data, "--only", "99"), "only = 99", "none of them is certified")
    (run, _) = read_runs(runs)
    Store(tmp_path / "empty.sqlite", run.header).close()
    refused(report("empty.sqlite"), "empty.sqlite: it has no certificates yet")
    assert not list(tmp_path.glob("report.html*")), "a page that failed leaves no file"
    assert len(read_runs(runs)[0].records) == 60, "the store is whole"


def test_large_images_make_no_large_page(tmp_path, monkeypatch):
    """Two runs on ten photographs of 224 pixels, whose maps are as large, stay below 1 MB."""
    monkeypatch.chdir(tmp_path)
    shape, rng = (3, 224, 224), np.random.default_rng(0)
    model, noise = models.linear(tmp_path / "model.onnx", shape), models.generator(tmp_path / "noise.onnx", shape)
    smooth = np.kron(rng.random((10, 3, 28, 28)), np.ones((8, 8))) + rng.normal(0, 0.03, (10, *shape))
    np.savez("data.npz", x=smooth.clip(0, 1).astype(np.float32), y=np.zeros(10, int))
    for name, given in (("isotropic", ["--sigma", 0.5]), ("generated", ["--noise", noise])):
        told = ["--engine", model, "--data", "data.npz", "--n", 100, "--quiet", "--out", f"{name}.sqlite", *given]
        assert CliRunner().invoke(engine, ["certify", *map(str, told)]).exit_code == 0
    assert report("isotropic.sqlite", "generated.sqlite", "-o", "page.html").exit_code == 0
    assert (tmp_path / "page.html").stat().st_size < 1e6
