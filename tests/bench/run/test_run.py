"""`ars-bench run` from the command line, on tiny networks: what is measured, what is left out, and bad input."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from support import models

import ars
from ars.bench import timing
from ars.bench.cli import main
from ars.bench.run import candidates
from ars.bench.run.random_model import export_random


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    monkeypatch.setattr(timing, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(candidates, "TURN_SECONDS", 0.01)
    monkeypatch.setattr(candidates, "WHOLE_SECONDS", 0.0)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A small CNN with a noise generator, FP32 and INT8, and its model.pt."""
    return export_random("cnn", (1, 28, 28), tmp_path_factory.mktemp("network"))


def run(*arguments):
    return CliRunner().invoke(main, ["run", "--rounds", "3", "--batch", "16", "--threads", "2", *map(str, arguments)])


def refused(result, *parts):
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


def test_the_loop_and_each_runner_on_each_precision_take_turns(network, tmp_path):
    before = torch.get_num_threads()
    given = ["--backend", "loop", "--backend", "onnxruntime", "--backend", "openvino"]
    exports = [
        word for form in ("json", "csv", "markdown", "html") for word in (f"--export-{form}", tmp_path / f"b.{form}")
    ]
    result = run("--engine", network, *given, *exports)
    assert result.exit_code == 0, result.output
    assert torch.get_num_threads() == before
    content = json.loads((tmp_path / "b.json").read_text())
    names = {one["name"] for one in content["measurements"]}
    engines = {
        f"ars {backend} {precision}" for backend in ("onnxruntime", "openvino") for precision in ("fp32", "int8")
    }
    assert names == {"PyTorch loop"} | engines
    assert all(len(one["seconds"]) == 3 for one in content["measurements"])
    assert all(one["extrapolated"] and one["draws"] < 100_100 for one in content["measurements"])
    assert {one["noise"] for one in content["measurements"]} == {"input"}
    assert content["environment"]["cores"] >= 1
    assert len({one["sha256"] for one in content["measurements"]}) == 3, "the hashes of model.pt, FP32 and INT8"
    closing = result.stdout.strip().splitlines()
    assert sum("times as fast as" in line for line in closing) == 4
    assert closing[-1].startswith("  ")
    assert "PyTorch loop" in (tmp_path / "b.markdown").read_text()
    assert "Content-Security-Policy" in (tmp_path / "b.html").read_text()


def test_a_short_sample_is_measured_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(candidates, "WHOLE_SECONDS", 60.0)
    models.linear(tmp_path / "model.onnx")
    result = run("--engine", tmp_path / "model.onnx", "--backend", "onnxruntime", "--n", 500, "--export-json", "-")
    assert result.exit_code == 0, result.output
    (one,) = json.loads(result.stdout)["measurements"]
    assert (one["extrapolated"], one["draws"], one["noise"]) == (False, 600, "isotropic")


def test_what_cannot_be_measured_is_left_out_with_the_reason(network, monkeypatch):
    def fail(*arguments, **named):
        raise RuntimeError("no C++ compiler\nwas found")

    monkeypatch.setattr(torch, "compile", fail)
    result = run("--engine", network, "--backend", "compiled", "--backend", "onnxruntime", "--precision", "fp32")
    assert result.exit_code == 0, result.output
    assert "PyTorch loop, compiled is left out: no C++ compiler was found" in result.stderr
    assert "ars onnxruntime fp32" in result.stdout
    assert "int8" not in result.stdout


def test_a_runner_that_is_not_installed_is_left_out(tmp_path, monkeypatch):
    models.linear(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "openvino", None)
    monkeypatch.delitem(sys.modules, "ars.engine.runners.openvino", raising=False)
    result = run("--engine", tmp_path / "model.onnx")
    assert result.exit_code == 0, result.output
    assert "ars onnxruntime fp32" in result.stdout
    assert "ars openvino" not in result.stdout
    assert "openvino" in result.stderr
    assert "The PyTorch loop is left out: it needs the model.pt" in result.stderr


def test_bad_input_is_one_sentence(network, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(run("--engine", "no.onnx"), "no.onnx: there is no such file")
    refused(run("--engine", "resnat20"), "'resnat20'", "did you mean 'resnet20'?")
    refused(run("--engine", network, "--backend", "onnx"), "'onnx'", "did you mean 'onnxruntime'?")
    refused(run("--engine", network, "--precision", "int4"), "'int4'", "did you mean 'int8'?")
    refused(run("--engine", network, "--data", "no.npz", "--backend", "onnxruntime"), "no.npz: there is no such file")
    Path("broken.json").write_text("{}")
    refused(run("--engine", "broken.json"), "broken.json")


def test_what_no_candidate_can_take_is_refused_once(network, tmp_path):
    model = models.linear(tmp_path / "model.onnx")
    for words, message in (
        (["--sigma", "-1"], "sigma = -1.0 is not valid; it must be positive and finite"),
        (
            ["--precision", "int8"],
            f"{model}: it has no file of --precision int8; choose from fp32, or export it in int8",
        ),
        (["--device", "gpu"], "device = gpu is not valid; it is cpu, cuda:0, or several GPUs"),
    ):
        result = run("--engine", model, *words)
        refused(result, message)
        assert result.stderr.count(message) == 1
    refused(run("--engine", network, "--precision", "fp16"), "choose from fp32, int8, or export it in fp16")


def test_a_bad_output_path_fails_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(run("--engine", "no.onnx", "--export-csv", "no/b.csv"), "no/b.csv: it cannot be written")
    refused(run("--engine", "no.onnx", "--export-csv", "b.csv"), "no.onnx")
    assert not list(tmp_path.iterdir()), "a benchmark that failed leaves no file"


def test_an_export_to_stdout_has_it_alone(tmp_path):
    models.linear(tmp_path / "model.onnx")
    given = ["--engine", tmp_path / "model.onnx", "--backend", "onnxruntime", "--backend", "openvino"]
    result = run(*given, "--export-csv", "-")
    assert result.exit_code == 0, result.output
    assert [line.partition(",")[0] for line in result.stdout.splitlines()] == [
        "name",
        "ars onnxruntime fp32",
        "ars openvino fp32",
    ]
    assert "s/sample" in result.stderr
    assert "times as fast as" in result.stderr


def test_two_exports_into_one_file_are_refused_before_anything_is_measured(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for other in ("same", "./same", tmp_path / "same"):
        refused(run("--engine", "no.onnx", "--export-json", "same", "--export-csv", other), "it is given twice")
    refused(run("--engine", "no.onnx", "--export-json", "-", "--export-csv", "/dev/stdout"), "it is given twice")
    assert not list(tmp_path.iterdir())


def test_an_export_never_overwrites_the_model(tmp_path):
    model = models.linear(tmp_path / "model.onnx")
    before = model.read_bytes()
    refused(run("--engine", model, "--export-json", model), "it belongs to the input")
    assert model.read_bytes() == before


def test_adaptive_stopping_is_measured_on_real_inputs(network, tmp_path):
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((5, 1, 28, 28), dtype=np.float32))
    given = ["--data", tmp_path / "data.npz", "--inputs", 3, "--backend", "onnxruntime", "--precision", "fp32"]
    result = run("--engine", network, *given, "--n", 5000, "--export-json", tmp_path / "b.json")
    assert result.exit_code == 0, result.output
    fixed, adaptive = json.loads((tmp_path / "b.json").read_text())["measurements"]
    assert (fixed["stopping"], adaptive["stopping"]) == ("fixed", "adaptive")
    assert (adaptive["inputs"], adaptive["extrapolated"]) == (3, False)
    assert adaptive["draws_per_sample"] == adaptive["draws"] / 3 < 5100 == fixed["draws_per_sample"]
    assert "ars onnxruntime fp32 adaptive" in result.stdout


def test_if_all_inputs_take_long_a_turn_certifies_the_first_and_the_draws_of_all_still_count(
    network, tmp_path, monkeypatch
):
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).random((4, 1, 28, 28), dtype=np.float32))
    given = ["--data", tmp_path / "data.npz", "--backend", "onnxruntime", "--precision", "fp32", "--n", 2000]
    # Of inputs that take 40 seconds together, a turn gets 10 seconds: a quarter of the draws, or just over.
    assert candidates._turn_inputs([100, 100, 500, 300], 40.0) == 3
    assert candidates._turn_inputs([100, 100, 500, 300], 20.0) == 4
    monkeypatch.setattr(candidates, "MOST_ADAPTIVE_SECONDS", 1e-9)
    assert run("--engine", network, *given, "--export-json", tmp_path / "b.json").exit_code == 0
    _, adaptive = json.loads((tmp_path / "b.json").read_text())["measurements"]
    assert (adaptive["inputs"], adaptive["extrapolated"]) == (1, True)
    per_draw = adaptive["draws_per_sample"] / adaptive["draws"]
    assert adaptive["seconds_per_sample"] == pytest.approx([seconds * per_draw for seconds in adaptive["seconds"]])


def test_inputs_of_a_wrong_class_end_after_selection_if_only_correct_ones_count(network, tmp_path):
    x = np.random.default_rng(0).random((5, 1, 28, 28), dtype=np.float32)
    np.savez(tmp_path / "unlabelled.npz", x=x)
    given = ["--inputs", 3, "--backend", "onnxruntime", "--precision", "fp32", "--only-correct"]
    refused(run("--engine", network, *given), "only_correct = True is not valid; give --data with labels")
    refused(run("--engine", network, "--data", tmp_path / "unlabelled.npz", *given), "give --data with labels")
    with ars.load(network.with_suffix(".onnx"), batch=16) as classifier:
        votes = sum(np.array(classifier.predict(image, n=500).counts) for image in x)
    np.savez(tmp_path / "data.npz", x=x, y=np.full(5, votes[:-1].argmin()))
    exported = ["--n", 5000, "--export-json", tmp_path / "b.json"]
    result = run("--engine", network, "--data", tmp_path / "data.npz", *given, *exported)
    assert result.exit_code == 0, result.output
    _, adaptive, only = json.loads((tmp_path / "b.json").read_text())["measurements"]
    assert only["name"] == "ars onnxruntime fp32 adaptive, only correct"
    assert only["draws_per_sample"] == 100 < adaptive["draws_per_sample"]


def test_a_model_is_measured_with_its_generator_and_without(network, tmp_path):
    given = ["--backend", "loop", "--backend", "onnxruntime", "--precision", "fp32", "--noise", "both"]
    result = run("--engine", network, *given, "--export-json", tmp_path / "b.json")
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "b.json").read_text())["measurements"]
    assert [(one["name"], one["noise"]) for one in found] == [
        ("PyTorch loop", "input"),
        ("PyTorch loop, no generator", "isotropic"),
        ("ars onnxruntime fp32", "input"),
        ("ars onnxruntime fp32, no generator", "isotropic"),
    ]
    assert found[0]["once"] > found[1]["once"], "the maps are made once an input"


@pytest.mark.parametrize("engine", ["resnet20", "model.pt"])
def test_what_needs_torch_says_so_where_there_is_none(tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.pt").touch()
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError('hidden', name='torch')")
    command = [sys.executable, "-c", "from ars.bench.cli import main; main()", "run", "--engine", engine]
    result = subprocess.run(command, capture_output=True, text=True)  # finds torch.py in this folder
    assert result.returncode == 2
    assert result.stderr == "Error: torch is not installed; run `pip install 'ars-certify[train]'`\n"
