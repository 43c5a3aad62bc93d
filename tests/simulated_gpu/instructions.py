"""The instructions of the kernels' PTX that a GPU's warps execute, for a value of a noisy copy and for a row of votes.
`PYTHONPATH=tests python -m simulated_gpu.instructions` prints them. It needs nvcc.

A warp executes an instruction if any of its threads does. The machine code has about as many, and the roofline of
docs/gpu.md is computed from these.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ars.engine.lattice import Lattice
from ars.noise import FAMILIES, GAUSSIAN, Family
from simulated_gpu import kernels, ptx

DIMENSIONS, ROWS, REQUESTS, WARP = 3072, 16, 4, 32
"""An image of CIFAR-10, and a few draws of four inputs."""


def fill_instructions(family: Family = GAUSSIAN, lattice: Lattice | None = None, source: Path | None = None) -> float:
    """The instructions of a warp for each of its threads, by the values that they make."""
    rng, slots = np.random.default_rng(0), REQUESTS
    center, scale = rng.random((slots, DIMENSIONS), np.float32), np.full((slots, DIMENSIONS), 0.5, np.float32)
    tables, step = [center, scale], []
    if lattice:
        rows = [lattice.noise(x, np.float32([0]), s) for x, s in zip(center, scale, strict=True)]
        names, step = ("center", "scale", "margin", "exact_center"), [lattice.step]
        tables = [np.stack([getattr(row, name) for row in rows]) for name in names]
    out = np.empty((ROWS, DIMENSIONS), np.float32)
    name = f"fill_{'stretched_' if family.stretched else ''}{'lattice' if lattice else 'noisy'}_float32"
    where = (out.ctypes.data, _table().ctypes.data, REQUESTS, ROWS, *(table.ctypes.data for table in tables))
    form = "PPiqPPPPfqIQ" if lattice else "PPiqPPqIQ"
    grid = (DIMENSIONS // 4 // 256, ROWS)
    total = _run(name, grid, 256, struct.pack(form, *where, *step, DIMENSIONS, family.code, 1), source)
    return total * WARP / out.size


def count_instructions(classes: int, threads_a_row: int = WARP, source: Path | None = None) -> float:
    """The instructions of warps for each row of logits."""
    logits = np.random.default_rng(0).normal(size=(128, classes)).astype(np.float32)
    counts, table = np.zeros((REQUESTS, classes + 1), np.int32), _table(128)
    given = (logits.ctypes.data, classes, table.ctypes.data, REQUESTS, len(logits), counts.ctypes.data)
    grid = (len(logits) * threads_a_row // 128, 1)
    return _run("count_votes_float32", grid, 128, struct.pack("PiPiqP", *given), source) / len(logits)


def _table(rows: int = ROWS) -> np.ndarray:
    ends = (np.arange(REQUESTS) + 1) * rows // REQUESTS
    return np.array([(slot, slot, 1, 0, end) for slot, end in enumerate(ends)], np.int64)


def _run(name: str, grid: tuple[int, int], threads: int, packed: bytes, source: Path | None) -> int:
    library = ptx.library(source) if source else ptx.library()
    library.instructions()
    size = library.launch(name.encode(), kernels._three(grid), kernels._three((threads, 1)), packed, None, None)
    assert size == len(packed)
    return int(library.instructions())


def lines() -> Iterator[str]:
    for name, family in FAMILIES.items():
        first, second = fill_instructions(family), fill_instructions(family, Lattice(2.0**-8))
        yield f"{name}: {first:.1f} instructions a value in noise stream 1, {second:.1f} in noise stream 2"
    for classes in (10, 1000):
        yield f"votes of {classes} classes: {count_instructions(classes):.0f} instructions of its warp a row"


if __name__ == "__main__":
    print(*lines(), sep="\n")
