"""A classifier under learned noise, and the paper's three losses, which train both."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ars.noise import Family, family_named

__all__ = ["Losses", "SmoothedModel", "standard_noise"]


def standard_noise(family: str | Family, like: Tensor, draws: int, generator: torch.Generator | None = None) -> Tensor:
    """`draws` independent copies of standard noise for a batch, as a tensor of shape [draws, *batch]."""
    return family_named(family).torch_noise((draws, *like.shape), generator, like.device)


@dataclass(frozen=True)
class Losses:
    """The paper's three losses, and how far the scales have grown, each a mean over the batch."""

    smoothing: Tensor
    variance: Tensor
    mean: Tensor
    growth: Tensor
    """The mean of log(scale / sigma0). The other losses never ask for large scales; `--volume-weight` rewards them."""

    def total(self, weights: tuple[float, float, float], volume_weight: float = 0.0) -> Tensor:
        alpha, beta, gamma = weights
        total = alpha * self.smoothing + beta * self.variance + gamma * self.mean
        return total - volume_weight * self.growth if volume_weight else total


class SmoothedModel(nn.Module):
    """A classifier and its noise in one module, so that one optimizer and one DistributedDataParallel handle both."""

    def __init__(self, classifier: nn.Module, noise: nn.Module, sigma0: float) -> None:
        super().__init__()
        self.classifier, self.noise, self.sigma0 = classifier, noise, sigma0

    def forward(self, x: Tensor, labels: Tensor, z: Tensor) -> Losses:
        mean, scale = self.noise(x)
        noisy = (x + mean + scale * z).flatten(0, 1)
        logits = self.classifier(noisy)
        smallest = scale.flatten(1).amin(1)
        return Losses(
            smoothing=nn.functional.cross_entropy(logits, labels.repeat(len(z))),
            variance=((smallest - self.sigma0) / self.sigma0).abs().mean(),
            mean=mean.flatten(1).norm(dim=1).mean(),
            growth=(scale / self.sigma0).log().mean(),
        )
