"""The four commands start, say what they are, and fail in one sentence."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ars.bench.cli import main as bench
from ars.command_line import Group
from ars.distribution import VERSION
from ars.engine.cli import main as engine
from ars.errors import ArgumentError, MissingPackage, RunError

SCRIPTS = Path(sys.executable).parent


@pytest.mark.parametrize("script", ["ars-train", "ars-export", "ars-engine", "ars-bench"])
def test_the_scripts_are_installed_and_say_their_version(script):
    run = subprocess.run([SCRIPTS / script, "--version"], capture_output=True, text=True)
    assert (run.returncode, run.stdout) == (0, f"{script}, version {VERSION}\n")


def test_devices_names_the_host_and_its_instructions():
    result = CliRunner().invoke(engine, ["devices"])
    assert result.exit_code == 0
    assert result.stdout.startswith("cpu             ready")
    assert "scalar" in result.stdout


@pytest.mark.parametrize(
    ("error", "status"),
    [(ArgumentError("n", 0, "more"), 2), (MissingPackage("torch", "train"), 2), (RunError("lost"), 1)],
)
def test_errors_are_one_sentence_and_an_exit_status(error, status):
    @click.group(cls=Group)
    def main():
        pass

    @main.command()
    def fail():
        raise error

    result = CliRunner().invoke(main, ["fail"])
    assert (result.exit_code, result.stdout, result.stderr) == (status, "", f"Error: {error}\n")


def test_the_sampler_bench_prints_its_table_and_its_ratios():
    small = ["sampler", "--dimensions", "64", "--batch", "100", "--rounds", "3"]
    result = CliRunner().invoke(bench, small)
    assert result.exit_code == 0, result.output
    assert "ars, 1 thread" in result.stdout
    assert result.stdout.count("times as fast as") == 4
    report = json.loads(CliRunner().invoke(bench, [*small, "--json"]).stdout)
    assert {len(seconds) for seconds in report["seconds"].values()} == {3}
    assert [(ratio["faster"], ratio["slower"]) for ratio in report["ratios"]] == [
        ("ars, 1 thread", "torch, 1 thread"),
        ("ars, 1 thread", "numpy, 1 thread"),
        ("ars, 2 threads", "ars, 1 thread"),
        ("ars, noise stream 1, 1 thread", "ars, 1 thread"),
    ]


def test_the_sampler_bench_without_torch_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = CliRunner().invoke(bench, ["sampler"])
    said = "Error: torch is not installed; run `pip install 'ars-certify[train]'`\n"
    assert (result.exit_code, result.stderr) == (2, said)


def test_the_package_and_the_engine_need_no_torch():
    heavy = "{'torch', 'onnx', 'onnxruntime', 'openvino', 'tensorrt', 'pycuda', 'ray', 'matplotlib'}"
    program = f"import sys, ars, ars.engine.cli; print(sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "[]\n", run.stderr


def test_the_example_certifies_no_more_than_the_truth():
    example = Path(__file__).parents[1] / "examples" / "linear.py"
    run = subprocess.run([sys.executable, example], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "certified l2 radius" in run.stdout
