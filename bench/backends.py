"""`ars-bench backends`: draws end to end (noise, classifier, votes) by the PyTorch path and by the engine with each
backend. The weights are random: what a draw costs does not depend on what was learned."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np

from ars.bench.timing import Timings, interleave
from ars.engine.devices.host import usable_cores
from ars.engine.smoothed import load
from ars.errors import MissingPackage

try:
    import torch
except ImportError as error:
    raise MissingPackage("torch", "train") from error

from ars.bench.pytorch_path import sample_votes
from ars.export.onnx_files import write_onnx
from ars.export.precision import write_int8
from ars.train.classifiers import Normalize, make_classifier

__all__ = ["INT8", "ONNXRUNTIME", "OPENVINO", "PAIRS", "PYTORCH", "time_backends"]

PYTORCH = "PyTorch loop"
ONNXRUNTIME = "ars, onnxruntime FP32"
OPENVINO = "ars, openvino FP32"
INT8 = "ars, openvino INT8"
PAIRS = [(ONNXRUNTIME, PYTORCH), (OPENVINO, PYTORCH), (INT8, PYTORCH), (INT8, ONNXRUNTIME)]

SHAPE, CLASSES, SIGMA = (3, 32, 32), 10, 0.25


def time_backends(arch: str, folder: Path, draws: int, pytorch_batch: int, batch: int | None, rounds: int) -> Timings:
    """Seconds for that many draws of one input. The folder is for the classifier's files."""
    classifier = make_classifier(arch, SHAPE, CLASSES, Normalize((0.5,) * 3, (0.25,) * 3)).eval()
    fp32, int8 = folder / f"{arch}.onnx", folder / f"{arch}.int8.onnx"
    write_onnx(classifier, SHAPE, fp32, ["logits"], fp32)
    rng = np.random.default_rng(0)
    x = rng.random(SHAPE, dtype=np.float32)
    noisy = (x + SIGMA * rng.standard_normal((64, *SHAPE))).astype(np.float32)
    write_int8(fp32, int8, [noisy])

    def pytorch() -> None:
        with _all_cores():
            sample_votes(classifier, CLASSES, torch.from_numpy(x), 0.0, SIGMA, draws, pytorch_batch)

    with ExitStack() as stack:
        candidates = {PYTORCH: pytorch}
        for name, model, backend in (
            (ONNXRUNTIME, fp32, "onnxruntime"),
            (OPENVINO, fp32, "openvino"),
            (INT8, int8, "openvino"),
        ):
            engine = stack.enter_context(load(model, sigma=SIGMA, batch=batch, backend=backend))
            candidates[name] = lambda engine=engine: engine.predict(x, n=draws)  # type: ignore[misc]
        return interleave(candidates, rounds)


@contextmanager
def _all_cores() -> Iterator[None]:
    """PyTorch on every core, whatever the environment says."""
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)
