"""A lane on a GPU: a CUDA stream, and buffers for a batch, its logits and its counts in the GPU's memory.

The requests are copied to the GPU and the counts are copied back. Nothing else moves between host and GPU, however
large an input is, except for the batches whose rows are run again (engine/row_check.py). The lane queues all steps of a
batch at once, as one CUDA graph if that is possible, and then sleeps until the counts have arrived. While the batch of
one lane runs, the batch of another waits on the GPU, not in Python.
"""

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from ars.engine.gpu import Gpu, Launch, Workspace
from ars.engine.lanes.graphs import Graphs
from ars.engine.requests import Request
from ars.engine.runners import GpuRunner
from ars.engine.samplers.cuda import CudaSampler
from ars.errors import ArgumentError, DeviceError, OutOfMemory, RunError, one_line

__all__ = ["CudaLane"]

_NOT_A_NUMBER = 0xFFFFFFFF  # as a float32, and as two of float16


class CudaLane:
    """Every batch that runs has the full shape, so that the model is set up once. Rows beyond the requests are not
    counted.

    A full batch is launched as one CUDA graph if `captures`, from the third like it on.
    """

    def __init__(self, gpu: Gpu, runner: GpuRunner, shape: tuple[int, ...], batch: int) -> None:
        self._gpu, self._classes, self._batch = gpu, runner.classes, batch
        self.row_cost, self.fixed = batch, False
        self._shape = (batch, *shape)
        self._image_type, self._logit_type = np.dtype(runner.image.dtype), np.dtype(runner.logits.dtype)
        self._space = space = Workspace(gpu)
        with space.filling():
            self._image_words = -(-math.prod(self._shape) * self._image_type.itemsize // 4)
            self._logit_words = -(-batch * self._classes * self._logit_type.itemsize // 4)
            self._images = space.memory(4 * self._image_words)
            self._logits = space.memory(4 * self._logit_words)
            self._table = space.memory(5 * 8 * batch)
            self._counts = space.memory(4 * (self._classes + 1) * batch)
            self._host_table = space.pinned((batch, 5), np.int64)
            self._host_counts = space.pinned((batch, self._classes + 1), np.int32)
            self._infer = space.enter(runner.bind(space.handle, self._shape, self._images, self._logits))
            self._graphs = space.enter(Graphs(space))
        self.captures = gpu.has_graphs and runner.capturable
        """Whether the model can be part of a CUDA graph."""

    def votes(self, sampler: CudaSampler, requests: Sequence[Request]) -> NDArray[np.int64]:
        table = sampler.end_rows(requests)
        number, columns = len(table), self._classes + 1
        rows = int(table[-1, 4]) if number else 0
        if max(rows, number) > self._batch:
            raise ArgumentError("requests", f"{number} for {rows} rows", f"this lane has batches of {self._batch}")
        if rows == 0:
            return np.zeros((number, columns), np.int64)
        self._host_table[:number], self._rows = table, rows
        whole = self.captures and rows == self._batch
        if whole:
            # Empty requests at the end, which no row belongs to, let batches with about as many requests share a graph.
            padded = min(1 << (number - 1).bit_length(), self._batch)
            self._host_table[number:padded] = 0, 0, 0, 0, rows
        else:
            padded = number
        space, where = self._space, (self._table, padded, rows)
        fill = sampler.fill(self._images, self._image_type.name, *where)
        count = sampler.count(self._logits, self._logit_type.name, self._classes, *where, self._counts)

        def queue() -> None:
            space.upload(self._table, self._host_table[:padded])
            space.set_words(self._counts, 0, padded * columns)
            space.launch(fill)
            self._infer()
            space.launch(count)
            space.download(self._host_counts[:padded], self._counts)

        graph = self._graphs.find((fill, count)) if whole else None
        with space.queueing():
            if graph is None:
                queue()
            else:
                space.launch_graph(graph)
            space.wait()
            seen_before = whole and graph is None and self._graphs.is_worth_capturing((fill, count))
        votes = self._host_counts[:number].astype(np.int64)
        if seen_before:
            self._capture((fill, count), queue, votes)
        return votes

    def _capture(self, steps: tuple[Launch, ...], queue: Callable[[], None], votes: NDArray[np.int64]) -> None:
        """Make a graph of a batch that was just launched step by step. Its first launch must give the same votes."""
        space = self._space
        try:
            with space.queueing():
                graph = self._graphs.capture(steps, queue)
                self._host_counts[:] = -1
                space.set_words(self._logits, _NOT_A_NUMBER, self._logit_words)
                space.launch_graph(graph)
                space.wait()
        except OutOfMemory:  # a graph takes memory that its steps do not need
            self.captures = False
            return
        if not np.array_equal(self._host_counts[: len(votes)], votes):
            self.captures = False
            what = "does not give the votes of the steps that it consists of"
            raise DeviceError(
                f"{self._gpu.name}: a CUDA graph {what}; check it with ars-engine selftest, and report this"
            )

    def try_capture(self) -> str | None:
        """Find out whether the model can be part of a CUDA graph, once it has run. If it cannot be captured, or does
        not give the same logits then, every batch is launched step by step, and the reason is returned."""
        if not self.captures:
            return None
        space, logits = self._space, np.empty((2, 4 * self._logit_words), np.uint8)
        try:
            with space.queueing():
                self._infer()
                space.download(logits[0], self._logits)
                with closing(space.capture(self._infer)) as graph:
                    space.set_words(self._logits, _NOT_A_NUMBER, self._logit_words)
                    space.launch_graph(graph)
                    space.download(logits[1], self._logits)
                    space.wait()
            reason = None if np.array_equal(*logits) else "it gives other logits then"
        except RunError as error:
            reason = one_line(error.__cause__ or error)
        self.captures = reason is None
        return reason

    def time_batch(self) -> float:
        """The seconds that the model takes for a batch: the shortest of a few."""
        found = []
        for _ in range(3):
            start = time.perf_counter()
            with self._space.queueing():
                self._infer()
                self._space.wait()
            found.append(time.perf_counter() - start)
        return min(found)

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
                self._space.set_words(self._images, 0, self._image_words)
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
