"""Lanes on the processor: each has a buffer in ordinary memory and uses one core."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ars.engine.devices.host import Host
from ars.engine.lanes import Lanes
from ars.engine.requests import Request
from ars.engine.runners import Runner

__all__ = ["HostLane", "host_lanes"]


class HostLane:
    """A buffer on the host, and a runner that many lanes share."""

    def __init__(self, runner: Runner, shape: tuple[int, ...], batch: int) -> None:
        self._runner = runner
        self._buffer = np.empty((batch, *shape), np.float32)

    def votes(self, device: Host, requests: Sequence[Request]) -> NDArray[np.int64]:
        copies = self._buffer[: sum(request.draws for request in requests)]
        device.fill(copies, requests)
        return device.count(self._runner.run(copies), requests)

    def run(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._runner.run(batch)

    def close(self) -> None:
        return


def host_lanes(runner: Runner, shape: tuple[int, ...], batch: int, lanes: int) -> Lanes:
    """Lanes on the processor: one core each."""
    return Lanes([HostLane(runner, shape, batch) for _ in range(lanes)], batch)
