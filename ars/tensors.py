"""Values of torch, recognised without importing it: a value of torch cannot exist before torch is imported."""

import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ars.errors import DataError, one_line

__all__ = ["as_array", "is_loader", "is_module", "is_tensor"]


def is_tensor(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_module(value: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_loader(value: object) -> bool:
    data = sys.modules.get("torch.utils.data")
    return data is not None and isinstance(value, data.DataLoader)


def as_array(value: ArrayLike) -> NDArray[Any]:
    """The values as an array of numpy. A tensor may be on any device, of any float type, and need a gradient."""
    try:
        if is_tensor(value):
            tensor: Any = value
            tensor = tensor.detach().cpu()
            # numpy has no bfloat16; the other types keep what they are.
            return np.asarray(tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor)
        return np.asarray(value)
    except (NotImplementedError, TypeError, ValueError, RuntimeError) as error:  # sparse, without values, ragged
        problem = f"a {type(value).__name__} cannot be made an array ({one_line(error)})"
        raise DataError("the input", problem, "give an array or a dense tensor") from error
