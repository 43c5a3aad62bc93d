"""Runs of `ars-train` in the tests, on the files that the fixture `data` writes."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from click.testing import CliRunner

from ars.train.cli import main
from ars.train.model_file import read_model_file

TRAIN = Path(sys.executable).parent / "ars-train"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def arguments(*more, epochs=2, kind="input", out="model.pt"):
    given = ["--dataset", "data.npz", "--noise", kind, "--epochs", str(epochs), "--batch", "40", "--draws", "2"]
    return [*given, "-o", out, *more]


def train(*more, epochs=2, kind="input", out="model.pt"):
    return CliRunner().invoke(main, arguments(*more, epochs=epochs, kind=kind, out=out))


def run(*command):
    """A command in a process of its own, with one thread: what it computes does not depend on the machine's load."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([*map(str, command)], env=environment, **pipes) as process:
        try:
            output, errors = process.communicate(timeout=600)
        except subprocess.TimeoutExpired:
            process.terminate()  # torchrun ends those that it started
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def weights(path="model.pt"):
    return read_model_file(Path(path))[1]["weights"]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def refused(result, *parts, status=2):
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    assert result.stderr.count("Error: ") == 1
    for part in parts:
        assert part in result.stderr
    return result


def interrupt(monkeypatch, step):
    """Ctrl-C in that step of the runs to come."""

    def stop(self, done, total, loss):
        if done == step:
            raise KeyboardInterrupt

    monkeypatch.setattr("ars.train.progress.TrainingProgress.step", stop)
