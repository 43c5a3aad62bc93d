"""The CPU as a device: each lane uses one core."""

import math

from ars.engine.batch_size import find_best_batch
from ars.engine.devices import CPU
from ars.engine.lanes import Lanes
from ars.engine.lanes.host import host_lanes
from ars.engine.lattice import Lattice
from ars.engine.runners import CpuRunner
from ars.engine.samplers.host import HostSampler
from ars.noise import GAUSSIAN, Family

__all__ = ["CpuDevice"]


class CpuDevice:
    name, least_batch = CPU, 1

    def __init__(self, runner: CpuRunner) -> None:
        self.runner, self.lane_count = runner, runner.lane_count

    def describe(self) -> str:
        return f"{CPU}, {self.lane_count} lanes"

    def choose_batch(self, shape: tuple[int, ...]) -> tuple[int, float | None]:
        sampler = self.make_sampler(1, math.prod(shape), GAUSSIAN, 0)
        return find_best_batch(lambda batch: self.make_lanes(shape, batch), sampler, shape)

    def make_lanes(self, shape: tuple[int, ...], batch: int) -> Lanes:
        fixed = self.runner.fixed_batch or 1
        row_cost = max(fixed, self.runner.single_row_cost)
        return host_lanes(self.runner.run, shape, batch, self.lane_count, row_cost, fixed=fixed > 1)

    def make_sampler(
        self, slots: int, dimensions: int, family: Family, seed: int, lattice: Lattice | None = None
    ) -> HostSampler:
        return HostSampler(slots, dimensions, family, seed, lattice=lattice)

    def close(self) -> None:
        return
