"""The training loop: epochs of batches under noise, with a checkpoint and a line of metrics after each."""

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from scipy.special import ndtri
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from ars.errors import ArgumentError, RunError, UnknownName
from ars.noise import Family, family_named
from ars.train.batches import Augmentation, Images
from ars.train.model_file import ModelSettings, write_model_file
from ars.train.smoothing import SmoothedModel, standard_noise

__all__ = ["EpochMetrics", "TrainingPlan", "train"]

OPTIMIZERS = ("adamw", "sgd")
# How many validation images a model.pt carries.
EXAMPLES = 128
SCHEDULES = ("cosine", "step", "constant")


@dataclass(frozen=True)
class TrainingPlan:
    """How to train. The weights are those of the smoothing, variance and mean loss."""

    epochs: int = 10
    batch: int = 128
    draws: int = 5
    learning_rate: float = 1e-3
    optimizer: str = "adamw"
    schedule: str = "cosine"
    weights: tuple[float, float, float] = (1.0, 1.0, 0.01)
    shift: int = 0
    flip: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("batch", self.batch), ("draws", self.draws)):
            if value < 1:
                raise ArgumentError(name, value, "it must be at least 1")
        if not 0 < self.learning_rate < math.inf:
            raise ArgumentError("lr", self.learning_rate, "it must be positive and finite")
        for what, name, known in (("optimizer", self.optimizer, OPTIMIZERS), ("schedule", self.schedule, SCHEDULES)):
            if name not in known:
                raise UnknownName(what, name, known)


@dataclass(frozen=True)
class EpochMetrics:
    epoch: int
    loss: float
    smoothing: float
    variance: float
    mean: float
    accuracy: float
    """On the validation images, under noise."""
    radius: float
    """An estimate of the average certified radius there, from few draws and without confidence bounds."""
    sigma_min: float
    mean_norm: float
    seconds: float


def train(
    model: SmoothedModel,
    settings: ModelSettings,
    plan: TrainingPlan,
    images: Images,
    validation: Images,
    out: Path,
    device: torch.device,
    state: dict[str, Any] | None = None,
    on_step: Callable[[int, int, float], None] = lambda done, total, loss: None,
) -> Iterator[EpochMetrics]:
    """Train, and write `out` after each epoch. With `state`, go on where a checkpoint stopped.

    Order, augmentation and noise of an epoch come from seed and epoch alone, so a run that goes on from a checkpoint
    ends with the weights of one that was never stopped (on a CPU).
    """
    family, (rank, world) = family_named(settings.family), _place()
    model.to(device)
    wrapped: nn.Module = DistributedDataParallel(model) if world > 1 else model
    steps_an_epoch = len(images) // plan.batch
    if steps_an_epoch == 0:
        raise ArgumentError("batch", plan.batch, f"there are only {len(images)} images to train on")
    optimizer, schedule = _optimizer(model, plan, plan.epochs * steps_an_epoch)
    first = 0
    if state is not None:
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        first = int(state["epoch"])
    for epoch in range(first, plan.epochs):
        start = time.perf_counter()
        generator = torch.Generator().manual_seed(plan.seed * 2**20 + epoch)
        wrapped.train()
        sums = torch.zeros(4)
        batches = images.batches(plan.batch, Augmentation(plan.shift, plan.flip), generator)
        for step, (x, labels) in enumerate(batches, epoch * steps_an_epoch + 1):
            z = standard_noise(family, x, plan.draws, generator)
            part = slice(rank * len(x) // world, (rank + 1) * len(x) // world)  # the same batch, shared out
            losses = _step(wrapped, optimizer, plan, x[part].to(device), labels[part].to(device), z[:, part].to(device))
            schedule.step()
            sums += losses
            on_step(step, plan.epochs * steps_an_epoch, float(losses[0]))
            if not torch.isfinite(sums).all():
                kept = f"{out} holds epoch {epoch}" if epoch else "nothing was written"
                raise RunError(f"the loss is not finite in epoch {epoch + 1}; {kept}; try a smaller --lr")
        loss, smoothing, variance, mean = (sums / steps_an_epoch).tolist()
        scores = _validate(model, family, validation, device)
        seconds = time.perf_counter() - start
        metrics = EpochMetrics(epoch + 1, loss, smoothing, variance, mean, **scores, seconds=seconds)
        if rank == 0:
            done = epoch + 1 == plan.epochs
            progress = {"epoch": epoch + 1, "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict()}
            record = {"plan": asdict(plan), "metrics": asdict(metrics)}
            examples = validation.spread(EXAMPLES)
            write_model_file(out, settings, model, record, examples, None if done else progress)
            with out.with_suffix(".metrics.jsonl").open("a" if epoch else "w") as file:
                file.write(json.dumps(asdict(metrics)) + "\n")
        yield metrics


def _place() -> tuple[int, int]:
    """This process's rank, and how many there are (torchrun)."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        return 0, 1
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def _optimizer(
    model: nn.Module, plan: TrainingPlan, total: int
) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]:
    if plan.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = torch.optim.SGD(
            model.parameters(), plan.learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
    else:
        optimizer = torch.optim.AdamW(model.parameters(), plan.learning_rate, weight_decay=1e-4)

    def factor(step: int) -> float:
        if plan.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * min(step, total) / total))
        if plan.schedule == "step":  # a tenth after each third
            return 0.1 ** (3 * step // total)
        return 1.0

    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _step(
    model: nn.Module, optimizer: torch.optim.Optimizer, plan: TrainingPlan, x: Tensor, labels: Tensor, z: Tensor
) -> Tensor:
    """One step of the optimizer; the losses, for the record."""
    if x.is_cuda:
        x = x.contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", enabled=x.is_cuda):
        losses = model(x, labels, z)
        total = losses.total(plan.weights)
    optimizer.zero_grad()
    total.backward()
    optimizer.step()
    return torch.stack([total, losses.smoothing, losses.variance, losses.mean]).detach().float().cpu()


@torch.no_grad()
def _validate(model: SmoothedModel, family: Family, images: Images, device: torch.device) -> dict[str, float]:
    """How the model does under noise: 16 draws of each validation image."""
    model.eval()
    draws, generator = 16, torch.Generator().manual_seed(0)
    right, radii, smallest, norms = 0.0, 0.0, 0.0, 0.0
    for x, labels in zip(images.x.split(64), images.labels.split(64), strict=True):
        z = standard_noise(family, x, draws, generator).to(device)
        x, labels = x.to(device), labels.to(device)
        mean, scale = model.noise(x)
        logits = model.classifier((x + mean + scale * z).flatten(0, 1)).reshape(draws, len(x), -1)
        hits = (logits.argmax(-1) == labels).sum(0)
        sigma = scale.flatten(1).amin(1)
        share = ((hits + 0.5) / (draws + 1)).clamp_min(0.5)
        right += float(hits.sum()) / draws
        radii += float((sigma.cpu() * torch.from_numpy(ndtri(share.cpu().double().numpy()))).sum())
        smallest += float(sigma.sum())
        norms += float(mean.flatten(1).norm(dim=1).sum())
    n = len(images)
    return {"accuracy": right / n, "radius": radii / n, "sigma_min": smallest / n, "mean_norm": norms / n}
