"""`ars-engine selftest`: checks that a device computes the right noise, votes, logits and certificates. It is meant for
machines that ARS has not run on before."""

import hashlib
import itertools
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ars.engine.backends import list_backends, load_runner
from ars.engine.devices import CPU, choose_devices, open_devices
from ars.engine.lattice import Lattice
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler, usable_instructions
from ars.engine.smoothed import load
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError, ArsError, one_line
from ars.noise import FAMILIES, Family

if TYPE_CHECKING:
    from ars.engine.gpu import Gpu

__all__ = ["Check", "run_checks"]

MODEL = Path(__file__).with_name("selftest.onnx")
_SHAPE, _BATCH = (3, 8, 8), 64
# Odd on purpose: most rows do not start at a multiple of 16 bytes, and the last block of a row is not full.
_DIMENSIONS = 1023
_REQUESTS = [
    Request(0, 3, Phase.SELECTION, 0, 5),
    Request(1, 2**32 - 1, Phase.ESTIMATION, 2**32 - 2, 4),
    Request(1, 7, Phase.PREDICTION, 2**56 - 3, 0),
    Request(0, 7, Phase.PREDICTION, 2**56 - 3, 3),
]
_ROWS = sum(request.draws for request in _REQUESTS)
# Noise stream 1 has no lattice. The step of noise stream 2 leaves every tenth value to its slow path.
_STREAMS = {1: None, 2: Lattice(2.0**-12)}
_VALUES = f"{_ROWS * _DIMENSIONS:,} values of each family and noise stream"
# A GPU may round a network's sums differently from a CPU, and by default TensorRT rounds factors to 10 bits (TF32).
_LOGIT_TOLERANCE, _SHARE_OF_VOTES = 0.01, 0.01


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    passed: bool
    said: str
    """What was compared, and how it came out."""


def run_checks(device: str, backend: str | None = None) -> Iterator[Check]:
    """Run all checks of a device, or those of one backend there, and yield the result of each as soon as it is
    known."""
    names = choose_devices(device, MODEL)
    if len(names) > 1:
        raise ArgumentError("device", device, "check one at a time")
    (name,) = names
    if name == CPU:
        yield _attempt("noise", _check_noise)
        yield _attempt("votes", _check_votes)
    else:
        from ars.engine.gpu import Gpu

        with closing(Gpu(int(name.removeprefix("cuda:")))) as gpu:
            yield _attempt("noise", lambda: _check_noise_on(gpu))
            yield _attempt("votes", lambda: _check_votes_on(gpu))
    yield from _check_backends(name, backend)


def _attempt(name: str, check: Callable[[], tuple[bool, str]]) -> Check:
    try:
        return Check(name, *check())
    except Exception as error:
        return _failed(name, error)


def _failed(name: str, error: Exception) -> Check:
    """The error may be a library's own, on a machine that nobody has seen: the other checks still run."""
    if isinstance(error, ArsError):
        return Check(name, False, str(error))
    return Check(name, False, f"{type(error).__name__}: {one_line(error)}; please report this")


def _slots() -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The centers and scales of two slots, all of them exact in float32."""
    steps = np.arange(2 * _DIMENSIONS, dtype=np.float32).reshape(2, -1)
    return steps / np.float32(64) - np.float32(8), steps / np.float32(512) + np.float32(1)


def _host_noise(family: Family, stream: int, instructions: str) -> NDArray[np.float32]:
    lattice = _STREAMS[stream]
    host = HostSampler(2, _DIMENSIONS, family, seed=2**63 + 11, lattice=lattice, instructions=instructions)
    for slot, (center, scale) in enumerate(zip(*_slots(), strict=True)):
        host.load(slot, center, 0, scale)
    out = np.empty((_ROWS, _DIMENSIONS), np.float32)
    host.fill(out, _REQUESTS)
    return out


def _is_known(noise: NDArray[np.float32], family: Family, stream: int) -> bool:
    """Whether noisy copies from `_host_noise` have the bits that this noise stream gives them."""
    return hashlib.sha256(noise.tobytes()).hexdigest() == family.selftest_sha256[stream - 1]


def _some_logits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Logits with ties and with values that are not finite, and the votes that they give. The finite ones are small
    whole numbers, which float16 holds exactly. There are more classes than threads of a warp."""
    classes = 100
    logits = np.random.default_rng(1).integers(-3, 4, (_ROWS, classes)).astype(np.float32)
    logits[[1, 4, 7, 11], [0, 99, 37, 64]] = np.nan, np.inf, -np.inf, np.nan
    votes = np.where(np.isfinite(logits).all(1), logits.argmax(1), classes)
    owners = np.repeat(np.arange(len(_REQUESTS)), [request.draws for request in _REQUESTS])
    counts = np.zeros((len(_REQUESTS), classes + 1), np.int64)
    np.add.at(counts, (owners, votes), 1)
    return logits, counts


def _check_noise() -> tuple[bool, str]:
    sets = usable_instructions()
    for (name, family), stream, instructions in itertools.product(FAMILIES.items(), _STREAMS, sets):
        if not _is_known(_host_noise(family, stream, instructions), family, stream):
            made = f"{name} noise of noise stream {stream}, made with {instructions} instructions,"
            return False, f"{made} does not have its known bits"
    return True, f"{_VALUES} have their known bits, by {', '.join(sets)}"


def _check_votes() -> tuple[bool, str]:
    logits, expected = _some_logits()
    host = HostSampler(2, 1, FAMILIES["gaussian"], 0)
    for slot in range(2):
        host.load(slot, np.zeros(1), 0, 1)
    return np.array_equal(host.count(logits, _REQUESTS), expected), f"{_ROWS} rows, ties and NaN among them"


def _check_noise_on(gpu: "Gpu") -> tuple[bool, str]:
    wrong = 0
    for (name, family), stream in itertools.product(FAMILIES.items(), _STREAMS):
        known = _host_noise(family, stream, "scalar")
        if not _is_known(known, family, stream):
            return False, f"the host's own {name} noise of noise stream {stream} does not have its known bits"
        for dtype in ("float32", "float16"):
            with np.errstate(over="ignore"):
                expected = known.astype(dtype)
            found = _fill_on(gpu, family, stream, dtype)
            wrong += int((found.view(f"u{found.itemsize}") != expected.view(f"u{found.itemsize}")).sum())
    values = f"{_VALUES}, in float32 and float16"
    return wrong == 0, f"{values}, equal the host's bit for bit" if wrong == 0 else f"{wrong:,} of {values}, differ"


def _fill_on(gpu: "Gpu", family: Family, stream: int, dtype: str) -> NDArray[np.floating]:
    from ars.engine.gpu import Workspace
    from ars.engine.samplers.cuda import CudaSampler

    out = np.empty((_ROWS, _DIMENSIONS), dtype)
    with (
        closing(CudaSampler(gpu, 2, _DIMENSIONS, family, seed=2**63 + 11, lattice=_STREAMS[stream])) as sampler,
        closing(Workspace(gpu)) as space,
        space.queueing(),
    ):
        for slot, (center, scale) in enumerate(zip(*_slots(), strict=True)):
            sampler.load(slot, center, 0, scale)
        table = sampler.end_rows(_REQUESTS)
        where, images = space.memory(table.nbytes), space.memory(out.nbytes)
        space.upload(where, table)
        space.launch(sampler.fill(images, dtype, where, len(table), _ROWS))
        space.download(out, images)
        space.wait()
    return out


def _check_votes_on(gpu: "Gpu") -> tuple[bool, str]:
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
            space.set_words(to, 0, counts.size)
            space.launch(sampler.count(from_, dtype, values.shape[1], where, len(table), _ROWS, to))
            space.download(counts, to)
            space.wait()
        same &= np.array_equal(counts, expected)
    return same, f"{_ROWS} rows in float32 and float16, ties and NaN among them, against the host"


def _check_backends(device: str, only: str | None) -> Iterator[Check]:
    """A small network on the device, by each installed backend that can run it there."""
    backends = [one for one in list_backends() if one.runs_on_device(device) and only in (None, one.name)]
    checked = False
    with tempfile.TemporaryDirectory() as folder:
        for backend in backends:
            if backend.find_problem() is not None:
                continue
            try:
                with _current(device):
                    file = MODEL if backend.reads(MODEL) else backend.load().convert(MODEL, Path(folder), _BATCH)
            except Exception as error:
                checked = True
                yield _failed(backend.name, error)
                continue
            if file is not None:
                checked = True
                yield from _check_model(device, backend.name, file)
    if not checked and only is None:
        yield Check("model", False, f"no backend runs models on {device}; `ars-engine devices` says what to install")


@contextmanager
def _current(device: str) -> Iterator[None]:
    """Inside this context, a GPU is the one that engines are built for."""
    if device == CPU:
        yield
        return
    from ars.engine.gpu import Gpu

    with closing(Gpu(int(device.removeprefix("cuda:")))) as gpu, gpu.current():
        yield


def _check_model(device: str, backend: str, file: Path) -> Iterator[Check]:
    yield _attempt(backend, lambda: _compare_logits(device, backend, file))
    yield _attempt(f"certificate, {backend}", lambda: _compare_certificates(device, backend, file))


def _compare_logits(device: str, backend: str, file: Path) -> tuple[bool, str]:
    """Compares the logits of a batch with those of single rows on the CPU."""
    images = np.random.default_rng(2).random((_BATCH, *_SHAPE), dtype=np.float32)
    reference = load_runner(MODEL)
    expected = np.concatenate([reference.run(images[row : row + 1]) for row in range(len(images))])
    (opened,) = open_devices([device], file, backend, 1)
    with closing(opened), closing(opened.make_lanes(_SHAPE, _BATCH)) as lanes:
        apart = float(np.abs(lanes.run(images) - expected).max())
    allowed = _LOGIT_TOLERANCE * float(np.abs(expected).max())
    said = f"logits differ by at most {apart:.1e} from {reference.name}'s on the CPU; {allowed:.1e} is allowed"
    return apart <= allowed, said


def _compare_certificates(device: str, backend: str, file: Path) -> tuple[bool, str]:
    """Compares the certificates of three inputs, vote by vote, with those that `auto` makes on the CPU."""
    images = np.random.default_rng(3).random((3, *_SHAPE), dtype=np.float32)
    plan, made = Plan(n0=100, n=2000, alpha=0.001), []
    for model, where, by in ((MODEL, CPU, "auto"), (file, device, backend)):
        with load(model, sigma=0.25, seed=0, batch=_BATCH, device=where, backend=by) as classifier:
            found = classifier.certify_many(enumerate(images), plan)
            made.append({one.input_id: one.result for one in found})
    expected, got = made
    classes = all(expected[i].selected == got[i].selected for i in expected)
    other = sum(int(np.abs(np.subtract(expected[i].counts, got[i].counts)).sum()) // 2 for i in expected)
    draws = len(expected) * plan.n
    said = f"{other} of {draws:,} draws vote differently than on the CPU"
    return classes and other <= _SHARE_OF_VOTES * draws, said
