"""The sampler on a GPU: noise and votes are computed by the project's kernels (engine/native/kernels.cu)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ars.engine.gpu import Gpu, Workspace
from ars.engine.requests import Request
from ars.engine.samplers import Sampler
from ars.noise import Family

__all__ = ["CudaSampler"]

_FILL_THREADS, _COUNT_THREADS, _MOST_GRID_ROWS = 256, 128, 65535


class CudaSampler(Sampler):
    """The slots of a run, in a GPU's memory. An input is copied there once; after that, only requests are copied to the
    GPU, and only counts are copied back."""

    def __init__(self, gpu: Gpu, slots: int, dimensions: int, family: Family, seed: int) -> None:
        super().__init__(slots, dimensions, family, seed)
        self._gpu = gpu
        self._space = Workspace(gpu)
        with self._space.filling():
            self._staging = self._space.pinned((2, self.dimensions), np.float32)
            self._center, self._scale = (self._space.memory(4 * self.slots * self.dimensions) for _ in range(2))

    def put(self, slot: int, center: NDArray[np.float32], scale: NDArray[np.float32]) -> None:
        self._staging[0], self._staging[1] = center, scale
        offset = 4 * slot * self.dimensions
        with self._space.queueing():
            self._space.upload(self._center + offset, self._staging[0])
            self._space.upload(self._scale + offset, self._staging[1])
            self._space.wait()

    def end_rows(self, requests: Sequence[Request]) -> NDArray[np.int64]:
        """The table of requests as the kernels read it: its last column is the row after the request's last one,
        instead of the number of its draws."""
        table, _ = self.table(requests)
        np.cumsum(table[:, 4], out=table[:, 4])
        return table

    def fill(self, stream: Any, out: int, dtype: str, table: int, requests: int, rows: int) -> None:
        """Queue the kernel that writes the noisy copies of so many requests to `out`. `table` is the address of their
        table."""
        blocks = -(-self.dimensions // 4)
        threads = min(_FILL_THREADS, -(-blocks // 32) * 32)
        grid = (-(-blocks // threads), min(rows, _MOST_GRID_ROWS))
        where = (out, table, requests, rows, self._center, self._scale)
        noise = (self.dimensions, self.family.code, self.seed)
        self._gpu.launch(f"fill_noisy_{dtype}", grid, threads, stream, *where, *noise)

    def count(
        self, stream: Any, logits: int, dtype: str, classes: int, table: int, requests: int, rows: int, counts: int
    ) -> None:
        """Queue the kernel that adds the votes to `counts`, an int32 array of zeros with a row for each request and
        classes + 1 columns."""
        grid = (-(-rows // _COUNT_THREADS), 1)
        where = (logits, classes, table, requests, rows, counts)
        self._gpu.launch(f"count_votes_{dtype}", grid, _COUNT_THREADS, stream, *where)

    def close(self) -> None:
        self._space.close()
