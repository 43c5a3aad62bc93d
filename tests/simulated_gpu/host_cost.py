"""What the host spends on a batch: the project's lanes and samplers, on a driver whose kernels compute nothing, with a
model that does nothing. `PYTHONPATH=tests python -m simulated_gpu.host_cost` prints it, the best of interleaved rounds,
which other work on the machine disturbs least."""

import itertools
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, wait
from contextlib import ExitStack, contextmanager

import numpy as np

from ars.engine import samplers
from ars.engine.lanes import Lanes
from ars.engine.requests import Phase, Request
from ars.engine.runners import Port
from ars.noise import GAUSSIAN
from simulated_gpu import installed
from simulated_gpu.machine import Machine

SHAPE, BATCH, SLOTS, ROUNDS, REPEATS, SECONDS = (3, 32, 32), 512, 64, 60, 50, 0.5


class _NoModel:
    classes, capturable = 10, True
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


def calls_of_a_batch(machine: Machine, inputs: int, graph: bool) -> Counter[str]:
    """The calls of CUDA's driver that a batch makes, without those of its model unless they are in its graph."""
    with lane_and_sampler() as (lane, sampler):
        lane.captures &= graph
        for _ in range(2 * graph):  # the second makes the graph
            lane.votes(sampler, requests_of(inputs))
        machine.calls.clear()
        lane.votes(sampler, requests_of(inputs))
        return Counter(machine.calls)


def busy_share(machine: Machine, lane_count: int, microseconds: int) -> float:
    """The share of the time in which the GPU has a batch, if each takes it so long."""
    from ars.engine.lanes.cuda import CudaLane

    with lane_and_sampler() as (first, sampler), ExitStack() as owned:
        more = [CudaLane(first._gpu, _NoModel(), SHAPE, BATCH) for _ in range(lane_count - 1)]
        lanes = Lanes([first, *more], BATCH)
        owned.callback(lanes.close)
        requests, batches, flying = requests_of(4), 0, set()
        machine.idle(microseconds)
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < SECONDS:
            flying |= {lanes.submit(sampler, requests) for _ in range(2 * lane_count - len(flying))}
            done, flying = wait(flying, return_when=FIRST_COMPLETED)
            batches += len(done)
        wait(flying)
        return batches * microseconds / 1e6 / elapsed


def main() -> None:
    with installed() as machine:
        for inputs, graph in itertools.product((1, SLOTS), (False, True)):
            calls = calls_of_a_batch(machine, inputs, graph)
            launches = calls["cuLaunchKernel"] + calls["cuGraphLaunch"]
            how = "as a graph" if graph else "step by step"
            print(f"{inputs} requests, {how}: {calls.total()} calls of the driver, {launches} launches")
        machine.idle()
        with lane_and_sampler() as (lane, sampler):
            can = lane.captures
            ways = {"checked one by one": (BATCH + 1, False), "checked at once": (6, False), "as a graph": (6, can)}
            for inputs in (1, SLOTS):
                requests, times = requests_of(inputs), {way: [] for way in ways}
                for _ in range(ROUNDS):
                    for way, (samplers._MANY, lane.captures) in ways.items():
                        start = time.perf_counter()
                        for _ in range(REPEATS):
                            lane.votes(sampler, requests)
                        times[way].append((time.perf_counter() - start) / REPEATS)
                for way, seconds in times.items():
                    print(f"{inputs} requests, {way}: {1e6 * min(seconds):.0f} us a batch")
        for microseconds in (250, 500, 1000, 2000, 4000):
            shares: dict[int, list[float]] = {lane_count: [] for lane_count in (1, 2, 3, 4)}
            for _ in range(ROUNDS // 10):
                for lane_count, found in shares.items():
                    found.append(busy_share(machine, lane_count, microseconds))
            said = ", ".join(f"{max(found):.0%} with {count} lanes" for count, found in shares.items())
            print(f"batches of {microseconds / 1000} ms: the GPU is busy for {said}")


if __name__ == "__main__":
    main()
