"""PGD attacks (Madry et al., 2018) on the classifier alone, or on its expected loss under noise."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ars.errors import ArgumentError
from ars.noise import Family
from ars.train.smoothing import SmoothedModel, standard_noise

__all__ = ["Attack", "clean_loss", "noisy_loss", "pgd"]

Loss = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class Attack:
    """Projected gradient ascent in a ball of radius epsilon, in `steps` steps of 2.5 epsilon / steps."""

    norm: float = float("inf")
    epsilon: float = 16 / 255
    steps: int = 10

    def __post_init__(self) -> None:
        if self.norm not in (2, float("inf")):
            raise ArgumentError("norm", self.norm, "PGD is for the norms 2 and inf")
        if not 0 <= self.epsilon < float("inf"):
            raise ArgumentError("epsilon", self.epsilon, "it must be finite and not negative")
        if self.steps < 1:
            raise ArgumentError("steps", self.steps, "it must be at least 1")


def clean_loss(classifier: nn.Module) -> Loss:
    """The classifier's own loss, without noise."""
    return lambda x, labels: nn.functional.cross_entropy(classifier(x), labels)


def noisy_loss(model: SmoothedModel, family: Family, draws: int, *, through_generator: bool) -> Loss:
    """The expected loss under noise, estimated from fresh draws at each call. Gradients either flow through the noise
    generator or treat its maps as constants."""

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        mean, scale = model.noise(x if through_generator else x.detach())
        noisy = x + mean + scale * standard_noise(family, x, draws)
        return nn.functional.cross_entropy(model.classifier(noisy.flatten(0, 1)), labels.repeat(draws))

    return loss


def pgd(loss: Loss, x: Tensor, labels: Tensor, attack: Attack) -> Tensor:
    """Adversarial copies of x: they lie in the ball around x and in [0, 1], and the loss is large there. The ascent
    starts at x. The model should be in evaluation mode, as it is during certification."""
    step = 2.5 * attack.epsilon / attack.steps
    delta = torch.zeros_like(x)
    for _ in range(attack.steps):
        with torch.enable_grad():
            delta.requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss(x + delta, labels), delta)
        with torch.no_grad():
            if attack.norm == 2:
                delta = _shorten(delta + step * gradient / _length(gradient).clamp_min(1e-12), attack.epsilon)
            else:
                delta = (delta + step * gradient.sign()).clamp(-attack.epsilon, attack.epsilon)
            delta = (x + delta).clamp(0, 1) - x
    return (x + delta).detach()


def _length(batch: Tensor) -> Tensor:
    return batch.flatten(1).norm(dim=1).reshape(-1, *[1] * (batch.ndim - 1))


def _shorten(delta: Tensor, epsilon: float) -> Tensor:
    return delta * (epsilon / _length(delta).clamp_min(1e-12)).clamp_max(1)
