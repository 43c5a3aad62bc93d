"""Keep in float the layers that cost INT8 its agreement with the original, as few as the agreement needs.

A layer's cost is measured directly: the error of the logits if it is the only one that is rounded. Layers go back to
float in this order until the classifier agrees on enough draws.
"""

import tempfile
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from ars.engine.backends import load_runner
from ars.engine.runners import CpuRunner
from ars.engine.runners.onnxruntime import OnnxRuntime

__all__ = ["Kept", "Target", "keep_in_float", "reach", "time_ratio"]

Array = NDArray[np.float32]

# Draws that rank the layers; one run of the model for each layer.
RANKING = 64
# Draws of a timed run, and how often it is repeated.
TIMED = 64
ROUNDS = 5


@dataclass(frozen=True)
class Target:
    """The agreement with the original that INT8 should reach, and noisy draws to measure it on."""

    agreement: float
    draws: Array


@dataclass(frozen=True)
class Kept:
    """The layers that stay in float, and what it changes. Agreements are those on the draws of the target."""

    layers: tuple[str, ...]
    of: int
    """The layers that could be rounded."""
    before: float
    """The agreement with all of them rounded."""
    after: float
    cost: float
    """The time of a draw, as a multiple of that with all of them rounded."""

    def describe(self) -> str:
        names = ", ".join(self.layers[:3]) + (", ..." if len(self.layers) > 3 else "")
        return (
            f"{len(self.layers)} of {self.of} layers stay in float ({names}): agreement {self.before:.2%} -> "
            f"{self.after:.2%}, a draw takes {self.cost:.2f} times as long"
        )


def keep_in_float(model: onnx.ModelProto, original: onnx.ModelProto, layers: Collection[str]) -> onnx.ModelProto:
    """The quantised model with these layers as the original has them."""
    mixed = onnx.ModelProto()
    mixed.CopyFrom(model)
    graph, before = mixed.graph, {node.name: node for node in original.graph.node}
    for node in graph.node:
        if node.name in layers:
            node.input[:] = before[node.name].input
    outputs = {output.name for output in graph.output}
    while dead := [node for node in graph.node if not outputs & {*node.output} | _used(graph) & {*node.output}]:
        for node in dead:
            graph.node.remove(node)
    used = _used(graph)
    weights = {tensor.name: tensor for tensor in (*original.graph.initializer, *model.graph.initializer)}
    del graph.initializer[:]
    graph.initializer.extend(tensor for name, tensor in weights.items() if name in used)
    return mixed


def _used(graph: onnx.GraphProto) -> set[str]:
    return {name for node in graph.node for name in node.input}


def reach(
    model: onnx.ModelProto,
    original: onnx.ModelProto,
    target: Target,
    run: Callable[[Array], Array],
    absorb: Callable[[onnx.ModelProto, Array], None],
    folder: Path,
) -> tuple[onnx.ModelProto, Kept | None]:
    """The quantised model, with as many layers in float as it needs to agree with the original, `run`, on the target's
    draws. If it needs none, it is unchanged. `absorb` corrects a model by the mean error of its logits, as far as its
    last layer can."""
    rounded = _rounded_layers(model)
    theirs = run(target.draws)
    tried: dict[int, tuple[onnx.ModelProto, CpuRunner, float]] = {}
    order: list[str] = []

    def agreement(number: int) -> float:
        """The agreement with the costliest layers, so many, in float."""
        if number not in tried:
            mixed = keep_in_float(model, original, order[:number])
            ours = _open(mixed, folder, load_runner).run(target.draws)
            corrected = onnx.ModelProto()
            corrected.CopyFrom(mixed)
            absorb(corrected, (theirs - ours).mean(0))
            runner = _open(corrected, folder, load_runner)
            agreed = (runner.run(target.draws).argmax(1) == theirs.argmax(1)).mean()
            tried[number] = mixed, runner, float(agreed)
        return tried[number][2]

    # Half of the draws would be above their expectation: ask for one standard error more.
    least = target.agreement + np.sqrt(target.agreement * (1 - target.agreement) / len(theirs))
    if agreement(0) >= least or len(rounded) < 2:
        return model, None
    order = _rank(model, original, rounded, target.draws[:RANKING], theirs[:RANKING], folder)
    low, high = 0, 1
    while high < len(order) - 1 and agreement(high) < least:
        low, high = high, min(2 * high, len(order) - 1)
    agreement(high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if agreement(middle) >= least else (middle, high)
    mixed, runner, after = tried[high]
    cost = time_ratio(runner, tried[0][1], target.draws)
    return mixed, Kept(tuple(order[:high]), len(rounded), tried[0][2], after, cost)


def _rounded_layers(model: onnx.ModelProto) -> list[str]:
    """The names of the layers whose inputs are rounded."""
    restored = {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return [
        node.name
        for node in model.graph.node
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear") and restored & {*node.input}
    ]


def _rank(
    model: onnx.ModelProto, original: onnx.ModelProto, layers: list[str], draws: Array, theirs: Array, folder: Path
) -> list[str]:
    """The layers, costliest first."""
    errors = {}
    for layer in layers:
        alone = keep_in_float(model, original, {*layers} - {layer})
        ours = _open(alone, folder, OnnxRuntime).run(draws)
        errors[layer] = float((ours - theirs).var(0).mean())  # without the mean error, which can be absorbed
    return sorted(layers, key=lambda layer: -errors[layer])


def _open(model: onnx.ModelProto, folder: Path, how: Callable[[Path], CpuRunner]) -> CpuRunner:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        path = Path(place) / "mixed.onnx"
        onnx.save(model, path)
        return how(path)


def time_ratio(one: CpuRunner, other: CpuRunner, draws: Array) -> float:
    """The processor time of a draw with the first over that with the second: of each the fastest of interleaved rounds.
    Other work on the machine would show in the time of a clock, and runners of a CPU use one core."""
    draws = draws[:TIMED]
    times: dict[int, list[float]] = {0: [], 1: []}
    for _ in range(ROUNDS):
        for number, runner in enumerate((one, other)):
            start = time.process_time()
            runner.run(draws)
            times[number].append(time.process_time() - start)
    return min(times[0]) / min(times[1])
