"""The settings of a training run, and the optimizer and learning-rate schedule that they specify."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler

from ars.errors import ArgumentError, UnknownName
from ars.train.noise_models import DatasetNoise

__all__ = ["TrainingPlan", "make_optimizer"]

OPTIMIZERS = ("adamw", "sgd")
PRECISIONS = ("fp32", "bf16", "fp16")
SCHEDULES = ("cosine", "step", "constant")
# How much faster than the weights the scale map of a data set is learned, if its volume is rewarded.
MAP_RATE = 20


@dataclass(frozen=True)
class TrainingPlan:
    """How to train. `weights` are those of the smoothing, variance and mean losses."""

    epochs: int = 10
    batch: int = 128
    draws: int = 5
    learning_rate: float = 1e-3
    optimizer: str = "adamw"
    schedule: str = "cosine"
    weights: tuple[float, float, float] = (1.0, 1.0, 0.01)
    shift: int = 0
    flip: bool = False
    random_crop: int | None = None
    seed: int = 0
    volume_weight: float = 0.0
    """The weight of the reward for a large geometric mean of the scale, and so for a large volume of the regions."""
    consistency: float = 0.0
    """The weight lambda of consistency regularisation (Jeong and Shin, 2020); 0 leaves it out."""
    precision: str = "fp32"
    """Of the convolutions and matrix products; weights, statistics of batch normalisation and losses are float32."""

    def __post_init__(self) -> None:
        for name, value in (("epochs", self.epochs), ("batch", self.batch), ("draws", self.draws)):
            if value < 1:
                raise ArgumentError(name, value, "it must be at least 1")
        if not 0 < self.learning_rate < math.inf:
            raise ArgumentError("lr", self.learning_rate, "it must be positive and finite")
        if not all(0 <= weight < math.inf for weight in self.weights) or not any(self.weights):
            raise ArgumentError(
                "weights", self.weights, "they must be finite and not negative, and at least one must be positive"
            )
        if not 0 <= self.volume_weight < math.inf:
            raise ArgumentError("volume-weight", self.volume_weight, "it must be finite and not negative")
        if not 0 <= self.consistency < math.inf:
            raise ArgumentError("consistency", self.consistency, "it must be finite and not negative")
        if self.consistency and self.draws < 2:
            raise ArgumentError("consistency", self.consistency, "it compares draws of an image; use --draws 2 or more")
        if self.random_crop is not None and self.shift:
            raise ArgumentError("shift", self.shift, "--random-crop already moves the image; omit one of the two")
        for what, name, known in (
            ("optimizer", self.optimizer, OPTIMIZERS),
            ("schedule", self.schedule, SCHEDULES),
            ("precision", self.precision, PRECISIONS),
        ):
            if name not in known:
                raise UnknownName(what, name, known)

    def volume_weight_at(self, step: int, steps: int) -> float:
        """The weight at a step. It grows from 0 over the first half of the steps: a classifier that has not learned
        yet does not resist, and the scales would grow everywhere."""
        return self.volume_weight * min(1.0, 2 * step / steps)


def make_optimizer(model: nn.Module, plan: TrainingPlan, steps: int) -> tuple[Optimizer, LRScheduler]:
    """The optimizer, and the schedule of its learning rate over `steps` steps."""
    groups = _groups(model, plan)
    if plan.optimizer == "sgd":
        optimizer: torch.optim.Optimizer = SGD(
            groups, plan.learning_rate, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
    else:
        optimizer = AdamW(groups, plan.learning_rate, weight_decay=1e-4)

    def factor(step: int) -> float:
        if plan.schedule == "cosine":
            return 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
        if plan.schedule == "step":  # divided by ten after each third of the steps
            return 0.1 ** (3 * step // steps)
        return 1.0

    return optimizer, LambdaLR(optimizer, factor)


def _groups(model: nn.Module, plan: TrainingPlan) -> list[dict[str, Any]]:
    """The parameters, with the scale map of the data set apart if its volume is rewarded: at the rate of the weights it
    would not reach the ceiling within a few epochs, because each step of Adam moves a pixel by about this rate."""
    maps = [module.raw_scale for module in model.modules() if isinstance(module, DatasetNoise) and plan.volume_weight]
    others = [parameter for parameter in model.parameters() if not any(parameter is one for one in maps)]
    apart = {"params": maps, "lr": MAP_RATE * plan.learning_rate, "weight_decay": 0.0}
    return [{"params": others}, *([apart] if maps else [])]
