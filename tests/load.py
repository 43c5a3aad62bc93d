"""What large runs cost, each command in a process of its own, as a table:

    python tests/load.py FOLDER

Ten thousand inputs, a thousand classes, inputs of 3 x 512 x 512, a model of 500 MB, and ten million draws. The seconds
include the start of Python and all imports; the memory is the most that was resident at once.
"""

import argparse
import itertools
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from onnx import helper
from support import models

BIN = Path(sys.executable).parent
WIDTH = 11_180  # two layers of it are 500 MB


def data(path: Path, inputs: int, shape: tuple[int, ...], classes: int) -> str:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (inputs, *shape), dtype=np.uint8)
    np.savez(path, x=x, y=rng.integers(0, classes, inputs))
    return str(path)


def pooled(path: Path, shape: tuple[int, ...], classes: int) -> str:
    """Logits of the channels' averages."""
    weights = np.random.default_rng(0).normal(0, 9, (shape[0], classes)).astype(np.float32)
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "W"], ["logits"]),
    ]
    given = [models.value("x", "n", *shape)], [models.value("logits", "n", classes)], [("W", weights)]
    return str(models.save(path, nodes, *given))


def large(path: Path, shape: tuple[int, ...], classes: int) -> str:
    """Three layers, the middle one of WIDTH x WIDTH weights."""
    rng, sides = np.random.default_rng(0), (int(np.prod(shape)), WIDTH, WIDTH, classes)
    weights, nodes, last = [], [helper.make_node("Flatten", ["x"], ["h0"])], len(sides) - 1
    for layer, (rows, columns) in enumerate(itertools.pairwise(sides)):
        weights.append((f"W{layer}", rng.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5)))
        out = "logits" if layer + 1 == last else f"h{layer + 1}"
        nodes.append(helper.make_node("MatMul", [f"h{layer}", f"W{layer}"], [out]))
    given = [models.value("x", "n", *shape)], [models.value("logits", "n", classes)], weights
    return str(models.save(path, nodes, *given))


def made(make: Callable[..., str], *arguments: object) -> str:
    """What `make` makes, in a process of its own: the memory of this one counts for the commands that it starts."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(make, arguments)


def linear(path: Path, classes: int) -> str:
    return str(models.linear(path, classes=classes))


def measure(what: str, *command: str) -> None:
    """Run a command, and print its row."""
    start = time.monotonic()
    process = subprocess.Popen([str(BIN / command[0]), *command[1:]], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.monotonic() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)}: {said}")
    busy, memory = used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6
    print(f"| {what} | {seconds:.1f} | {busy:.1f} | {memory:.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    small, many = (1, 4, 4), made(data, Path("many.npz"), 10_000, (4, 4, 1), 3)
    small_model = made(linear, Path("linear.onnx"), 3)

    def certify(what: str, model: str, source: str, store: str, *more: str) -> None:
        Path(store).unlink(missing_ok=True)
        given = ["--engine", model, "--data", source, "--sigma", "0.5", "--seed", "1", "--out", store, "--quiet"]
        measure(what, "ars-engine", "certify", *given, *more)

    print("| what | seconds | processor seconds | MB |\n|---|---:|---:|---:|")
    few = ["--n", "100", "--n0", "10", "--batch", "1024"]
    for number in (1_000, 10_000):
        certify(f"certify {number:,} inputs", small_model, many, "many.sqlite", *few, "--limit", str(number))
    for what, command in (
        ("results", ["ars-engine", "results", "many.sqlite", "-o", "many.tsv"]),
        ("audit", ["ars-engine", "audit", "many.sqlite", "--quiet"]),
        ("summary", ["ars-engine", "summary", "many.sqlite"]),
        ("report", ["ars-bench", "report", "many.sqlite", "-o", "many.html"]),
    ):
        measure(f"{what} of 10,000 rows", *command)
    model = made(linear, Path("classes.onnx"), 1000)
    certify("certify 1,000 inputs, 1,000 classes", model, many, "classes.sqlite", *few, "--limit", "1000")
    measure("report of 1,000 classes", "ars-bench", "report", "classes.sqlite", "-o", "classes.html")
    side = (3, 512, 512)
    images = made(data, Path("images.npz"), 100, (512, 512, 3), 10)
    model = made(pooled, Path("images.onnx"), side, 10)
    for number in (10, 100):
        pixels = ["--n", "100", "--n0", "10", "--batch", "16", "--limit", str(number)]
        certify(f"certify {number} inputs of 3 x 512 x 512, 110 draws", model, images, "images.sqlite", *pixels)
    measure("report of inputs of 3 x 512 x 512", "ars-bench", "report", "images.sqlite", "-o", "images.html")
    model = made(large, Path("large.onnx"), small, 3)
    for what in ("certify with a model of 500 MB, first time", "the same again"):
        certify(what, model, many, "large.sqlite", "--n", "100", "--n0", "10", "--batch", "64", "--limit", "2")
    for number in (100_000, 10_000_000):
        certify(f"certify an input, n = {number:,}", small_model, many, "n.sqlite", "--n", str(number), "--limit", "1")


if __name__ == "__main__":
    main()
