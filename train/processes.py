"""Where a run computes: its device, its threads, and the other processes that `torchrun` started."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ars.errors import ArgumentError, UnknownName

__all__ = ["Place", "choose_device", "choose_precision", "fixed_threads", "is_first", "joined"]


def choose_device(name: str) -> torch.device:
    """The device that `name` (auto, cpu or cuda) means. Each process of torchrun gets its own GPU."""
    if name not in ("auto", "cpu", "cuda"):
        raise UnknownName("device", name, ("auto", "cpu", "cuda"))
    if name == "cuda" and not torch.cuda.is_available():
        raise ArgumentError("device", name, "torch finds no CUDA GPU here; use --device cpu")
    if name == "cpu" or not torch.cuda.is_available():
        return torch.device("cpu")
    number, local = torch.cuda.device_count(), int(os.environ.get("LOCAL_RANK", "0"))
    if local >= number:
        raise ArgumentError("device", name, f"there are more processes than GPUs ({number}); start one process per GPU")
    torch.cuda.set_device(local)
    return torch.device("cuda", local)


def choose_precision(name: str, device: torch.device) -> str:
    """The precision that `name` means on this device. `auto` is fp16 on a GPU, bf16 on a processor that has
    instructions for it, and fp32 elsewhere."""
    if name == "fp16" and device.type == "cpu":
        raise ArgumentError("precision", name, "fp16 is for GPUs; use bf16 or fp32")
    if name != "auto":
        return name
    if device.type == "cuda":
        return "fp16"
    capabilities = torch.cpu.get_capabilities()
    return "bf16" if any(capabilities.get(one) for one in ("avx512_bf16", "amx_bf16", "bf16")) else "fp32"


def is_first() -> bool:
    """Whether this process is the one that prints messages and writes files."""
    return os.environ.get("RANK", "0") == "0"


class _Pin:
    """The state of `fixed_threads`: how many callers are inside it, and torch's number of threads before the first."""

    def __init__(self) -> None:
        self.lock, self.callers, self.before = threading.Lock(), 0, 1


_pin = _Pin()


@contextmanager
def fixed_threads(number: int) -> Iterator[None]:
    """Let torch compute with this many threads inside this context.

    The number of threads determines the order of torch's sums, and so the last bits of the results. It is a setting of
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
        """This process's images of a batch; the parts of two processes differ by at most one image."""
        return slice(self.rank * batch // self.world, (self.rank + 1) * batch // self.world)

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model, with gradients averaged over the processes.

        On CUDA, batch normalisation uses the statistics of the whole batch, as in a single process. torch cannot do
        that on CPUs: there each process normalises its own part, and the first one's running statistics are kept.
        """
        if self.world == 1:
            return model
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        return DistributedDataParallel(model)

    def weight(self, images: int, batch: int) -> float:
        """The factor that turns the average over processes into the average over images: a process's loss is the mean
        over its own images, and the parts may differ in size."""
        return images * self.world / batch

    def average(self, values: Tensor) -> Tensor:
        """The average of the values over all processes."""
        if self.world > 1:
            distributed.all_reduce(values)
        return values / self.world


@contextmanager
def joined(device: torch.device) -> Iterator[Place]:
    """Join the process group of torchrun, and leave it at the end.

    The caller must drop the wrapped model before the end: the model holds a reference to the group, and nothing may
    outlive the group's destruction. Otherwise threads of the group may abort the process while it exits, or one
    process may wait forever for another. After an error the traceback may still hold the model; the group is then not
    destroyed here, and torchrun ends all processes.
    """
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1:
        yield Place()
        return
    # DistributedDataParallel imports this module, whose functions take the current group as a default argument.
    # Imported only after the group exists, the module would keep it alive.
    import torch.distributed.nn  # noqa: F401

    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    yield Place(distributed.get_rank(), world)
    distributed.destroy_process_group()
