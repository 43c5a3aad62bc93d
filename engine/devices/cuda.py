"""A GPU as a device. This module needs a binding for CUDA, so it is imported only when a GPU is opened."""

import math
from pathlib import Path

import numpy as np

from ars.engine.backends import load_gpu_runner
from ars.engine.gpu import Gpu
from ars.engine.lanes import Lane, Lanes
from ars.engine.lanes.cuda import CudaLane
from ars.engine.lattice import Lattice
from ars.engine.runners import GpuRunner
from ars.engine.samplers.cuda import CudaSampler
from ars.errors import ArgumentError, ModelError
from ars.noise import Family

__all__ = ["CudaDevice"]

# With two lanes, one batch waits on the GPU while the other is running. The shorter a batch is, the more of them must
# wait there to bridge the moments in which Python is late. By the seconds of a batch, which are at most:
_LANE_COUNTS = {0.001: 4, 0.002: 3, math.inf: 2}
_FEWEST_LANES = min(_LANE_COUNTS.values())
# For a model without a batch profile: a batch that is large enough to fill any GPU with small images, and the share of
# the free memory that the lanes' buffers may take, which leaves room for the model to work. There are more than two
# lanes only if each takes less than this share of the memory that the two have left.
_LARGEST_BATCH, _SHARE_OF_MEMORY = 1024, 0.25


class CudaDevice:
    def __init__(self, number: int, engine: Path, backend: str, lane_count: int | None) -> None:
        self.name, self._asked, self.lane_count = f"cuda:{number}", lane_count, lane_count or _FEWEST_LANES
        self._number, self._engine, self._backend = number, engine, backend
        self._opened: tuple[Gpu, GpuRunner] | None = None
        self._sha256: str | None = None
        self.runner: GpuRunner = self._open()[1]

    @property
    def least_batch(self) -> int:
        return self.runner.profile.min_batch if self.runner.profile else 1

    def describe(self) -> str:
        facts = self._open()[0].facts
        return f"{self.name}, {facts.model}, CUDA {facts.driver}, {self.lane_count} lanes"

    def choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        """The batch size that the model was built for, or less if that many rows for each lane do not fit in the free
        memory."""
        gpu, runner = self._open()
        wanted = runner.profile.opt_batch if runner.profile else _LARGEST_BATCH
        row = np.dtype(runner.image.dtype).itemsize * math.prod(shape) + 4 * (2 * runner.classes + 11)
        room = int(gpu.free_bytes() * _SHARE_OF_MEMORY / (row * self.lane_count))
        while wanted > max(room, self.least_batch):
            wanted = max(wanted // 2, self.least_batch)
        return wanted, None

    def make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        gpu, runner = self._open()
        if runner.profile and not runner.profile.min_batch <= batch <= runner.profile.max_batch:
            takes = f"{self._engine} takes batches of {runner.profile.min_batch} to {runner.profile.max_batch}"
            raise ArgumentError("batch", batch, takes)
        made: list[Lane] = []
        refused: list[str] = []
        wanted = self._asked or _FEWEST_LANES
        try:
            while len(made) < wanted:
                before = gpu.free_bytes()
                lane = CudaLane(gpu, runner, shape, batch)
                made.append(lane)
                lane.run(np.zeros((1, *shape), np.float32))
                refused += filter(None, [lane.try_capture()])
                after = gpu.free_bytes()
                if self._asked is None and len(made) == _FEWEST_LANES and before - after < after * _SHARE_OF_MEMORY:
                    seconds = lane.time_batch()
                    wanted = next(lanes for most, lanes in _LANE_COUNTS.items() if seconds <= most)
        except BaseException:
            for each in made:
                each.close()
            raise
        self.lane_count = len(made)
        why = f"{self.name}: {runner.name} cannot be part of a CUDA graph here ({refused[0]})" if refused else ""
        return Lanes(made, batch, [f"{why}; its kernels are launched one by one, with the same results"] if why else [])

    def make_sampler(
        self, slots: int, dimensions: int, family: Family, seed: int, lattice: Lattice | None = None
    ) -> CudaSampler:
        return CudaSampler(self._open()[0], slots, dimensions, family, seed, lattice=lattice)

    def close(self) -> None:
        if self._opened:
            gpu, runner = self._opened
            self._opened = None
            runner.close()
            gpu.close()

    def _open(self) -> tuple[Gpu, GpuRunner]:
        if self._opened is None:
            gpu = Gpu(self._number)
            try:
                runner = load_gpu_runner(self._engine, gpu, self._backend)
                if self._sha256 not in (None, runner.sha256):
                    raise ModelError(self._engine, "it changed since it was first loaded", "load it again")
                self._opened, self._sha256 = (gpu, runner), runner.sha256
            except BaseException:
                gpu.close()
                raise
        return self._opened
