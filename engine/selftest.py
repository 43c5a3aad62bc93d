"""`ars-engine selftest`: whether a device computes what it must. For machines that nobody has run ARS on before."""

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ars.engine.backends import load_runner
from ars.engine.devices import CPU, choose_devices, open_devices
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.engine.smoothed import load
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError, ArsError
from ars.noise import FAMILIES, Family

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = ["Check", "run_checks"]

MODEL = Path(__file__).with_name("selftest.onnx")
_SHAPE, _BATCH = (3, 8, 8), 64
# Odd on purpose: rows that do not start at multiples of 16 bytes, and a last block that is not full.
_DIMENSIONS = 1023
_REQUESTS = [
    Request(0, 3, Phase.SELECTION, 0, 5),
    Request(1, 2**32 - 1, Phase.ESTIMATION, 2**32 - 2, 4),
    Request(1, 7, Phase.PREDICTION, 2**56 - 3, 0),
    Request(0, 7, Phase.PREDICTION, 2**56 - 3, 3),
]
_ROWS = sum(request.draws for request in _REQUESTS)
# A GPU may round the sums of a network otherwise than a processor, and TensorRT, left alone, factors to 10 bits (TF32).
_LOGIT_TOLERANCE, _SHARE_OF_VOTES = 0.01, 0.01


@dataclass(frozen=True)
class Check:
    name: str
    passed: bool
    said: str


def run_checks(device: str) -> Iterator[Check]:
    """Each check, as soon as it is done."""
    names = choose_devices(device, MODEL)
    if len(names) > 1:
        raise ArgumentError("device", device, "check one at a time")
    (name,) = names
    if name == CPU:
        yield from _check_host()
        yield from _check_model(name, "onnxruntime", MODEL)
        return
    from ars.engine.gpu import Gpu

    with closing(Gpu(int(name.removeprefix("cuda:")))) as gpu:
        yield _attempt("noise", lambda: _noise_on(gpu))
        yield _attempt("votes", lambda: _votes_on(gpu))
    yield from _check_gpu_models(name)


def _attempt(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *check())
    except ArsError as error:
        return Check(name, False, str(error))


def _slots() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Centers and scales of two slots, exact in float32."""
    steps = np.arange(2 * _DIMENSIONS, dtype=np.float32).reshape(2, -1)
    return steps / np.float32(64) - np.float32(8), steps / np.float32(512) + np.float32(1)


def _host_noise(family: Family, instructions: str) -> NDArray[np.float32]:
    host = HostSampler(2, _DIMENSIONS, family, seed=2**63 + 11, instructions=instructions)
    for slot, (center, scale) in enumerate(zip(*_slots(), strict=True)):
        host.load(slot, center, 0, scale)
    out = np.empty((_ROWS, _DIMENSIONS), np.float32)
    host.fill(out, _REQUESTS)
    return out


def _is_known(noise: NDArray[np.float32], family: Family) -> bool:
    """Whether noisy copies from `_host_noise` have the bits that noise stream 1 gives them."""
    return hashlib.sha256(noise.tobytes()).hexdigest() == family.selftest_sha256


def _some_logits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits with ties and with values that are not finite, and how they vote, in whole numbers that every type has."""
    logits = np.random.default_rng(1).integers(-3, 4, (_ROWS, 10)).astype(np.float32)
    logits[[1, 4, 7, 11], [0, 9, 5, 3]] = np.nan, np.inf, -np.inf, np.nan
    votes = np.where(np.isfinite(logits).all(1), logits.argmax(1), 10)
    owners = np.repeat(np.arange(len(_REQUESTS)), [request.draws for request in _REQUESTS])
    counts = np.zeros((len(_REQUESTS), 11), np.int64)
    np.add.at(counts, (owners, votes), 1)
    return logits, counts


def _check_host() -> Iterator[Check]:
    def noise() -> tuple[bool, str]:
        from ars.engine.samplers.host import usable_instructions

        sets = usable_instructions()
        for name, family in FAMILIES.items():
            for instructions in sets:
                if not _is_known(_host_noise(family, instructions), family):
                    return False, f"{name} noise made with {instructions} instructions does not have its known bits"
        return True, f"{_ROWS * _DIMENSIONS:,} values of each family have their known bits, by {', '.join(sets)}"

    def votes() -> tuple[bool, str]:
        logits, expected = _some_logits()
        host = HostSampler(2, 1, FAMILIES["gaussian"], 0)
        for slot in range(2):
            host.load(slot, np.zeros(1), 0, 1)
        return np.array_equal(host.count(logits, _REQUESTS), expected), f"{_ROWS} rows, ties and NaN among them"

    yield _attempt("noise", noise)
    yield _attempt("votes", votes)


def _noise_on(gpu: "Gpu") -> tuple[bool, str]:
    wrong = 0
    for name, family in FAMILIES.items():
        known = _host_noise(family, "scalar")
        if not _is_known(known, family):
            return False, f"the host's own {name} noise does not have its known bits"
        for dtype in ("float32", "float16"):
            with np.errstate(over="ignore"):
                expected = known.astype(dtype)
            found = _filled_on(gpu, family, dtype)
            wrong += int((found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")).sum())
    values = f"{_ROWS * _DIMENSIONS:,} values of each family, in float32 and float16"
    return wrong == 0, f"{values}, are the host's to the bit" if wrong == 0 else f"{wrong:,} of {values}, differ"


def _filled_on(gpu: "Gpu", family: Family, dtype: str) -> NDArray[np.floating]:
    from ars.engine.gpu import Workspace
    from ars.engine.samplers.cuda import CudaSampler

    out = np.empty((_ROWS, _DIMENSIONS), dtype)
    with (
        closing(CudaSampler(gpu, 2, _DIMENSIONS, family, seed=2**63 + 11)) as sampler,
        closing(Workspace(gpu)) as space,
        space.queueing(),
    ):
        for slot, (center, scale) in enumerate(zip(*_slots(), strict=True)):
            sampler.load(slot, center, 0, scale)
        table = sampler.end_rows(_REQUESTS)
        where, images = space.memory(table.nbytes), space.memory(out.nbytes)
        space.upload(where, table)
        sampler.fill(space.stream, images, dtype, where, len(table), _ROWS)
        space.download(out, images)
        space.wait()
    return out


def _votes_on(gpu: "Gpu") -> tuple[bool, str]:
    from ars.engine.gpu import Workspace
    from ars.engine.samplers.cuda import CudaSampler

    logits, expected = _some_logits()
    same = True
    for dtype in ("float32", "float16"):
        values, counts = logits.astype(dtype), np.empty(expected.shape, np.int32)
        with (
            closing(CudaSampler(gpu, 2, 1, FAMILIES["gaussian"], 0)) as sampler,
            closing(Workspace(gpu)) as space,
            space.queueing(),
        ):
            for slot in range(2):
                sampler.load(slot, np.zeros(1), 0, 1)
            table = sampler.end_rows(_REQUESTS)
            where, from_, to = (space.memory(array.nbytes) for array in (table, values, counts))
            space.upload(where, table)
            space.upload(from_, values)
            space.zero(to, counts.size)
            sampler.count(space.stream, from_, dtype, values.shape[1], where, len(table), _ROWS, to)
            space.download(counts, to)
            space.wait()
        same &= np.array_equal(counts, expected)
    return same, f"{_ROWS} rows in float32 and float16, ties and NaN among them, against the host"


def _check_gpu_models(name: str) -> Iterator[Check]:
    """The network on the GPU, by each library that can run it there."""
    from ars.engine.runners.tensorrt import build_plan, installed_flavours

    with tempfile.TemporaryDirectory() as folder:
        for flavour, module in installed_flavours().items():
            plan = Path(folder) / f"{flavour}.trt"
            try:
                plan.write_bytes(build_plan(module, MODEL, (1, _BATCH, _BATCH)))
            except ArsError as error:
                yield Check(flavour, False, str(error))
                continue
            yield from _check_model(name, flavour, plan)
        yield from _check_model(name, "onnxruntime-gpu", MODEL)


def _check_model(device: str, title: str, model: Path) -> Iterator[Check]:
    yield _attempt(title, lambda: _logits_of(device, model))
    yield _attempt(f"certificate, {title}", lambda: _certificate_of(device, model))


def _logits_of(device: str, model: Path) -> tuple[bool, str]:
    """A model's logits against those of ONNX Runtime on the processor, row by row."""
    images = np.random.default_rng(2).random((_BATCH, *_SHAPE), dtype=np.float32)
    reference = load_runner(MODEL, "onnxruntime")
    expected = np.concatenate([reference.run(images[row : row + 1]) for row in range(len(images))])
    (opened,) = open_devices([device], model, "auto", 1)
    with closing(opened), closing(opened.make_lanes(_SHAPE, _BATCH)) as lanes:
        apart = float(np.abs(lanes.run(images) - expected).max())
    allowed = _LOGIT_TOLERANCE * float(np.abs(expected).max())
    return apart <= allowed, f"logits at most {apart:.1e} from onnxruntime's on the processor; {allowed:.1e} is allowed"


def _certificate_of(device: str, model: Path) -> tuple[bool, str]:
    """Certificates of three inputs against the processor's, vote by vote."""
    images = np.random.default_rng(3).random((3, *_SHAPE), dtype=np.float32)
    plan, made = Plan(n0=100, n=2000, alpha=0.001), []
    for file, where in ((MODEL, CPU), (model, device)):
        with load(file, sigma=0.25, batch=_BATCH, device=where) as classifier:
            found = classifier.certify_many(enumerate(images), plan)
            made.append({one.input_id: one.result for one in found})
    expected, got = made
    classes = all(expected[i].selected == got[i].selected for i in expected)
    other = sum(int(np.abs(np.subtract(expected[i].counts, got[i].counts)).sum()) // 2 for i in expected)
    draws = math.prod((len(expected), plan.n))
    said = f"{other} of {draws:,} draws vote otherwise than on the processor"
    return classes and other <= _SHARE_OF_VOTES * draws, said
