"""The experiments: which models are trained, how, and how they are certified."""

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from ars.errors import UnknownName
from ars.noise import GAUSSIAN, LAPLACE

__all__ = ["ATTACKS", "PRESETS", "Certification", "Preset", "Wanted", "find_preset"]

# What PGD knows (`ars-bench paper --attack`), from the least to the most.
ATTACKS = {
    "classifier": "PGD on the classifier alone",
    "smoothed": "PGD on the expected loss under noise",
    "generator": "PGD through the generator",
}
# The radii of the paper's tables. Without them, the grid of adaptive stopping would depend on sigma.
RADII = ",".join(f"{number / 4:g}" for number in range(15))


class Wanted(NamedTuple):
    """A model of a preset."""

    kind: str
    sigma0: float
    family: str = GAUSSIAN.name

    @property
    def name(self) -> str:
        family = "" if self.family == GAUSSIAN.name else f"-{self.family}"
        return f"{self.kind}-{self.sigma0:g}{family}"


class Certification(NamedTuple):
    """One run for each model."""

    name: str
    n: int
    adaptive: bool
    """Stop an input as soon as it is known which radii of the table it reaches. The table is then that of n draws, but
    the average radius is not."""

    @property
    def options(self) -> tuple[str, ...]:
        # The seed makes runs repeatable. The bounds are the paper's. To lose a little more than by default saves hours.
        options = ("--n", str(self.n), "--bounds", "binary", "--seed", "1", "--only-correct")
        return (*options, "--stopping", "adaptive", "--radii", RADII, "--max-loss", "0.7") if self.adaptive else options


@dataclass(frozen=True)
class Preset:
    """An experiment: a model for each kind of noise and each sigma0, trained alike."""

    about: str
    data: str
    """The data, by the name that the paper's tables have for it."""
    network: str
    arch: str
    shape: tuple[int, int, int]
    images: int
    """The number of training images, for estimates."""
    inputs: int
    """The number of inputs that are certified, for estimates."""
    sigmas: tuple[float, ...]
    epochs: int
    batch: int
    draws: int
    training: tuple[str, ...]
    """The other options of `ars-train`."""
    precision: str
    """Of the exported classifier that is certified."""
    inputs_options: tuple[str, ...]
    """Which inputs are certified, and their size, as options of `ars-engine certify` and `ars-bench paper`."""
    certifications: tuple[Certification, ...]
    """The first is that of the table, and the last that of the average radius; both may be one."""
    exporting: tuple[str, ...] = ()
    """The other options of `ars-export`."""
    attacked_sigma0: float = 1.0
    attacked_n: int = 10_000
    laplace_sigma0: float = 0.5
    kinds: tuple[str, ...] = ("isotropic", "input")

    @property
    def models(self) -> list[Wanted]:
        """Those of the paper's tables."""
        return [Wanted(kind, sigma0) for kind in self.kinds for sigma0 in self.sigmas]

    @property
    def extension(self) -> list[Wanted]:
        """The models of the paper's extension to Laplace noise, for which it has no figures."""
        return [Wanted(kind, self.laplace_sigma0, LAPLACE.name) for kind in self.kinds]

    @property
    def plan(self) -> dict[str, float]:
        """What a model that was trained by this preset says of its training."""
        others = dict(pairwise(self.training))
        consistency = float(others.get("--consistency", 0))
        return {"epochs": self.epochs, "batch": self.batch, "draws": self.draws, "consistency": consistency}

    @property
    def attacked(self) -> list[Wanted]:
        """The models of the paper's Table 3."""
        return [model for model in self.models if model.sigma0 == self.attacked_sigma0]


FIXED = Certification("fixed", 100_000, adaptive=False)

PRESETS = {
    ("cifar10", "cpu"): Preset(
        about="what two cores can do in about a day",
        data="CIFAR-10",
        network="ResNet-20",
        arch="resnet20",
        shape=(3, 32, 32),
        images=50_000,
        inputs=500,
        sigmas=(0.5, 0.25, 1.0, 0.12),
        epochs=16,
        batch=128,
        draws=2,
        training=("--lr", "2e-3", "--flip", "--shift", "4", "--consistency", "10"),
        precision="int8",
        inputs_options=("--skip", "20"),
        certifications=(
            Certification("adaptive", 100_000, adaptive=True),
            Certification("fixed", 10_000, adaptive=False),
        ),
        exporting=("--min-agreement", "0.97"),  # fewer layers in float: draws are up to a fifth faster
    ),
    ("cifar10", "paper"): Preset(
        about="the paper's networks, draws and inputs, for GPUs",
        data="CIFAR-10",
        network="ResNet-110",
        arch="resnet110",
        shape=(3, 32, 32),
        images=50_000,
        inputs=10_000,
        sigmas=(0.12, 0.25, 0.5, 1.0),
        epochs=90,
        batch=256,
        draws=5,
        training=("--optimizer", "sgd", "--lr", "0.1", "--schedule", "step", "--flip", "--shift", "4"),
        precision="fp32",
        inputs_options=("--skip", "1"),
        certifications=(FIXED,),
        attacked_n=100_000,
    ),
    ("imagenet", "paper"): Preset(
        about="the paper's network, draws and inputs, for GPUs",
        data="ImageNet",
        network="ResNet-50",
        arch="resnet50",
        shape=(3, 224, 224),
        images=1_281_167,
        inputs=500,
        sigmas=(0.25, 0.5, 1.0),
        epochs=90,
        batch=256,
        draws=5,
        training=("--optimizer", "sgd", "--lr", "0.1", "--schedule", "step", "--flip", "--random-crop", "224"),
        precision="fp32",
        inputs_options=("--resize", "256", "--crop", "224", "--skip", "100"),
        certifications=(FIXED,),
        attacked_n=100_000,
    ),
}


def find_preset(data: str, name: str) -> Preset:
    """The preset of this name for this data."""
    known = [preset for known, preset in PRESETS if known == data]
    if name not in known:
        raise UnknownName(f"preset of {data}", name, known)
    return PRESETS[data, name]
