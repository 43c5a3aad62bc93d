"""The PyTorch path: randomized smoothing as the field's users write it, the baseline that ARS is measured against.

The loop is that of Cohen et al. (2019): repeat the input, add noise, run the classifier, take the largest logit, and
count in Python. Anisotropic noise multiplies by a scale map and adds a mean map, which were made once for the input.
"""

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ars.errors import MissingPackage

try:
    import torch
    from torch import Tensor
except ImportError as error:
    raise MissingPackage("torch", "train") from error

__all__ = ["sample_votes"]


def sample_votes(
    classifier: Callable[[Tensor], Tensor],
    classes: int,
    x: Tensor,
    mean: Tensor | float,
    scale: Tensor | float,
    n: int,
    batch: int,
) -> NDArray[np.int64]:
    """The votes of n noisy copies of x, in batches."""
    counts = np.zeros(classes, np.int64)
    with torch.no_grad():
        for first in range(0, math.ceil(n / batch) * batch, batch):
            size = min(batch, n - first)
            copies = x.repeat((size, *[1] * x.ndim))
            noise = torch.randn_like(copies) * scale + mean
            predictions = classifier(copies + noise).argmax(1)
            for answer in predictions.cpu().numpy():
                counts[answer] += 1
    return counts
