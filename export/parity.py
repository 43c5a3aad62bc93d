"""Compare an exported classifier with the one that it was made from: both vote on the same noisy draws of real inputs,
which the engine's own sampler makes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ars.engine.lattice import Lattice, choose_step
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.engine.statistics.certificate import certify_votes
from ars.engine.statistics.plan import Plan
from ars.manifest import NoiseSettings, Parity
from ars.noise import family_named

__all__ = ["NoisyInputs", "collect_logits", "compare"]

Array = NDArray[np.float32]

# Draws of each input: few, because every export is compared, but enough that certificates differ.
SELECTION, ESTIMATION = 8, 56
DRAWS = SELECTION + ESTIMATION
ALPHA = 0.001
# The radii at which certified accuracies are compared, in units of sigma0.
RADII = (0.0, 0.25, 0.5, 1.0)
CALIBRATION_DRAWS, CHOICE_DRAWS = 4, 16


@dataclass(frozen=True)
class NoisyInputs:
    """Inputs, their labels where known, and the noise maps of each."""

    x: Array
    labels: NDArray[np.int64] | None
    mean: Array
    scale: Array
    noise: NoiseSettings

    def __len__(self) -> int:
        return len(self.x)

    def draws(self) -> Iterator[Array]:
        """The draws for the comparison, one input at a time."""
        parts = ((Phase.SELECTION, SELECTION), (Phase.ESTIMATION, ESTIMATION))
        return self._fill([Request(0, 0, phase, 0, number) for phase, number in parts])

    def calibration_draws(self) -> Iterator[Array]:
        """Different draws, for calibration, one input at a time."""
        return self._fill([Request(0, 0, Phase.PREDICTION, 0, CALIBRATION_DRAWS)])

    def choice_draws(self) -> Iterator[Array]:
        """More of these, to choose by which layers are rounded, one input at a time."""
        return self._fill([Request(0, 0, Phase.PREDICTION, CALIBRATION_DRAWS, CHOICE_DRAWS)])

    def _fill(self, requests: list[Request]) -> Iterator[Array]:
        lattice = Lattice(choose_step(float(self.scale.min())))
        sampler = HostSampler(1, self.x[0].size, family_named(self.noise.family), seed=0, lattice=lattice)
        for number, (x, mean, scale) in enumerate(zip(self.x, self.mean, self.scale, strict=True)):
            sampler.load(0, x, mean, scale)
            copies = np.empty((sum(request.draws for request in requests), *x.shape), np.float32)
            sampler.fill(copies, [request._replace(input_id=number) for request in requests])
            yield copies


def collect_logits(
    inputs: NoisyInputs, run: Callable[[Array], Array], on_input: Callable[[], None] = lambda: None
) -> Array:
    """The logits of every draw, of shape [inputs, draws, classes]."""
    logits = []
    for copies in inputs.draws():
        logits.append(run(copies))
        on_input()
    return np.stack(logits)


def compare(inputs: NoisyInputs, theirs: Array, ours: Array, reference: str, runner: str) -> Parity:
    """Compare our logits with those of the reference. A draw with logits that are not finite counts as disagreement."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(ours - theirs).max() / max(1.0, np.abs(theirs).max())
    finite = np.isfinite(ours).all(-1) & np.isfinite(theirs).all(-1)
    agreement = ((ours.argmax(-1) == theirs.argmax(-1)) & finite).mean()
    apart = None
    if inputs.labels is not None:
        apart = float(np.abs(_certified_accuracy(inputs, ours) - _certified_accuracy(inputs, theirs)).max())
    draws = len(inputs) * DRAWS
    return Parity(reference, runner, len(inputs), draws, float(difference), float(agreement), apart)


def _certified_accuracy(inputs: NoisyInputs, logits: Array) -> NDArray[np.float64]:
    """The fraction of inputs that are certified as their own class at each of RADII."""
    assert inputs.labels is not None
    radii = np.array(RADII) * inputs.noise.sigma0
    certified = np.zeros(len(RADII))
    plan = Plan(SELECTION, DRAWS - SELECTION, ALPHA)
    for x, label, scale in zip(logits, inputs.labels, inputs.scale, strict=True):
        selection, estimation = _count(x[:SELECTION]), _count(x[SELECTION:])
        selected = int(np.argmax(selection[:-1]))
        proved = certify_votes(
            estimation, selected, plan=plan, family=inputs.noise.family, scale=scale, kind=inputs.noise.kind
        )
        certified += (proved.predicted == label) & (proved.radius > radii)
    return certified / len(inputs)


def _count(logits: Array) -> list[int]:
    """The votes for each class; the last entry counts the draws that vote for no class."""
    finite = np.isfinite(logits).all(1)
    votes = np.bincount(logits[finite].argmax(1), minlength=logits.shape[1]).tolist()
    return [*votes, int((~finite).sum())]
