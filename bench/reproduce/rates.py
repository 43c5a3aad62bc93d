"""How fast a preset's network trains and answers on this machine, measured in a few seconds, for estimates."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ars.bench.reproduce.presets import Preset
from ars.errors import MissingPackage
from ars.noise import NoiseKind

__all__ = ["Rates", "measure_rates"]

# The values in the batch that is timed.
VALUES = 2**18


@dataclass(frozen=True)
class Rates:
    training: dict[str, float]
    """Seconds for one image, with all of its draws, by kind of noise."""
    draw: float
    """Seconds for one draw in PyTorch. The engine is faster, so an estimate from it is an upper limit."""
    threads: int
    device: str


def measure_rates(preset: Preset) -> Rates:
    """Time training steps and forward passes with random weights."""
    try:
        import torch
    except ImportError as error:
        raise MissingPackage("torch", "train") from error
    from ars.train.loop import DTYPES
    from ars.train.model_file import ModelSettings, build
    from ars.train.noise_models import NoiseShape
    from ars.train.processes import choose_device, choose_precision
    from ars.train.smoothing import SmoothedModel

    device = choose_device("auto")
    precision = choose_precision("auto", device)
    images = max(2, min(preset.batch, VALUES // (preset.draws * math.prod(preset.shape))))
    x = torch.rand(images, *preset.shape, device=device).to(memory_format=torch.channels_last)
    labels, z = torch.zeros(images, dtype=torch.int64, device=device), torch.randn(preset.draws, *x.shape).to(device)
    training, draw = {}, 0.0
    for kind in preset.kinds:
        statistics = (0.5,) * preset.shape[0], (0.25,) * preset.shape[0]
        settings = ModelSettings(
            preset.arch, preset.shape, ("0", "1"), *statistics, "gaussian", NoiseKind(kind), NoiseShape(0.5)
        )
        model = build(settings).to(device)

        def step(model: SmoothedModel) -> None:
            with torch.autocast(device.type, DTYPES[precision], precision != "fp32"):
                losses = model(x, labels, z)
            total = losses.total((1.0, 1.0, 0.01))
            total.backward()
            total.item()  # waits for a GPU

        def answer(model: SmoothedModel) -> None:
            with torch.no_grad():
                model.classifier(x).sum().item()

        training[kind] = _best_of_three(partial(step, model)) / images
        draw = _best_of_three(partial(answer, model.eval())) / images
    return Rates(training, draw, torch.get_num_threads(), device.type)


def _best_of_three(work: Callable[[], None]) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
