"""`ars-bench sweep`: one command for what a loop over models and sigmas did, resumable, with one table and one plot."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.engine_runs import refused

import ars
from ars.bench.cli import main


def sweep(*arguments):
    return CliRunner().invoke(main, ["sweep", *map(str, arguments), "--n", "100", "--batch", "64", "--limit", "10"])


@pytest.fixture
def here(run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return run_folder


def test_each_sigma_is_a_run_of_one_table_and_one_plot(here):
    given = [here / "model.onnx", "--data", here / "data.npz", "--sigmas", "0.1,0.25"]
    result = sweep(*given, "--format", "json", "--plot", "plot.svg")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert [run["name"] for run in content["runs"]] == ["model-fp32-sigma0.1", "model-fp32-sigma0.25"]
    assert len(content["best_over_sigma"]) == 1
    assert "best over sigma" in Path("plot.svg").read_text()
    stores = sorted(Path("sweep").glob("*.sqlite"))
    before = [list(ars.read_records(store)) for store in stores]
    longer = sweep(*given[:-1], "0.1,0.25,0.5")  # resumed: only the new one is certified
    assert longer.exit_code == 0, longer.output
    assert "model-fp32-sigma0.5, 3 of 3" in longer.stderr
    assert [list(ars.read_records(store)) for store in stores] == before  # with their seconds
    assert len(list(Path("sweep").glob("*.sqlite"))) == 3


def test_bad_input_is_refused(here):
    data = ["--data", here / "data.npz"]
    refused(sweep("none.onnx", *data, "--sigmas", "0.1"), "none.onnx: there is no such file")
    refused(sweep(here / "model.onnx", *data), "it has no noise of its own")
    refused(sweep(here / "model.onnx", *data, "--sigmas", "big"), "sigmas = big")
    refused(sweep(here / "model.onnx", here / "model.onnx", *data, "--sigmas", "0.1"), "give each model once")
    refused(sweep(here / "model.onnx", *data, "--sigmas", "0.1", "--plot", "x.gif"), "plot = x.gif")
    refused(sweep(here / "model.onnx", *data, "--sigmas", "0.1", "--precisions", "int8"), "in these precisions")
