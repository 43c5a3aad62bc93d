"""`ars-bench paper`: figures are those of the stores, the attack lowers accuracy, the paper's rows are labelled."""

import re
import shutil
import sqlite3
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from ars.bench import cli
from ars.bench.paper import published
from ars.bench.paper import write as paper_write
from ars.bench.paper.tables import Certified, accuracy_table, markdown_table
from ars.bench.report.runs import read_runs
from ars.export.cli import main as export
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, write_model_file
from ars.train.noise_models import NoiseShape


def images(number, seed):
    """Three classes of 8 x 8 images: a bright row, a bright column, or a bright corner."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, number)
    x = rng.uniform(0.2, 0.5, (number, 1, 8, 8)).astype(np.float32)
    for image, label in zip(x, labels, strict=True):
        image[0, *((3, slice(None)), (slice(None), 4), (slice(4), slice(4)))[label]] += 0.2
    return x, labels


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """data.npz, and two exported models that have learned it: plain (isotropic noise) and maps (a noise generator)."""
    folder = tmp_path_factory.mktemp("paper")
    x, labels = images(60, 1)
    np.savez(folder / "data.npz", x=x, y=labels)
    learn, right = (torch.from_numpy(values) for values in images(512, 2))
    for name, kind in (("plain", NoiseKind.ISOTROPIC), ("maps", NoiseKind.INPUT)):
        settings = ModelSettings(
            "cnn", (1, 8, 8), ("row", "column", "corner"), (0.4,), (0.2,), "gaussian", kind, NoiseShape(0.25)
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = build(settings)
            optimizer = torch.optim.Adam(model.parameters(), 3e-3)
            for step in range(60):
                some = slice(64 * (step % 8), 64 * (step % 8) + 64)
                loss = model(learn[some], right[some], torch.randn(1, *learn[some].shape)).smoothing
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        examples = Images(learn[:64], right[:64])
        write_model_file(folder / f"{name}.pt", settings, model.eval(), {"by": "a test"}, examples)
        result = CliRunner().invoke(export, [str(folder / f"{name}.pt"), "--quiet"])
        assert result.exit_code == 0, result.output
    return folder


def paper(*arguments):
    return CliRunner().invoke(cli.main, ["paper", *map(str, arguments)])


def refused(result, *parts):
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def rows(text, heading):
    """The rows of the first table below a heading, as dictionaries."""
    lines = [line for line in text.partition(heading)[2].splitlines() if line.startswith("|")]
    heads, *body = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    end = next((number for number, line in enumerate(body) if line == heads), len(body))
    return [dict(zip(heads, line, strict=True)) for line in body[1:end] if set(line) != {"---"}]


def test_the_tables_are_those_of_the_stores_and_the_attack_lowers_accuracy(folder, monkeypatch):
    monkeypatch.setattr(paper_write, "RUNTIME_N", 500)
    given = [
        "--data",
        folder / "data.npz",
        "--n",
        "500",
        "--batch",
        "64",
        "--rounds",
        "3",
        "--folder",
        folder / "stores",
    ]
    result = paper(folder / "plain.onnx", folder / "maps.json", *given, "-o", folder / "paper.md")
    assert result.exit_code == 0, result.output
    text = (folder / "paper.md").read_text()
    ours = {row["model"]: row for row in rows(text, "## Certified accuracy")}
    assert [(row["noise"], row["scope"], row["network"]) for row in ours.values()] == [
        ("input", "frozen", "cnn"),
        ("isotropic", "global", "cnn"),
    ]
    for name, row in ours.items():
        database = sqlite3.connect(folder / "stores" / f"{name}.sqlite")
        found = database.execute("SELECT label = predict, radius FROM certificates").fetchall()
        database.close()
        assert len(found) == 60
        for radius in ("0.00", "0.25"):
            share = 100 * np.mean([right and reached >= float(radius) for right, reached in found])
            assert row[radius] == f"{share:.1f}"
        assert 0 <= np.mean([right * reached for right, reached in found]) - float(row["ACR"]) < 0.001
        assert float(row["0.00"]) > 70, "it has learned something"
    after = [row for row in rows(text, "## After an attack") if row["model"] in ours]
    for name in ours:
        before, attacked, loss = (row for row in after if row["model"] == name)
        assert (before[""], attacked[""], loss[""]) == ("before", "PGD", "loss")
        assert before["0.00"] == ours[name]["0.00"]
        assert float(attacked["0.00"]) < float(before["0.00"]), "PGD lowers certified accuracy"
        assert float(attacked["0.25"]) <= float(before["0.25"])
        lost = 100 * (float(before["0.00"]) - float(attacked["0.00"])) / float(before["0.00"])
        assert abs(int(loss["0.00"].removesuffix(" %")) - lost) < 0.6
    (timed, theirs) = rows(text, "## The noise generator's time")
    assert (timed["network"], timed["draws"]) == ("cnn", "600")
    assert (theirs["seconds with the generator"], theirs["without"]) == ("27.43", "27.09")


def test_the_same_command_again_goes_on_with_the_same_stores(folder, monkeypatch):
    monkeypatch.setattr(paper_write, "RUNTIME_N", 500)
    stores = folder / "again"
    given = ["--data", folder / "data.npz", "--n", "200", "--batch", "64", "--rounds", "3", "--folder", stores]
    first = paper(folder / "plain.onnx", *given, "--limit", "10", "--attack", "classifier")
    assert first.exit_code == 0, first.output
    assert {path.name for path in stores.iterdir() if "sqlite-" not in path.name} == {
        "plain.sqlite",
        "plain.classifier.sqlite",
        "plain.classifier.npz",
    }
    second = paper(folder / "plain.onnx", *given, "--limit", "10", "--attack", "classifier")
    assert second.exit_code == 0, second.output
    assert first.stdout.partition("## The noise")[0] == second.stdout.partition("## The noise")[0]
    assert second.stderr.count("10 of 10 inputs are certified already") == 2
    refused(paper(folder / "plain.onnx", *given, "--n", "300"), "plain.sqlite", "choose another store")


def test_models_whose_names_differ_after_a_dot_have_rows_and_stores_of_their_own(folder, tmp_path):
    names = ["net-0.25", "net-0.5"]
    for name in names:
        shutil.copy(folder / "plain.pt", tmp_path / f"{name}.pt")
        assert CliRunner().invoke(export, [str(tmp_path / f"{name}.pt"), "--quiet"]).exit_code == 0
    models = [tmp_path / f"{name}.onnx" for name in names]
    given = ["--data", folder / "data.npz", "--limit", "4", "--n", "100", "--attack", "none", "--folder", tmp_path]
    result = paper(*models, *given)
    assert result.exit_code == 0, result.output
    assert [row["model"] for row in rows(result.stdout, "## Certified accuracy")][:2] == names
    assert all((tmp_path / f"{name}.sqlite").exists() for name in names)


def test_only_correct_ends_the_inputs_of_a_wrong_class_before_and_after_the_attack(folder, monkeypatch):
    monkeypatch.setattr(paper_write, "RUNTIME_N", 500)
    stores = folder / "correct"
    given = ["--data", folder / "data.npz", "--n", "200", "--batch", "64", "--rounds", "3", "--folder", stores]
    result = paper(folder / "plain.onnx", *given, "--only-correct")
    assert result.exit_code == 0, result.output
    before, after, _ = (row for row in rows(result.stdout, "## After an attack") if row["model"] == "plain")
    for name, shown in (("plain", before), ("plain.generator", after)):
        (run,) = read_runs([stores / f"{name}.sqlite"])
        right = [record.certificate.selected == record.label for record in run.records]
        assert [record.certificate.n > 0 for record in run.records] == right
        assert len(right) == 60
        assert float(shown["0.00"]) <= round(100 * np.mean(right), 1)
    assert not all(right), "the attack changes some classes"


def test_run_stores_are_taken_as_they_are_and_the_best_over_sigma_is_a_row(runs):
    result = paper(*runs)
    assert result.exit_code == 0, result.output
    ours = rows(result.stdout, "## Certified accuracy")
    assert [(row["model"], row["sigma0"]) for row in ours] == [("generated", "?"), ("isotropic", "0.25")]
    assert "## After an attack" not in result.stdout
    one, other = read_runs(runs)
    text = accuracy_table([Certified("a", "net", 0.25, one), Certified("b", "net", 0.5, one)])
    *_, best = rows(text, "Certified accuracy")
    assert (best["model"], best["sigma0"]) == ("best of a, b", "0.25, 0.5")
    text = accuracy_table([Certified("a", "net", 0.25, one), Certified("b", "net", 0.5, other)])
    assert "best of" not in text, "kinds of noise are not mixed"


@pytest.mark.filterwarnings("error")
def test_a_run_without_labels_has_no_accuracy(runs):
    labelled, _ = read_runs(runs)
    records = tuple(replace(record, label=None) for record in labelled.records)
    unlabelled = replace(labelled, records=records)
    text = accuracy_table([Certified("a", "net", 0.25, labelled), Certified("b", "net", 0.5, unlabelled)])
    one, other = rows(text, "Certified accuracy")
    assert float(one["0.00"]) > 0
    assert {other[head] for head in ("0.00", "ACR", "volume")} == {"–"}
    assert "best of" not in text


def test_the_papers_figures_are_labelled_with_their_network_and_data(runs):
    text = paper(*runs).stdout
    theirs = rows(text, "The paper's Table 1")
    assert [(row["model"], row["data"], row["0.00"]) for row in theirs] == [
        ("Cohen", "CIFAR-10", "83"),
        ("Zhang", "CIFAR-10", "–"),
        ("Alfarra", "CIFAR-10", "82"),
        ("Hong", "CIFAR-10", "84"),
    ]
    assert {row["network"] for row in theirs} == {"ResNet-110", "as quoted there"}
    assert len(re.findall(r"other networks or data than above", text)) == 2


def test_the_papers_figures_fit_their_radii_and_its_losses():
    for table in published.accuracy_tables():
        assert all(len(row.percent) == len(table.radii) for row in table.rows)
    cohen, hong = published.attack_rows()
    losses = [[-100 * (b - a) / b for b, a in zip(row.before, row.after, strict=True)] for row in (cohen, hong)]
    printed = [[-31, -37, -42, -46, -47, -53, -50, -44], [-30, -39, -39, -39, -41, -41, -43, -42]]
    assert np.abs(np.array(losses) - printed).max() < 1, "the losses that the paper prints, cut to whole percents"


def test_bad_input_is_one_sentence(folder, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(paper("no.onnx"), "no.onnx: there is no such file")
    refused(paper("no.sqlite"), "no.sqlite: there is no such file")
    refused(paper(folder / "plain.onnx"), "data = None", "say what to certify the models on")
    refused(paper(folder / "plain.onnx", folder / "plain.json", "--data", folder / "data.npz"), "give each model once")
    refused(paper(runs[0].with_name("model.onnx"), "--data", "x.npz"), "model.onnx: it has no manifest")
    refused(paper(folder / "plain.onnx", "--data", "no.npz"), "no.npz: there is no such file")
    refused(paper(*runs, "-o", "no/paper.md"), "no/paper.md: it cannot be written")
    (tmp_path / "file").touch()
    refused(
        paper(folder / "plain.onnx", "--data", folder / "data.npz", "--folder", "file"), "file: it cannot be created"
    )
    np.savez("plain.npz", x=np.zeros((3, 1, 8, 8), np.float32))
    refused(paper(folder / "plain.onnx", "--data", "plain.npz", "--n", "50", "--batch", "32"), "it has no labels")


def test_a_word_that_is_no_file_makes_no_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cnn.pt").write_text("precious")
    refused(paper("cnn", "--data", "data.npz"), "cnn: there is no such file; give an exported model or a run store")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"cnn.pt": "precious"}


def test_the_tables_never_overwrite_what_they_are_made_of(folder, runs):
    data, before = folder / "data.npz", (folder / "data.npz").read_bytes()
    refused(paper(runs[0], "-o", runs[0]), "it belongs to the input")
    refused(paper(folder / "plain.onnx", "--data", data, "-o", data), "it belongs to the input")
    assert data.read_bytes() == before
    assert len(read_runs(runs)[0].records) == 60


def test_names_from_a_store_reach_the_terminal_as_escapes():
    """The name of a run's data is whatever its store says."""
    assert markdown_table(["a"], [["x\n\x1b[2J|"]]).splitlines()[2:] == ["| x\\n\\x1b[2J\\| |"]
