"""The base classifiers, by name. Normalisation is their first layer, so inputs and noise are in pixel units."""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from ars.errors import ArgumentError, UnknownName, one_line

__all__ = ["Normalize", "make_classifier"]


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
    if depth < 8 or (depth - 2) % 6:
        raise ArgumentError("arch", f"resnet{depth}", "a CIFAR ResNet has 6k + 2 layers: 20, 32, 44, 56, 110")
    blocks = (depth - 2) // 6
    stem = [_convolution(channels, 16), nn.ReLU()]
    return _resnet(stem, _basic_block, [(16, blocks), (32, blocks), (64, blocks)], 16, classes)


def _resnet50(channels: int, classes: int) -> nn.Sequential:
    """He et al. (2016), for images of about 224 x 224."""
    stem = [_convolution(channels, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1)]
    return _resnet(stem, _bottleneck, [(256, 3), (512, 4), (1024, 6), (2048, 3)], 64, classes)


def _cnn(channels: int, classes: int) -> nn.Sequential:
    """Three strided convolutions, for images of about 28 x 28."""
    layers: list[nn.Module] = []
    for channels_in, width in ((channels, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(channels_in, width, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(128), nn.ReLU(), nn.Linear(128, classes))


def make_classifier(arch: str, shape: Sequence[int], classes: int, normalize: Normalize) -> nn.Sequential:
    """The classifier of that name for inputs of that shape: cnn, resnet20 ... resnet110, resnet50, or timm:NAME."""
    channels = shape[0]
    if arch.startswith("timm:"):
        body = _from_timm(arch.removeprefix("timm:"), channels, classes)
    elif arch == "cnn":
        body = _cnn(channels, classes)
    elif arch == "resnet50":
        body = _resnet50(channels, classes)
    elif re.fullmatch("resnet[0-9]{1,4}", arch):
        body = _cifar_resnet(int(arch.removeprefix("resnet")), channels, classes)
    else:
        raise UnknownName("architecture", arch, ["cnn", "resnet20", "resnet32", "resnet56", "resnet110", "resnet50"])
    model = nn.Sequential(normalize, body)
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape))  # fixes the size of the lazy layer, and checks the shape
    except (RuntimeError, ValueError, TypeError, IndexError, AssertionError) as error:
        problem = f"it does not fit inputs of the shape {tuple(shape)} ({one_line(error)})"
        raise ArgumentError("arch", arch, problem) from error
    return model.train()


def _from_timm(name: str, channels: int, classes: int) -> nn.Module:
    try:
        import timm
    except ImportError as error:
        raise ArgumentError("arch", f"timm:{name}", "timm is not installed; run `pip install timm`") from error
    if name not in timm.list_models():
        raise UnknownName("timm model", name, timm.list_models())
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=classes, in_chans=channels)
    return model
