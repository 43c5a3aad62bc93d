"""A classifier under learned noise, and the paper's three losses, which train both."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ars.noise import Family, family_named

__all__ = ["Losses", "SmoothedModel", "standard_noise"]

# The eta of Jeong and Shin (2020), the same in all of their experiments.
ENTROPY_WEIGHT = 0.5


def standard_noise(family: str | Family, like: Tensor, draws: int, generator: torch.Generator | None = None) -> Tensor:
    """`draws` independent copies of standard noise for a batch, as a tensor of shape [draws, *batch]."""
    return family_named(family).torch_noise((draws, *like.shape), generator, like.device)


@dataclass(frozen=True)
class Losses:
    """The paper's three losses, and what optional terms are made of, each a mean over the batch."""

    smoothing: Tensor
    variance: Tensor
    mean: Tensor
    growth: Tensor
    """The mean of log(scale / sigma0). The other losses never ask for large scales; `--volume-weight` rewards them."""

    divergence: Tensor
    """How much the answers to the draws of an image differ: the mean of KL(average || answer to a draw)."""
    entropy: Tensor
    """The entropy of an image's average answer."""

    def total(
        self, weights: tuple[float, float, float], volume_weight: float = 0.0, consistency: float = 0.0
    ) -> Tensor:
        alpha, beta, gamma = weights
        total = alpha * self.smoothing + beta * self.variance + gamma * self.mean
        if volume_weight:
            total = total - volume_weight * self.growth
        if consistency:
            total = total + consistency * self.divergence + ENTROPY_WEIGHT * self.entropy
        return total


class SmoothedModel(nn.Module):
    """A classifier and its noise in one module, so that one optimizer and one DistributedDataParallel handle both."""

    def __init__(self, classifier: nn.Module, noise: nn.Module, sigma0: float) -> None:
        super().__init__()
        self.classifier, self.noise, self.sigma0 = classifier, noise, sigma0

    def forward(self, x: Tensor, labels: Tensor, z: Tensor) -> Losses:
        mean, scale = self.noise(x)
        noisy = (x + mean + scale * z).flatten(0, 1)
        # Under autocast the classifier answers in 16 bits; losses need more.
        logits = self.classifier(noisy).to(x.dtype)
        divergence, entropy = _consistency(logits.reshape(len(z), len(x), -1))
        smallest = scale.flatten(1).amin(1)
        return Losses(
            smoothing=nn.functional.cross_entropy(logits, labels.repeat(len(z))),
            variance=((smallest - self.sigma0) / self.sigma0).abs().mean(),
            mean=mean.flatten(1).norm(dim=1).mean(),
            growth=(scale / self.sigma0).log().mean(),
            divergence=divergence,
            entropy=entropy,
        )


def _consistency(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The two terms of Jeong and Shin (2020), of logits of the shape [draws, batch, classes]."""
    answers = logits.log_softmax(-1)
    average = answers.logsumexp(0) - math.log(len(logits))
    share = average.exp()
    divergence = (share * (average - answers)).sum(-1).mean()
    return divergence, -(share * average).sum(-1).mean()
