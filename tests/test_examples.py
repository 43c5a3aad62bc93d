"""The examples run, and the demo does all that it says."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import ars

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_the_example_for_python_users_runs(run_store):
    run = subprocess.run(
        [sys.executable, EXAMPLES / "certify.py", run_store], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("image 0 (class 9): class 9 within 0.")
    assert f"{run_store}: 2 certificates" in run.stdout


@pytest.fixture
def run_store(tmp_path):
    folder = EXAMPLES / "fashion-mnist"
    inputs = ars.Inputs(str(folder / "images.npz"), limit=2)
    with ars.load(folder / "classifier.onnx", sigma=0.5, batch=32) as classifier:
        return ars.certify_run(classifier, inputs, ars.Plan(n=100), store=tmp_path / "run.sqlite").store


def test_the_models_to_start_from_are_those_on_their_card():
    folder = EXAMPLES / "cifar10"
    card = (folder / "README.md").read_text()
    entries = [entry for path in folder.glob("*.json") for entry in json.loads(path.read_text())["files"]]
    hashes = {entry["path"]: entry["sha256"] for entry in entries}
    for path in folder.glob("*.onnx"):
        content = path.read_bytes()
        assert hashlib.sha256(content).hexdigest() == hashes[path.name]
        assert f"| `{path.name}` | {len(content):,} | `{hashes[path.name]}` |" in card
    assert all((folder / f"{path.stem}.int8.onnx").exists() for path in folder.glob("*.json"))
    assert sum(path.stat().st_size for path in folder.iterdir() if path.suffix != ".zip") < 3_000_000


def test_the_model_to_start_from_certifies_colour_images():
    with ars.load(EXAMPLES / "cifar10" / "isotropic-0.5.onnx", batch=32) as classifier:
        made = classifier.certify(np.full((3, 32, 32), 0.5, np.float32), n=100)
    assert sum(made.counts) == 100


@pytest.mark.slow
def test_the_demo_ends_with_a_page_and_says_where_it_is():
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run = subprocess.run(
        ["bash", EXAMPLES / "demo.sh"], capture_output=True, text=True, timeout=3600, env=os.environ | {"PATH": paths}
    )
    assert run.returncode == 0, run.stderr
    assert "Open build/demo/report.html in a browser" in run.stdout
    assert (EXAMPLES.parent / "build" / "demo" / "report.html").stat().st_size > 100_000
