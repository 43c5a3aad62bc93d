"""`ars-bench overhead`: what the engine costs beyond running the model: noise, packing, votes, threads, Python."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from ars.bench.timing import Timings, interleave
from ars.engine.smoothed import SmoothedClassifier, load

__all__ = [
    "BARE",
    "BARE_LANES",
    "ENGINE",
    "GENERATOR",
    "ISOTROPIC",
    "STREAM_1",
    "time_generator",
    "time_overhead",
    "time_streams",
]

ENGINE = "ars engine"
STREAM_1 = "ars engine, noise stream 1"
BARE = "bare loop, one batch on all cores"
BARE_LANES = "bare loops, a batch on each core"

ISOTROPIC = "certify, isotropic noise"
GENERATOR = "certify, with a noise generator"

SIGMA = 0.25


def time_generator(model: Path, generator: Path, shape: tuple[int, ...], batch: int, n: int, rounds: int) -> Timings:
    """The seconds to certify an input with isotropic noise, and with maps that a generator makes for it."""
    x = np.random.default_rng(0).random(shape, dtype=np.float32)
    with load(model, sigma=SIGMA, batch=batch) as isotropic, load(model, noise=generator, batch=batch) as generated:
        candidates = {ISOTROPIC: lambda: isotropic.certify(x, n=n), GENERATOR: lambda: generated.certify(x, n=n)}
        return interleave(candidates, rounds)


def time_overhead(model: Path, shape: tuple[int, ...], batch: int, threads: int, batches: int, rounds: int) -> Timings:
    """The seconds for the same number of draws in the engine, and in bare `session.run` loops on a prepared batch."""
    draws = batches * threads * batch
    ready = np.random.default_rng(0).random((batch, *shape), dtype=np.float32)
    with load(model, sigma=SIGMA, batch=batch, threads=threads) as classifier:
        return interleave(
            {
                ENGINE: _engine(classifier, ready[0], draws),
                BARE: _bare(model, ready, threads, draws),
                BARE_LANES: _bare_lanes(model, ready, threads, draws),
            },
            rounds,
        )


def time_streams(model: Path, shape: tuple[int, ...], batch: int, threads: int, batches: int, rounds: int) -> Timings:
    """The seconds for the same number of draws with noise stream 2 and with noise stream 1."""
    draws, x = batches * threads * batch, np.random.default_rng(0).random(shape, dtype=np.float32)
    with (
        load(model, sigma=SIGMA, batch=batch, threads=threads) as classifier,
        load(model, sigma=SIGMA, batch=batch, threads=threads, noise_stream=1) as older,
    ):
        return interleave({ENGINE: _engine(classifier, x, draws), STREAM_1: _engine(older, x, draws)}, rounds)


def _engine(classifier: SmoothedClassifier, x: NDArray[np.float32], draws: int) -> Callable[[], object]:
    return lambda: classifier.predict(x, n=draws)


def _session(model: Path, threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _bare(model: Path, ready: NDArray[np.float32], threads: int, draws: int) -> Callable[[], object]:
    session = _session(model, threads)

    def loop() -> None:
        for _ in range(draws // len(ready)):
            session.run(None, {"x": ready})

    return loop


def _bare_lanes(model: Path, ready: NDArray[np.float32], threads: int, draws: int) -> Callable[[], object]:
    loop = _bare(model, ready, 1, draws // threads)

    def loops() -> None:
        lanes = [threading.Thread(target=loop) for _ in range(threads)]
        for lane in lanes:
            lane.start()
        for lane in lanes:
            lane.join()

    return loops
