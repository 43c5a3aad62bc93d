"""Makes a model with random weights and exports it as users do, so that draws can be timed without training."""

from pathlib import Path

import torch

from ars.data import ImageSize
from ars.export.pipeline import ExportPlan, export_model
from ars.export.progress import ExportProgress
from ars.export.source import OwnModel
from ars.export.tensorrt import BuildOptions
from ars.manifest import Profile
from ars.noise import NoiseKind
from ars.train.batches import Images
from ars.train.model_file import ModelSettings, build, write_model_file
from ars.train.noise_models import NoiseShape

__all__ = ["export_random"]

SIGMA = 0.25


def export_random(
    arch: str, shape: tuple[int, ...], folder: Path, precisions: tuple[str, ...] = ("fp32", "int8")
) -> Path:
    """Make a model with a noise generator in the folder, in these precisions, and return the path of its manifest. If
    there is a GPU that TensorRT can build for, there is an engine of the smallest precision, too."""
    classes = tuple(str(number) for number in range(1000 if shape[-1] > 100 else 10))
    channels = shape[0]
    settings = ModelSettings(
        arch, shape, classes, (0.5,) * channels, (0.25,) * channels, "gaussian", NoiseKind.INPUT, NoiseShape(SIGMA)
    )
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build(settings)
    examples = Images(torch.rand((64, *shape), generator=generator), torch.zeros(64, dtype=torch.int64))
    trained = folder / f"{arch.replace(':', '-')}.pt"
    write_model_file(trained, settings, model.eval(), {"weights": "random"}, examples)
    # With random weights, the two precisions need not agree on the top class.
    plan = ExportPlan(precisions, "auto", BuildOptions(Profile(1, 256, 1024)), None, 0.0, ImageSize(), ())
    with ExportProgress(quiet=True) as progress:
        export_model(trained, None, OwnModel(), plan, progress)
    return trained.with_suffix(".json")
