"""A short campaign with every run of the tests, and a quarter of an hour of all fuzzers among the slow tests."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
QUICK = ("png", "npz", "idx", "tar.gz", "cifar pickle", "manifest", "benchmark", "onnx structure")
"""Readers that need no other process."""


def run(*command, seconds):
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_mutated_files_are_refused_in_one_line_or_accepted():
    """The readers that need no other process; `make fuzz` has all of them."""
    chosen = [part for name in QUICK for part in ("--reader", name)]
    said = run(sys.executable, FOLDER / "campaign.py", "--count", "400", *chosen, seconds=900)
    assert said.splitlines()[-1].endswith(", 0 findings")


@pytest.mark.slow
def test_twenty_thousand_mutations_have_no_finding():
    run(sys.executable, FOLDER / "campaign.py", "--count", "20000", seconds=7200)


@pytest.mark.slow
@pytest.mark.parametrize("reader", QUICK)
def test_a_minute_of_atheris_finds_nothing(reader):
    pytest.importorskip("atheris")  # `make fuzz` installs it
    run(sys.executable, FOLDER / "atheris_readers.py", reader, "-max_total_time=60", seconds=600)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no compiler")
@pytest.mark.parametrize("sanitizer", ["address", "thread"])
def test_the_native_module_has_no_error_under_sanitizers(sanitizer):
    run(FOLDER / "native.sh", sanitizer, "120", seconds=1800)
