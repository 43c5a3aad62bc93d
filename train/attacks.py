"""PGD attacks (Madry et al., 2018) on the classifier alone, on its expected loss under noise, or on its votes."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ars.errors import ArgumentError
from ars.noise import Family
from ars.train.smoothing import SmoothedModel, standard_noise

__all__ = ["Attack", "Maps", "clean_loss", "lp_lengths", "noisy_loss", "pgd", "vote_loss"]

Loss = Callable[[Tensor, Tensor], Tensor]
Maps = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From inputs to the mean and the scale of their noise."""

SPARSITY = 0.01
"""The share of the coordinates that a step in the l1 norm moves (Tramer and Boneh, 2019)."""


@dataclass(frozen=True)
class Attack:
    """Projected gradient ascent in a ball of radius epsilon, in `steps` steps of 2.5 epsilon / steps."""

    norm: float = float("inf")
    epsilon: float = 16 / 255
    steps: int = 10

    def __post_init__(self) -> None:
        if self.norm not in (1, 2, float("inf")):
            raise ArgumentError("norm", self.norm, "PGD is for the norms 1, 2 and inf")
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


def vote_loss(classifier: nn.Module, maps: Maps, family: Family, draws: int, generator: torch.Generator) -> Loss:
    """How far another answer leads in the votes of a smoothed classifier: the logarithm of the ratio of two mean
    probabilities, that of the likeliest other class and that of the label (Salman et al., 2019, have the latter alone).
    The noise is drawn anew at each call, and gradients flow through the maps."""

    def loss(x: Tensor, labels: Tensor) -> Tensor:
        mean, scale = maps(x)
        noisy = x + mean + scale * standard_noise(family, x, draws, generator)
        logits = classifier(noisy.flatten(0, 1))
        shares = logits.log_softmax(1).reshape(draws, len(x), -1).logsumexp(0)
        own = labels[:, None]
        others = shares.scatter(1, own, float("-inf")).amax(1)
        return (others - shares.gather(1, own)[:, 0]).sum()

    return loss


def pgd(
    loss: Loss,
    x: Tensor,
    labels: Tensor,
    attack: Attack,
    *,
    scale: Tensor | float = 1.0,
    start: Tensor | None = None,
    pixels: bool = True,
) -> Tensor:
    """Adversarial copies of x, where the loss is large: they lie in the ball ||delta / scale|| <= epsilon around x, and
    in [0, 1] unless `pixels` is false. The ascent starts at x, or at the copies `start` of it. The model should be in
    evaluation mode, as it is during certification."""
    step = 2.5 * attack.epsilon / attack.steps
    delta = torch.zeros_like(x) if start is None else start - x
    for _ in range(attack.steps):
        with torch.enable_grad():
            delta.requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss(x + delta, labels), delta)
        with torch.no_grad():
            if pixels:  # no step into the wall
                free = torch.where(gradient > 0, x + delta < 1, x + delta > 0)
                gradient = gradient * free
            moved = delta / scale + step * _steepest(scale * gradient, attack.norm)
            delta = scale * _project(moved, attack.norm, attack.epsilon)
            if pixels:
                delta = (x + delta).clamp(0, 1) - x
    return (x + delta).detach()


def _steepest(gradient: Tensor, norm: float) -> Tensor:
    """The step of length 1 in this norm along which the loss rises fastest; in l1 it is divided among a few
    coordinates, because steps along one coordinate take long to get anywhere."""
    if norm == float("inf"):
        return gradient.sign()
    if norm == 2:
        return gradient / lp_lengths(gradient, 2).clamp_min(1e-12)
    flat = gradient.flatten(1)
    largest = flat.abs().topk(max(1, round(SPARSITY * flat.shape[1])), dim=1).indices
    signs = torch.zeros_like(flat).scatter(1, largest, flat.gather(1, largest).sign())
    return (signs / largest.shape[1]).reshape(gradient.shape)


def _project(delta: Tensor, norm: float, epsilon: float) -> Tensor:
    """The nearest point of the ball of radius epsilon in this norm."""
    if norm == float("inf"):
        return delta.clamp(-epsilon, epsilon)
    if norm == 2:
        return delta * (epsilon / lp_lengths(delta, 2).clamp_min(1e-12)).clamp_max(1)
    flat = delta.flatten(1)
    # Every size is reduced by the same amount, and not below 0 (Duchi et al., 2008).
    sizes = flat.abs().sort(dim=1, descending=True).values
    cuts = (sizes.cumsum(1) - epsilon) / torch.arange(1, flat.shape[1] + 1, device=flat.device)
    last = (sizes > cuts).sum(1, keepdim=True).clamp_min(1) - 1
    cut = cuts.gather(1, last).clamp_min(0)
    return (flat.sign() * (flat.abs() - cut).clamp_min(0)).reshape(delta.shape)


def lp_lengths(batch: Tensor, norm: float) -> Tensor:
    """The lengths of a batch in this norm, with an axis of 1 for each of an input's."""
    return batch.flatten(1).norm(dim=1, p=norm).reshape(-1, *[1] * (batch.ndim - 1))
