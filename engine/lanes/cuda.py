"""A lane on a GPU: a CUDA stream, and buffers for a batch, its logits and its counts in the GPU's memory.

The requests are copied to the GPU and the counts are copied back. Nothing else moves between host and GPU, however
large an input is, except for the batches whose rows are run again (engine/row_check.py). The lane queues all steps of a
batch at once and then sleeps until the counts have arrived. While the batch of one lane runs, the batch of the other
waits on the GPU, not in Python.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ars.engine.gpu import Gpu, Workspace
from ars.engine.requests import Request
from ars.engine.runners import GpuRunner
from ars.engine.samplers.cuda import CudaSampler
from ars.errors import ArgumentError

__all__ = ["CudaLane"]


class CudaLane:
    """Every batch that runs has the full shape, so that the model is set up once. Rows beyond the requests are not
    counted."""

    def __init__(self, gpu: Gpu, runner: GpuRunner, shape: tuple[int, ...], batch: int) -> None:
        self._classes, self._batch, self.row_cost, self.fixed = runner.classes, batch, batch, False
        self._shape = (batch, *shape)
        self._image_type, self._logit_type = np.dtype(runner.image.dtype), np.dtype(runner.logits.dtype)
        self._space = space = Workspace(gpu)
        with space.filling():
            self._image_words = -(-math.prod(self._shape) * self._image_type.itemsize // 4)
            self._images = space.memory(4 * self._image_words)
            self._logits = space.memory(batch * self._classes * self._logit_type.itemsize)
            self._table = space.memory(5 * 8 * batch)
            self._counts = space.memory(4 * (self._classes + 1) * batch)
            self._host_table = space.pinned((batch, 5), np.int64)
            self._host_counts = space.pinned((batch, self._classes + 1), np.int32)
            self._infer = space.enter(runner.bind(space.handle, self._shape, self._images, self._logits))

    def votes(self, sampler: CudaSampler, requests: Sequence[Request]) -> NDArray[np.int64]:
        table = sampler.end_rows(requests)
        number, columns = len(table), self._classes + 1
        rows = int(table[-1, 4]) if number else 0
        if max(rows, number) > self._batch:
            raise ArgumentError("requests", f"{number} for {rows} rows", f"this lane has batches of {self._batch}")
        if rows == 0:
            return np.zeros((number, columns), np.int64)
        self._host_table[:number], self._rows = table, rows
        space, where = self._space, (self._table, number, rows)
        with space.queueing():
            space.upload(self._table, self._host_table[:number])
            space.zero(self._counts, number * columns)
            sampler.fill(space, self._images, self._image_type.name, *where)
            self._infer()
            sampler.count(space, self._logits, self._logit_type.name, self._classes, *where, self._counts)
            space.download(self._host_counts[:number], self._counts)
            space.wait()
        return self._host_counts[:number].astype(np.int64)

    def last_batch(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        copies = np.empty((self._rows, *self._shape[1:]), self._image_type)
        logits = np.empty((self._rows, self._classes), self._logit_type)
        with self._space.queueing():
            self._space.download(copies, self._images)
            self._space.download(logits, self._logits)
            self._space.wait()
        return copies.astype(np.float32, copy=False), logits.astype(np.float32, copy=False)

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        """The logits for rows in the host's memory. This is for checks, and not fast."""
        logits = np.empty((len(batch), self._classes), np.float32)
        for first in range(0, len(batch), self._batch):
            rows = np.ascontiguousarray(batch[first : first + self._batch], self._image_type)
            out = np.empty((len(rows), self._classes), self._logit_type)
            with self._space.queueing():
                self._space.zero(self._images, self._image_words)
                self._space.upload(self._images, rows)
                self._infer()
                self._space.download(out, self._logits)
                self._space.wait()
            logits[first : first + len(rows)] = out
        return logits

    def close(self) -> None:
        self._infer = _closed
        self._space.close()


def _closed() -> None:
    raise RuntimeError("this lane is closed")
