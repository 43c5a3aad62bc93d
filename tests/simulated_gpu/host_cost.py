"""What the host spends on a batch: the project's lanes and samplers, on a driver whose kernels compute nothing, with a
model that does nothing. `PYTHONPATH=tests python -m simulated_gpu.host_cost` prints it."""

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from ars.engine import samplers
from ars.engine.requests import Phase, Request
from ars.engine.runners import Port
from ars.noise import GAUSSIAN
from simulated_gpu import installed
from simulated_gpu.machine import Machine

SHAPE, BATCH, SLOTS, ROUNDS, REPEATS = (3, 32, 32), 512, 64, 60, 50


class _NoModel:
    classes = 10
    image, logits = Port("x", "float16", (None, *SHAPE)), Port("y", "float32", (None, 10))

    @contextmanager
    def bind(self, *buffers: object) -> Iterator[object]:
        yield lambda: None


@contextmanager
def lane_and_sampler() -> Iterator[tuple[object, object]]:
    """A lane without a model, and a sampler all of whose slots are full."""
    from ars.engine.gpu import Gpu
    from ars.engine.lanes.cuda import CudaLane
    from ars.engine.samplers.cuda import CudaSampler

    gpu = Gpu(0)
    lane, sampler = CudaLane(gpu, _NoModel(), SHAPE, BATCH), CudaSampler(gpu, SLOTS, 3072, GAUSSIAN, 1)
    for slot in range(SLOTS):
        sampler.load(slot, np.zeros(SHAPE, np.float32), 0, 0.25)
    try:
        yield lane, sampler
    finally:
        sampler.close()
        lane.close()
        gpu.close()


def requests_of(inputs: int) -> list[Request]:
    """A full batch that this many inputs share."""
    return [Request(slot, slot, Phase.ESTIMATION, 0, BATCH // inputs) for slot in range(inputs)]


def calls_of_a_batch(machine: Machine, inputs: int) -> Counter[str]:
    """The calls of CUDA's driver that a batch makes, without those of its model."""
    with lane_and_sampler() as (lane, sampler):
        machine.calls.clear()
        lane.votes(sampler, requests_of(inputs))
        return Counter(machine.calls)


def main() -> None:
    with installed() as machine:
        for inputs in (1, SLOTS):
            calls = calls_of_a_batch(machine, inputs)
            print(f"{inputs} requests: {calls.total()} calls of the driver, {calls['cuLaunchKernel']} launches")
        machine.idle()
        with lane_and_sampler() as (lane, sampler):
            for inputs in (1, SLOTS):
                requests, times = requests_of(inputs), {True: [], False: []}
                for _ in range(ROUNDS):
                    for at_once, seconds in times.items():
                        samplers._MANY = 6 if at_once else BATCH + 1
                        start = time.perf_counter()
                        for _ in range(REPEATS):
                            lane.votes(sampler, requests)
                        seconds.append((time.perf_counter() - start) / REPEATS)
                before, after = (1e6 * statistics.median(times[at_once]) for at_once in (False, True))
                print(f"{inputs} requests: {before:.0f} us a batch if checked one by one, {after:.0f} us as it is")


if __name__ == "__main__":
    main()
