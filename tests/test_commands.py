"""The four commands start, say what they are, and fail in one sentence."""

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner

from ars.bench.cli import main as bench
from ars.command_line import Command, Group
from ars.distribution import VERSION
from ars.engine.cli import main as engine
from ars.errors import ArgumentError, DataError, MissingPackage, RunError

SCRIPTS = Path(sys.executable).parent


@pytest.mark.parametrize("script", ["ars-train", "ars-export", "ars-engine", "ars-bench"])
def test_the_scripts_are_installed_and_say_their_version(script):
    run = subprocess.run([SCRIPTS / script, "--version"], capture_output=True, text=True)
    first, python, *rest = run.stdout.splitlines()
    assert (run.returncode, first) == (0, f"{script}, version {VERSION}")
    assert python.split()[:2] == ["python", platform.python_version()]
    assert ["numpy", np.__version__] in [line.split() for line in rest]


def test_versions_of_what_runs_are_read_without_importing_it():
    heavy = "{'numpy', 'onnx', 'onnxruntime', 'openvino', 'torch', 'ray'}"
    program = "import sys; from ars.distribution import list_versions; names = [name for name, _ in list_versions()]; "
    program += f"print(names[0], 'onnxruntime' in names, sorted({heavy} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout == "python True []\n", run.stderr


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


def shell(command, **environment):
    path = f"{SCRIPTS}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=os.environ | {"PATH": path} | environment
    )


STORE = Path(__file__).parent / "data" / "stores" / "fixed.sqlite"


@pytest.fixture
def store(tmp_path):
    return shutil.copy(STORE, tmp_path)


def test_a_closed_stdout_is_one_sentence(store):
    short = Path(store).with_name("short.sqlite")  # all of its text is still in the buffer at the end
    shutil.copy(STORE.with_name("format-1-two-sided.sqlite"), short)
    for command in (f"ars-engine results {store} --format json", f"ars-engine results {short}"):
        run = shell(f"{command} >&-")
        errors = [line for line in run.stderr.splitlines() if line.startswith("Error: ")]
        assert (run.returncode, errors) == (1, ["Error: stdout: Bad file descriptor; check the path and the disk"])
    run = shell("ars-engine devices >&-")
    assert run.returncode == 1
    assert "Traceback" not in run.stderr
    assert run.stderr.startswith("Error: ")


def test_a_closed_stderr_stops_nothing(tmp_path):
    folder = Path(__file__).parents[1] / "examples" / "fashion-mnist"
    given = f"--engine {folder}/classifier.onnx --data {folder}/images.npz --sigma 0.25 --n 50 --batch 64 --limit 2"
    run = shell(f"cd {tmp_path} && ars-engine certify {given} --out run.sqlite <&- 2>&-")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("2 inputs certified")
    assert (tmp_path / "run.sqlite").read_bytes()[:15] == b"SQLite format 3", "not what was said on stderr"


def test_ctrl_c_while_a_command_starts_is_no_traceback():
    """Python itself takes a few hundredths of a second, in which nobody can help."""
    program = "import ars.start, importlib, signal\n"
    program += "importlib.import_module = lambda name: signal.raise_signal(signal.SIGINT)\nars.start.engine()"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "Error: stopped\n")


def test_a_second_ctrl_c_ends_a_command_at_once():
    program = """
import ars.start, importlib, signal, types
def main():
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        print("in good order", flush=True)
    signal.raise_signal(signal.SIGINT)
    print("too late")
importlib.import_module = lambda name: types.SimpleNamespace(main=main)
ars.start.engine()
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (run.returncode, run.stdout, run.stderr) == (-signal.SIGINT, "in good order\n", "")


def test_text_is_written_in_utf_8_whatever_the_locale(store, tmp_path):
    ascii = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for command in (
        f"ars-bench report {store} -o {tmp_path}/r.html",
        f"ars-bench report {store} -o - > {tmp_path}/r.html",
    ):
        run = shell(command, **ascii)
        assert run.returncode == 0, run.stderr
        assert "σ" in (tmp_path / "r.html").read_text(encoding="utf-8")
    assert shell(f"ars-engine summary {store}", **ascii).returncode == 0


@pytest.mark.parametrize("error", [KeyError("counts"), RecursionError(), AssertionError("a\nb")])
def test_an_error_that_nobody_foresaw_is_one_sentence_with_the_details_in_a_file(error, monkeypatch, tmp_path):
    @click.command(cls=Command)
    def fail():
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    result = CliRunner().invoke(fail)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (70, "", 1)
    assert result.stderr.startswith(f"Error: this is a bug in ARS ({type(error).__name__}: ")
    assert "nothing that was written is lost, please report it with the details in " in result.stderr
    (details,) = tmp_path.iterdir()
    assert str(details) in result.stderr
    assert "Traceback" in details.read_text()
    monkeypatch.setenv("ARS_TRACEBACK", "1")
    assert CliRunner().invoke(fail).exception is error


@pytest.mark.parametrize(
    ("error", "sentence", "status"),
    [
        (MemoryError(), "m.onnx: there is not enough memory; use a smaller batch, or less data", 1),
        (OSError(28, "No space left on device"), "r.tsv: No space left on device; check the path and the disk", 1),
        (PermissionError(13, "Permission denied", "x"), "x: Permission denied; check the path and the disk", 2),
    ],
)
def test_a_lack_of_memory_or_space_names_the_file(error, sentence, status):
    @click.command(cls=Command)
    @click.option("--engine")
    @click.option("--output")
    def fail(engine, output):
        raise error

    result = CliRunner().invoke(fail, ["--engine", "m.onnx", "--output", "r.tsv"])
    assert (result.exit_code, result.stderr) == (status, f"Error: {sentence}\n")


def test_names_reach_the_terminal_in_one_line_and_without_control_characters():
    @click.command(cls=Command)
    def fail():
        raise DataError("a\x1b[2J\nError: b\u202e\ud800", "it is hostile", "leave it")

    assert CliRunner().invoke(fail).stderr == ("Error: a\\x1b[2J\\nError: b\\u202e\\ud800: it is hostile; leave it\n")
