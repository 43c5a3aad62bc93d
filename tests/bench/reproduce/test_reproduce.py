"""`ars-bench reproduce` at toy size: every step of both presets runs, resumes, and ends in the page."""

import dataclasses
import json
import shutil
import sqlite3

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from support.train_runs import interrupt

from ars.bench import cli
from ars.bench.paper import published
from ars.bench.paper import write as paper_write
from ars.bench.reproduce import presets
from ars.bench.reproduce.presets import PRESETS, Certification
from ars.train.cli import main as train


def images(number, seed):
    """Colour images of 8 x 8 in two classes, dark and bright, which shifts and flips leave as they are."""
    rng = np.random.default_rng(seed)
    labels = np.arange(number) % 2
    x = 0.2 * rng.random((number, 3, 8, 8), dtype=np.float32)
    return x + 0.8 * labels.reshape(-1, 1, 1, 1).astype(np.float32), labels


def write_images(folder, number, seed):
    for place, (image, label) in enumerate(zip(*images(number, seed), strict=True)):
        path = folder / f"class{label}" / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((255 * image.transpose(1, 2, 0)).astype(np.uint8)).save(path)


def make_small(preset, **changed):
    """The preset with its own steps and options, and small numbers."""
    certifications = tuple(Certification(one.name, 200, one.adaptive) for one in preset.certifications)
    small = {"arch": "resnet8", "shape": (3, 8, 8), "images": 192, "inputs": 14, "epochs": 2, "batch": 16, "draws": 2}
    attacked = {"attacked_sigma0": 0.25, "attacked_n": 100}
    return dataclasses.replace(preset, certifications=certifications, **(small | attacked | changed))


SMALL = {
    ("cifar10", "cpu"): make_small(PRESETS["cifar10", "cpu"], sigmas=(0.25,), inputs_options=("--skip", "3")),
    ("cifar10", "paper"): make_small(PRESETS["cifar10", "paper"], sigmas=(0.25,), inputs_options=("--skip", "3")),
    ("imagenet", "paper"): make_small(
        PRESETS["imagenet", "paper"],
        sigmas=(0.25,),
        training=("--optimizer", "sgd", "--lr", "0.1", "--schedule", "step", "--flip", "--random-crop", "8"),
        inputs_options=("--resize", "8", "--crop", "8", "--skip", "3"),
    ),
}


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(presets, "PRESETS", SMALL)
    monkeypatch.setattr(paper_write, "RUNTIME_N", 200)
    folder = tmp_path / "toy"
    folder.mkdir()
    return folder


@pytest.fixture
def arrays(data):
    for name, number, seed in (("train", 192, 1), ("test", 40, 2)):
        x, y = images(number, seed)
        np.savez(data / f"{name}.npz", x=x, y=y)
    return data


def reproduce(*arguments):
    return CliRunner().invoke(cli.main, ["reproduce", *map(str, arguments)])


def refused(result, *parts, status=2):
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def rows(text, heading):
    """The rows of the first table below a heading, by their first cell."""
    lines = text.partition(heading)[2].partition("\n| ---")[2].splitlines()[1:]
    table = []
    for line in lines:
        if not line.startswith("|"):
            break
        table.append([cell.strip() for cell in line.strip("|").split("|")])
    return {row[0]: row for row in table}


def renamed(text, stem):
    """A page as it would be under another name."""
    return text.replace("paper.svg", f"{stem}.svg").replace("paper-inputs.png", f"{stem}-inputs.png")


def test_the_cpu_preset_goes_from_training_to_the_page_and_does_nothing_twice(arrays, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt(patch, step=14)  # in the second epoch of the first model
        assert reproduce("cifar10", "--data", arrays, "-o", "paper.md").exit_code == 130
    assert rows((tmp_path / "paper.md").read_text(), "## Models")["isotropic-0.25"][-1] == "not trained"
    result = reproduce("cifar10", "--data", arrays, "-o", "paper.md")
    assert result.exit_code == 0, result.output
    assert "1 of 2 epochs" in result.stderr
    assert result.stderr.count("--resume") == 1
    assert "At most about" in result.stderr
    folder = tmp_path / "cifar10-cpu"
    names = ["isotropic-0.25", "input-0.25"]
    for name in names:
        assert {f"{name}.pt", f"{name}.int8.onnx", f"{name}.adaptive.sqlite", f"{name}.fixed.sqlite"} <= {
            path.name for path in folder.iterdir()
        }
    text = (tmp_path / "paper.md").read_text()
    assert str(tmp_path) not in text
    assert "Missing" not in text
    assert "Not trained as" not in text
    assert [row[-1] for row in rows(text, "## Models").values()] == ["certified"] * 2
    ours = rows(text, "## Table 1")
    assert list(ours)[:2] == names
    database = sqlite3.connect(folder / "isotropic-0.25.adaptive.sqlite")
    found = database.execute("SELECT label = predict, radius FROM certificates").fetchall()
    database.close()
    share = 100 * np.mean([right and radius >= 0.25 for right, radius in found])
    assert len(found) == 14
    assert share > 0, "it has learned something"
    assert ours["isotropic-0.25"][5].startswith(f"{share:.1f} (")
    assert ours["best of isotropic"][5] == f"{share:.1f}"
    assert ours["Cohen, best over sigma"][4:7] == ["83", "61", "43"]
    averages = rows(text, "## Average certified radius")
    database = sqlite3.connect(folder / "input-0.25.fixed.sqlite")
    found = database.execute("SELECT label = predict, radius FROM certificates").fetchall()
    database.close()
    mean = np.mean([right * radius for right, radius in found])
    assert 0 <= mean - float(averages["input-0.25"][4].split()[0]) < 0.001
    assert float(averages["input-0.25"][5]) > 0
    assert all(f"### {title}" in text for title in presets.ATTACKS.values())
    assert "Differences are to be expected: our network is a ResNet-20, trained for 2 epochs" in text
    assert "consistency regularisation" in text
    assert "of fewer models" not in text
    compared = rows(text, "## Table 3")
    assert list(compared) == names
    for _, _, *after, worst in compared.values():
        assert after[list(presets.ATTACKS.values()).index(worst)] == min(after, key=float)
    assert text.count("The paper's Table 3: ") == 1
    assert "## Section 7.2" in text
    laplace = rows(text, "## Laplace noise")
    assert list(laplace) == ["isotropic-0.5-laplace", "input-0.5-laplace"]
    assert [row[1:3] for row in laplace.values()] == [["global", "14"], ["frozen", "14"]]
    assert (tmp_path / "paper.svg").stat().st_size > 1000
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.suffix in (".pt", ".onnx")}
    again = reproduce("cifar10", "--data", arrays, "-o", "again.md")
    assert again.exit_code == 0, again.output
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir() if path.name in before} == before
    assert "ars-train" not in again.stderr
    assert (tmp_path / "paper-inputs.png").stat().st_size > 1000
    assert (tmp_path / "again.md").read_text() == renamed(text, "again")
    for path in [*folder.glob("*.pt"), *folder.glob("*.onnx")]:
        path.unlink()
    page = renamed(text, "last")
    shutil.copy("paper-inputs.png", "last-inputs.png")
    assert reproduce("cifar10", "--data", arrays, "-o", "last.md").exit_code == 0
    assert (tmp_path / "last.md").read_text() == page, "manifests, metrics, stores, tables and a picture are enough"
    folder.joinpath("attacks/smoothed.md").unlink()
    refused(
        reproduce("cifar10", "--data", arrays, "-o", "last.md"), "isotropic-0.25.pt: there is no such file", status=1
    )


# Both have the same steps; that of ImageNet reads its images from a folder, too.
@pytest.mark.parametrize("experiment", [pytest.param("cifar10", marks=pytest.mark.slow), "imagenet"])
def test_the_paper_preset_runs_through(experiment, data, tmp_path):
    for name, number, seed in (("train", 192, 1), ("val", 40, 2)):
        write_images(data / name, number, seed)
    result = reproduce(experiment, "--preset", "paper", "--data", data)
    assert result.exit_code == 0, result.output
    text = (tmp_path / f"{experiment}-paper" / "paper.md").read_text()
    assert f"--preset paper --data {data.name}\n" in text
    heading = "## Table 1" if experiment == "cifar10" else "## Table 2"
    assert list(rows(text, heading))[:2] == ["isotropic-0.25", "input-0.25"]
    assert "Missing" not in text
    assert "fixed stopping" in text
    assert all(f"### {title}" in text for title in presets.ATTACKS.values())


def test_the_plan_is_printed_and_nothing_is_run(arrays, tmp_path):
    result = reproduce("cifar10", "--data", arrays, "--plan", "--models", "isotropic-0.25")
    assert result.exit_code == 0, result.output
    commands = result.stdout.splitlines()
    assert [command.split()[0] for command in commands] == ["ars-train", "ars-export", "ars-engine", "ars-engine"]
    assert "--consistency 10" in commands[0]
    assert "--stopping adaptive --radii 0,0.25,0.5,0.75,1,1.25," in commands[2]
    assert result.stderr.count("to do") == 4
    assert list((tmp_path / "cifar10-cpu").iterdir()) == []


def test_models_that_are_already_there_are_used_and_others_are_called_missing(arrays, tmp_path):
    """A model with other settings than the preset's, which the page says."""
    folder = tmp_path / "mine"
    folder.mkdir()
    options = ["--dataset", str(arrays), "--arch", "resnet8", "--noise", "isotropic", "--batch", "16", "--draws", "1"]
    options += ["--sigma", "0.25"]
    given = CliRunner().invoke(train, [*options, "--epochs", "3", "-o", str(folder / "isotropic-0.25.pt")])
    assert given.exit_code == 0, given.output
    chosen = ("--data", arrays, "--folder", folder, "--models", "isotropic-0.25")
    result = reproduce("cifar10", *chosen)
    assert result.exit_code == 0, result.output
    text = (folder / "paper.md").read_text()
    models = rows(text, "## Models")
    assert models["isotropic-0.25"][1:4] == ["3", "1", "0.0"]
    assert [models[name][-1] for name in models] == ["certified", "not trained"]
    assert "**Missing: input-0.25.**" in text
    differences = "epochs 3, not 2, draws 1, not 2, consistency 0.0, not 10"
    assert f"**Not trained as the preset asks: isotropic-0.25 ({differences}).**" in text
    assert all("isotropic-0.25 \\*" in rows(text, heading) for heading in ("## Table 1", "## Average certified radius"))
    assert "No model of input-wise noise (scope frozen) has been certified yet." in text
    assert "Not made yet: it needs isotropic-0.25 and input-0.25." in text
    # Without its model.pt, the exported model is enough.
    (folder / "isotropic-0.25.pt").unlink()
    assert reproduce("cifar10", *chosen).exit_code == 0
    # A model that is not what its name says would be in the wrong row.
    shutil.copy(folder / "isotropic-0.25.json", folder / "input-0.25.json")
    refused(reproduce("cifar10", *chosen), "input-0.25.json", "it has isotropic noise with sigma0 = 0.25", "rename it")


def test_a_page_of_nothing_says_that_nothing_is_there(arrays, tmp_path):
    result = reproduce("cifar10", "--data", arrays, "--folder", "kept", "--page", "-o", "paper.md")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "paper.md").read_text()
    assert "    ars-bench reproduce cifar10 --preset cpu --data toy --folder kept\n" in text
    assert "No model has been certified yet." in text
    assert "**Missing: isotropic-0.25, input-0.25.**" in text
    assert rows(text, "## Table 1")["Cohen, best over sigma"][4:7] == ["83", "61", "43"]
    assert not (tmp_path / "paper.svg").exists()


def test_a_step_that_fails_ends_the_reproduction_with_its_own_message(arrays, tmp_path):
    (tmp_path / "cifar10-cpu").mkdir()
    (arrays / "train.npz").write_bytes(b"no")
    result = reproduce("cifar10", "--data", arrays, "--models", "isotropic-0.25")
    refused(result, "train.npz", "failed with status 2; run the same command again", status=1)
    assert not list((tmp_path / "cifar10-cpu").glob("*.pt"))


def test_what_cannot_be_right_is_refused(arrays, tmp_path):
    refused(reproduce("imagenet", "--data", arrays), "unknown preset of imagenet 'cpu'; choose one of paper")
    refused(reproduce("cifar10", "--data", arrays, "--models", "isotrop-0.25"), "did you mean 'isotropic-0.25'?")
    refused(reproduce("cifar10", "--data", arrays, "-o", tmp_path / "no" / "paper.md"), "paper.md", "cannot be written")
    assert not list((tmp_path / "cifar10-cpu").glob("*.pt")), "it was refused before anything was trained"
    (tmp_path / "empty").mkdir()
    refused(reproduce("cifar10", "--data", tmp_path / "empty"), "name the test data with --test")


def test_the_presets_are_the_papers_and_their_options_are_known():
    for preset in PRESETS.values():
        arguments = ["--dataset", "none", "--epochs", str(preset.epochs), *preset.training]
        result = CliRunner().invoke(train, arguments)
        assert "none: there is no such file or folder" in result.stderr
    paper = PRESETS["cifar10", "paper"]
    tables = {table.data: table.radii for table in published.accuracy_tables()}
    assert ",".join(f"{radius:g}" for radius in tables["CIFAR-10"]) == presets.RADII
    assert (paper.arch, paper.draws, paper.certifications[0].n, paper.inputs) == ("resnet110", 5, 100_000, 10_000)
    assert json.dumps(PRESETS["imagenet", "paper"].shape) == "[3, 224, 224]"
