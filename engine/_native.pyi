# The native module (engine/native/bindings.cpp). engine/samplers/host.py is the way to use it: it checks the arguments.
import numpy as np
from numpy.typing import NDArray

class Workers:
    def __init__(self, threads: int) -> None: ...

def families() -> dict[str, int]: ...
def instructions() -> list[str]: ...
def philox4x32_10(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]: ...
def fill_noisy(
    out: NDArray[np.float32],
    requests: NDArray[np.int64],
    center: NDArray[np.float32],
    scale: NDArray[np.float32],
    margin: NDArray[np.float32] | None,
    exact_center: NDArray[np.float64] | None,
    step: float,
    family: int,
    seed: int,
    workers: Workers,
    instructions: str,
) -> None: ...
def count_votes(logits: NDArray[np.float32], requests: NDArray[np.int64], counts: NDArray[np.int64]) -> None: ...
