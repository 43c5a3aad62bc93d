"""The base classifiers, by name. Normalisation is their first layer, so inputs and noise are in pixel units."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ars.errors import ArgumentError, UnknownName, one_line

__all__ = ["Normalize", "make_classifier", "usual_pixels"]


class Normalize(nn.Module):
    """(x - mean) / deviation, for each channel."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(-1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).reshape(-1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) / self.deviation


def _convolution(channels_in: int, channels: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    convolution = nn.Conv2d(channels_in, channels, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(channels))


class _Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut is a 1x1 convolution where the shape changes."""

    def __init__(self, body: nn.Module, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = body
        same = stride == 1 and channels_in == channels
        self.shortcut = nn.Identity() if same else _convolution(channels_in, channels, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _basic_block(channels_in: int, channels: int, stride: int) -> nn.Module:
    body = nn.Sequential(_convolution(channels_in, channels, 3, stride), nn.ReLU(), _convolution(channels, channels))
    return _Residual(body, channels_in, channels, stride)


def _bottleneck(channels_in: int, channels: int, stride: int) -> nn.Module:
    inner = channels // 4
    body = nn.Sequential(
        _convolution(channels_in, inner, 1),
        nn.ReLU(),
        _convolution(inner, inner, 3, stride),
        nn.ReLU(),
        _convolution(inner, channels, 1),
    )
    return _Residual(body, channels_in, channels, stride)


def _resnet(
    stem: Sequence[nn.Module],
    block: Callable[[int, int, int], nn.Module],
    stages: Sequence[tuple[int, int]],
    channels_in: int,
    classes: int,
) -> nn.Sequential:
    """A ResNet with stages of (channels, blocks); every stage but the first halves the resolution."""
    layers = list(stem)
    for number, (channels, blocks) in enumerate(stages):
        for index in range(blocks):
            layers.append(block(channels_in, channels, 2 if number and not index else 1))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels_in, classes))


def _cifar_resnet(depth: int, channels: int, classes: int) -> nn.Sequential:
    """He et al. (2016), section 4.2: three stages of (depth - 2) / 6 blocks on small images."""
    if not 8 <= depth <= 1202 or (depth - 2) % 6:
        raise ArgumentError("arch", f"resnet{depth}", "a CIFAR ResNet has 6k + 2 layers, up to 1202: 20, 32, 56, 110")
    blocks = (depth - 2) // 6
    stem = [_convolution(channels, 16), nn.ReLU()]
    return _resnet(stem, _basic_block, [(16, blocks), (32, blocks), (64, blocks)], 16, classes)


# The blocks of each stage of the ResNets for images of about 224 x 224.
_BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3)}


def _imagenet_resnet(arch: str, channels: int, classes: int) -> nn.Sequential:
    """He et al. (2016), with the stride of a bottleneck in its 3x3 convolution, as torchvision has it."""
    stem = [_convolution(channels, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    basic = arch in ("resnet18", "resnet34")
    widths = (64, 128, 256, 512) if basic else (256, 512, 1024, 2048)
    block = _basic_block if basic else _bottleneck
    return _resnet(stem, block, list(zip(widths, _BLOCKS[arch], strict=True)), 64, classes)


def _cnn(channels: int, classes: int) -> nn.Sequential:
    """Three strided convolutions, for images of about 28 x 28."""
    layers: list[nn.Module] = []
    for channels_in, width in ((channels, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(channels_in, width, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, classes))


def make_classifier(arch: str, shape: Sequence[int], classes: int, normalize: Normalize) -> nn.Sequential:
    """The classifier of that name for inputs of that shape: cnn, resnet20 ... resnet110 (for small images), resnet18,
    resnet34, resnet50, resnet101, or timm:NAME. The field's names cifar_resnet20 and cifar_resnet110 are known too."""
    channels = shape[0]
    if arch.startswith("timm:"):
        body = _from_timm(arch.removeprefix("timm:"), channels, classes)
    elif arch == "cnn":
        body = _cnn(channels, classes)
    elif arch in _BLOCKS:
        body = _imagenet_resnet(arch, channels, classes)
    elif re.fullmatch("(cifar_)?resnet[0-9]{1,4}", arch):
        body = _cifar_resnet(int(arch.rpartition("resnet")[2]), channels, classes)
    else:
        known = ["cnn", "resnet20", "resnet32", "resnet56", "resnet110", *_BLOCKS]
        raise UnknownName("architecture", arch, known)
    model = nn.Sequential(normalize, body)
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))  # fixes the size of the lazy layer, and checks the shape
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        problem = f"it does not fit inputs of the shape {tuple(shape)} ({one_line(error)})"
        raise ArgumentError("arch", arch, problem) from error
    return model.train()


def _import_timm(name: str) -> Any:
    """timm, which imports torchvision; an error says which of them is the problem."""
    try:
        import timm
    except ModuleNotFoundError as error:
        missing = (error.name or "timm").partition(".")[0]
        needed = "" if missing == "timm" else ", which timm needs,"
        problem = f"{missing}{needed} is not installed; run `pip install {missing}`"
        raise ArgumentError("arch", f"timm:{name}", problem) from error
    except Exception as error:  # a torchvision that does not fit torch fails in many ways
        problem = f"timm cannot be imported ({one_line(error)}); install the torchvision that fits torch"
        raise ArgumentError("arch", f"timm:{name}", problem) from error
    if name not in timm.list_models():
        raise UnknownName("timm model", name, timm.list_models())
    return timm


def _from_timm(name: str, channels: int, classes: int) -> nn.Module:
    timm = _import_timm(name)
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes, in_chans=channels)
    return model


def usual_pixels(arch: str, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
    """The mean and the deviation of pixels that timm's pretrained weights of an architecture expect, if it has some."""
    if not arch.startswith("timm:"):
        return None
    name = arch.removeprefix("timm:")
    found = _import_timm(name).get_pretrained_cfg(name)
    if found is None or len(found.mean) != channels:
        return None
    return tuple(found.mean), tuple(found.std)
