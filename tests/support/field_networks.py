"""Networks with the names of tensors that the field's and torchvision's ResNets have, written for the tests."""

from torch import nn
from torch.nn.functional import relu


class Block(nn.Module):
    """A basic block, or a bottleneck with the stride in its 3x3 convolution."""

    def __init__(self, channels_in, width, stride, *, bottleneck=False):
        super().__init__()
        channels = 4 * width if bottleneck else width
        sizes = [(channels_in, width, 1, 1), (width, width, 3, stride), (width, channels, 1, 1)]
        if not bottleneck:
            sizes = [(channels_in, width, 3, stride), (width, width, 3, 1)]
        self.parts = len(sizes)
        for number, (before, after, size, step) in enumerate(sizes, 1):
            setattr(self, f"conv{number}", nn.Conv2d(before, after, size, step, size // 2, bias=False))
            setattr(self, f"bn{number}", nn.BatchNorm2d(after))
        self.downsample = None
        if stride != 1 or channels_in != channels:
            shortcut = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(channels))

    def forward(self, x):
        y = x
        for number in range(1, self.parts + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            y = relu(y) if number < self.parts else y
        return relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """`widths` and `blocks` are those of the stages. With a `large` stem it is torchvision's, otherwise the field's."""

    def __init__(self, widths, blocks, classes, *, bottleneck=False, large=False, channels=3):
        super().__init__()
        channels_in = widths[0]
        self.conv1 = nn.Conv2d(
            channels, channels_in, 7 if large else 3, 2 if large else 1, 3 if large else 1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.pool = nn.MaxPool2d(3, 2, 1) if large else nn.Identity()
        self.stages = len(widths)
        for stage, (width, number) in enumerate(zip(widths, blocks, strict=True), 1):
            layers = []
            for index in range(number):
                stride = 2 if stage > 1 and index == 0 else 1
                layers.append(Block(channels_in, width, stride, bottleneck=bottleneck))
                channels_in = 4 * width if bottleneck else width
            setattr(self, f"layer{stage}", nn.Sequential(*layers))
        self.fc = nn.Linear(channels_in, classes)

    def forward(self, x):
        x = self.pool(relu(self.bn1(self.conv1(x))))
        for stage in range(1, self.stages + 1):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


class NormalizeLayer(nn.Module):
    """As in the field's scripts: its numbers are plain attributes, and so not in a state_dict."""

    def __init__(self, means, deviations):
        super().__init__()
        self.means, self.sds = means, deviations

    def forward(self, x):
        return (x - self.means[:, None, None]) / self.sds[:, None, None]


def cifar_resnet(depth, classes=10, channels=3):
    return ResNet((16, 32, 64), [(depth - 2) // 6] * 3, classes, channels=channels)


def randomize(module):
    """Give batch normalisation statistics of its own, so that a mix-up of its tensors shows."""
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.normal_(layer.running_mean, std=0.3)
            nn.init.uniform_(layer.running_var, 0.5, 2.0)
            nn.init.uniform_(layer.weight, 0.5, 1.5)
            nn.init.normal_(layer.bias, std=0.3)
    return module.eval()
