"""The sampler on a GPU: noise and votes are computed by the project's kernels (engine/native/kernels.cu)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ars.engine.gpu import Gpu, Launch, Workspace
from ars.engine.lattice import Lattice
from ars.engine.requests import Request
from ars.engine.samplers import Sampler
from ars.noise import Family

__all__ = ["CudaSampler"]

_FILL_THREADS, _COUNT_THREADS, _MOST_GRID_ROWS = 256, 128, 65535
_WARP = 32  # the threads that count a row


class CudaSampler(Sampler):
    """The slots of a run, in a GPU's memory. An input is copied there once; after that, only requests are copied to the
    GPU, and only counts are copied back."""

    def __init__(
        self, gpu: Gpu, slots: int, dimensions: int, family: Family, seed: int, *, lattice: Lattice | None = None
    ) -> None:
        super().__init__(slots, dimensions, family, seed, lattice=lattice)
        self._space = Workspace(gpu)
        with self._space.filling():
            self._staging = [self._space.pinned((self.dimensions,), kind) for kind in self.table_types]
            self._tables = [self._space.memory(self.slots * row.nbytes) for row in self._staging]

    def put(self, slot: int, rows: Sequence[NDArray[np.floating]]) -> None:
        with self._space.queueing():
            for table, staged, row in zip(self._tables, self._staging, rows, strict=True):
                staged[:] = row
                self._space.upload(table + slot * staged.nbytes, staged)
            self._space.wait()

    def end_rows(self, requests: Sequence[Request]) -> NDArray[np.int64]:
        """The table of requests as the kernels read it: its last column is the row after the request's last one,
        instead of the number of its draws."""
        table, _ = self.table(requests)
        np.cumsum(table[:, 4], out=table[:, 4])
        return table

    def fill(self, out: int, dtype: str, table: int, requests: int, rows: int) -> Launch:
        """The launch of the kernel that writes the noisy copies of this many requests to `out`. `table` is the address
        of their table."""
        blocks = -(-self.dimensions // 4)
        threads = min(_FILL_THREADS, -(-blocks // 32) * 32)
        grid = (-(-blocks // threads), min(rows, _MOST_GRID_ROWS))
        where = (out, table, requests, rows, *self._tables)
        noise = (self.dimensions, self.family.code, self.seed)
        kernel = "fill_stretched" if self.family.stretched else "fill"
        if self.lattice:
            return Launch(f"{kernel}_lattice_{dtype}", grid, threads, (*where, self.lattice.step, *noise))
        return Launch(f"{kernel}_noisy_{dtype}", grid, threads, (*where, *noise))

    def count(self, logits: int, dtype: str, classes: int, table: int, requests: int, rows: int, counts: int) -> Launch:
        """The launch of the kernel that adds the votes to `counts`, an int32 array of zeros with a row for each request
        and classes + 1 columns."""
        grid = (-(-rows * _WARP // _COUNT_THREADS), 1)
        where = (logits, classes, table, requests, rows, counts)
        return Launch(f"count_votes_{dtype}", grid, _COUNT_THREADS, where)

    def close(self) -> None:
        self._space.close()
