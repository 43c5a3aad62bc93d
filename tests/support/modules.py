"""Small torch modules for the tests."""

import torch
from torch import nn
from torch.nn.functional import dropout

SHAPE, CLASSES = (3, 8, 8), 4


class Net(nn.Module):
    """A convolution with batch normalisation and dropout, and, as in the field, means that are a plain attribute."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.means = torch.tensor([0.5, 0.4, 0.3])
        self.convolution, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.dropout, self.head = nn.Dropout(0.5), nn.Linear(8 * 64, CLASSES)
        nn.init.normal_(self.norm.running_mean, std=0.1)
        nn.init.normal_(self.head.weight, std=0.2)

    def forward(self, x):
        features = torch.relu(self.norm(self.convolution(x - self.means[:, None, None])))
        return self.head(self.dropout(features).flatten(1))


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.head = nn.Linear(192, CLASSES)

    def forward(self, x):
        return self.head(x.flatten(1))


class AlwaysDropout(Linear):
    def forward(self, x):
        return self.head(dropout(x.flatten(1), 0.5, training=True))


class TrainsItself(Linear):
    """Turns its dropout on, whatever mode it was put into."""

    def __init__(self):
        super().__init__()
        self.dropout = nn.Dropout(0.5)

    def forward(self, x):
        self.train()
        return self.head(self.dropout(x.flatten(1)))


class BatchStatistics(Linear):
    """Normalises by the batch, in evaluation mode too."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3, track_running_stats=False)

    def forward(self, x):
        return self.head(self.norm(x).flatten(1))


class Counts(Linear):
    """Answers otherwise after a number of calls."""

    calls = 0

    def forward(self, x):
        self.calls += 1
        return self.head(x.flatten(1)) * (1 if self.calls < 20 else -1)


class KeepsFeatures(Linear):
    def forward(self, x):
        self.features = x.flatten(1)
        return self.head(self.features)


class Branches(Linear):
    def forward(self, x):
        if x.sum() > 0:
            return self.head(x.flatten(1))
        return -self.head(x.flatten(1))


class Bessel(Linear):
    def forward(self, x):
        return self.head(torch.special.bessel_j0(x.flatten(1)))


class ReturnsTuple(Linear):
    def forward(self, x):
        return super().forward(x), x


class ReturnsOutput(Linear):
    """Returns an object with logits, as the models of Hugging Face do."""

    def forward(self, x):
        return Output(super().forward(x))


class Output:
    def __init__(self, logits):
        self.logits = logits
