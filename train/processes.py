"""Where a run computes: its device, its threads, and the other processes that `torchrun` started with it."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ars.errors import ArgumentError, UnknownName

__all__ = ["Place", "choose_device", "fixed_threads", "is_first", "joined"]


def choose_device(name: str) -> torch.device:
    """The device of that name: auto, cpu or cuda. Each process of torchrun has a GPU of its own."""
    if name not in ("auto", "cpu", "cuda"):
        raise UnknownName("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device", name, "torch finds no CUDA GPU here; use --device cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, local = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    if local >= number:
        raise ArgumentError("device", name, f"there are more processes than the {number} GPUs here; start one for each")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def is_first() -> bool:
    """Whether this process is the one that speaks and writes files."""
    return os.environ.get("RANK", "0") == "0"


class _Pin:
    """The state of `fixed_threads`: how many callers are inside it, and torch's number of threads before the first."""

    def __init__(self) -> None:
        self.lock, self.callers, self.before = threading.Lock(), 0, 1


_pin = _Pin()


@contextmanager
def fixed_threads(number: int) -> Iterator[None]:
    """torch computes with so many threads inside this context.

    The number of threads decides the order of torch's sums, and so the last bits of their results. It is a setting of
    the whole process: several Python threads may be inside the context at once, and the last one to leave restores it.
    """
    with _pin.lock:
        if _pin.callers == 0:
            _pin.before = torch.get_num_threads()
        _pin.callers += 1
        torch.set_num_threads(number)
    try:
        yield
    finally:
        with _pin.lock:
            _pin.callers -= 1
            if _pin.callers == 0:
                torch.set_num_threads(_pin.before)


@dataclass(frozen=True)
class Place:
    """This process among those that train one model."""

    rank: int = 0
    world: int = 1

    def part(self, batch: int) -> slice:
        """Its images of a batch; two processes have equally many, or one has one more."""
        return slice(self.rank * batch // self.world, (self.rank + 1) * batch // self.world)

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model with gradients that are averaged over the processes.

        On CUDA, batch normalisation takes its statistics from the whole batch, as one process would. On a CPU torch
        cannot do that: each process normalises by its own part, and the first one's running statistics are kept.
        """
        if self.world == 1:
            return model
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return DistributedDataParallel(model)

    def weight(self, images: int, batch: int) -> float:
        """What a loss, a mean over this process's images, counts in the average over the processes."""
        return images * self.world / batch

    def average(self, values: Tensor) -> Tensor:
        """The average of the processes' values."""
        if self.world > 1:
            distributed.all_reduce(values)
        return values / self.world


@contextmanager
def joined(device: torch.device) -> Iterator[Place]:
    """Join the processes that torchrun started, and leave them in the end.

    What was wrapped must be dropped before the end. It holds the group, and the group's threads may abort a process
    that ends while they run, or wait for good for one that ends them too late: the group must be the last to go. After
    an error what was wrapped may still be held by the traceback, so the processes are left to torchrun, which ends all.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Place()
        return
    # DistributedDataParallel imports this, and its functions have the group of the time as a default: imported later,
    # it would hold the group for good.
    import torch.distributed.nn  # noqa: F401

    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield Place(distributed.get_rank(), world)
    distributed.destroy_process_group()
