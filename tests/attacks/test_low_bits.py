"""Classifiers that read from the low bits of a noisy copy which input it came from.

Two inputs lie next to each other. A classifier that knows both tests for each value of a noisy copy whether it can be
made from the first input at all, and answers the input that fits more values. Certified around both inputs, it would
prove two things that contradict each other. With noise stream 1 it does; with noise stream 2 it must not.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper
from support import models
from support.engine_runs import certify, records

from ars import Plan, certify_votes
from ars.engine.cli import main
from ars.engine.lattice import Lattice, choose_step
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.noise import FAMILIES, NoiseKind

# An attempt is wrong by chance with a probability of at most 2 ALPHA, so 10^4 of them with one of at most 2e-5.
ALPHA = 1e-9
DRAWS = 400


@dataclass(frozen=True)
class Attempt:
    """Two neighbouring inputs, their common noise, and what the classifier looks at."""

    family: str
    x: tuple[np.ndarray, np.ndarray]
    mean: np.ndarray
    scale: np.ndarray
    reader: str
    seed: int


def random_attempt(number: int) -> Attempt:
    rng = np.random.default_rng(number)
    d = int(rng.choice([16, 49, 64, 130]))
    sigma = float(rng.choice([0.12, 0.25, 0.5, 1.0, 2.0]))
    x = {
        "constant": np.full(d, rng.random(), np.float32),
        "8 bits": (rng.integers(0, 256, d) / np.float32(255)).astype(np.float32),
        "any": rng.random(d, np.float32),
        "on a boundary": ((rng.integers(0, 256, d) + 0.5) / np.float32(256)).astype(np.float32),
    }[rng.choice(["constant", "8 bits", "any", "on a boundary"])]
    maps = rng.random() < 0.5
    mean = rng.normal(0, 0.3, d).astype(np.float32) * np.float32(maps)
    scale = (sigma * (1 + rng.random(d) * maps)).astype(np.float32)
    kind = rng.choice(["one unit in the last place", "some units", "half a step", "a random direction"])
    if kind == "one unit in the last place":
        other = np.nextafter(x, np.float32(9))
    elif kind == "some units":
        other = (x.view(np.int32) + rng.integers(1, 9, d, dtype=np.int32)).view(np.float32)
    elif kind == "half a step":
        other = x + np.float32(2**-9)
    else:
        direction = rng.normal(0, 1, d)
        other = x + (0.01 * sigma * direction / np.linalg.norm(direction)).astype(np.float32)
    reader = str(rng.choice(["reachable", "reachable", "parity", "lowest bits"]))
    return Attempt(str(rng.choice(list(FAMILIES))), (x, other), mean, scale, reader, number)


LATTICE_READERS = ["likelihood", "likelihood", "parity of cells"]


def lattice_attempt(number: int) -> Attempt:
    """An attempt with a reader that knows the lattice. Most pairs are so far apart that both can be certified."""
    near, rng = random_attempt(number), np.random.default_rng((number, 1))
    reader = str(rng.choice(LATTICE_READERS))
    if rng.random() < 0.2:
        return replace(near, reader=reader)
    x = near.x[0]
    direction = rng.normal(0, 1, x.size) * (rng.random(x.size) < rng.choice([0.05, 1.0]))
    direction[0] += 1e-3
    direction *= rng.uniform(0.1, 2) / FAMILIES[near.family].weighted_norm(direction, near.scale)
    return replace(near, x=(x, (x + direction).astype(np.float32)), reader=reader)


def log_probability(cells: np.ndarray, center: np.ndarray, attempt: Attempt, step: float) -> np.ndarray:
    """For each noisy copy, the logarithm of the probability of its cells, if the noise around the center is ideal."""
    family, scale = FAMILIES[attempt.family], attempt.scale.astype(np.float64)
    if family.stretched:
        return -np.abs((cells * step - center) / scale).max(1) * scale.size
    cdf = family.distribution.cdf
    ends = [cdf(((cells + side) * step - center) / scale) for side in (-0.5, 0.5)]
    return np.log(np.maximum(ends[1] - ends[0], 1e-300)).sum(1)


def read_cells(attempt: Attempt, y: np.ndarray) -> np.ndarray:
    """The answers of a classifier that knows the lattice."""
    step = choose_step(float(attempt.scale.min()))
    centers, cells = [x.astype(np.float64) + attempt.mean for x in attempt.x], np.rint(y / step)
    if attempt.reader == "likelihood":  # no classifier tells the two inputs apart better (Neyman and Pearson)
        scores = [log_probability(cells, center, attempt, step) for center in centers]
    else:  # of the distance from the cell of each input
        scores = [-((cells - np.rint(center / step)) % 2).mean(1) for center in centers]
    return (scores[1] > scores[0]).astype(int)


def reachable(y: np.ndarray, center: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Whether a value is fma(scale, z, center) for a float32 z, tried for the z that are nearest."""
    nearest, found = ((y - center.astype(np.float64)) / scale).astype(np.float32), np.zeros(y.shape, bool)
    for step in range(-2, 3):
        z = (nearest.view(np.int32) + np.int32(step)).view(np.float32)
        found |= (scale.astype(np.float64) * z + center).astype(np.float32) == y
    return found


def answers(attempt: Attempt, y: np.ndarray) -> np.ndarray:
    """The classifier: 0 or 1 for each noisy copy, whichever input it seems to come from."""
    if attempt.reader in LATTICE_READERS:
        return read_cells(attempt, y)
    centers = [x + attempt.mean for x in attempt.x]
    if attempt.reader == "reachable":
        scores = [reachable(y, center, attempt.scale).mean(1) for center in centers]
        return (scores[1] > scores[0]).astype(int)
    if attempt.reader == "parity":  # of the distance from each input in units of its last place
        units = [np.spacing(np.abs(center)) for center in centers]
        odd = [np.rint((y - center.astype(np.float64)) / unit) % 2 for center, unit in zip(centers, units, strict=True)]
        return (odd[1].mean(1) < odd[0].mean(1)).astype(int)
    bits = y.view(np.int32) & 0xFF  # how often the low bits are those of each input
    same = [(bits == (center.view(np.int32) & 0xFF)).mean(1) for center in centers]
    return (same[1] > same[0]).astype(int)


def contradicts(attempt: Attempt, noise_stream: int) -> bool:
    """Whether the certificates around the two inputs cannot both be true."""
    apart, sizes = attack(attempt, noise_stream)
    return apart < sum(sizes)


def attack(attempt: Attempt, noise_stream: int) -> tuple[float, tuple[float, ...]]:
    """How far apart the inputs are, and if they are certified for different classes, the sizes K of the two regions.
    The regions must not overlap: a point in both would have two classes."""
    family = FAMILIES[attempt.family]
    lattice = Lattice(choose_step(float(attempt.scale.min()))) if noise_stream == 2 else None
    made = []
    for x in attempt.x:
        sampler = HostSampler(1, x.size, family, attempt.seed, lattice=lattice)
        sampler.load(0, x, attempt.mean, attempt.scale)
        y = np.empty((DRAWS, x.size), np.float32)
        sampler.fill(y, [Request(0, len(made), Phase.ESTIMATION, 0, DRAWS)])
        hits = int(answers(attempt, y).sum())
        counts, selected = (DRAWS - hits, hits, 0), int(hits > DRAWS / 2)
        eta = lattice.error(x, attempt.mean, attempt.scale, family) if lattice else 0.0
        plan = Plan(n0=1, n=DRAWS, alpha=ALPHA)
        kind = NoiseKind.DATASET
        made.append(certify_votes(counts, selected, plan=plan, family=family, scale=attempt.scale, kind=kind, eta=eta))
    apart = family.weighted_norm(attempt.x[1].astype(np.float64) - attempt.x[0], attempt.scale)
    one, other = made
    if one.abstained or other.abstained or one.predicted == other.predicted:
        return apart, ()
    return apart, (one.K, other.K)


def test_noise_stream_1_certifies_contradictions():
    """The negative control: the same attempts succeed where the noise is not on a lattice."""
    assert sum(contradicts(random_attempt(number), 1) for number in range(100)) >= 15


@pytest.mark.parametrize(
    "attempts", [range(300), pytest.param(range(300, 10_300), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_noise_stream_2_certifies_no_contradiction(attempts):
    assert [number for number in attempts if contradicts(random_attempt(number), 2)] == []


@pytest.mark.parametrize(
    "attempts", [range(300), pytest.param(range(300, 10_300), marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_the_best_reader_of_cells_gets_no_contradiction_from_noise_stream_2(attempts):
    found = {number: attack(lattice_attempt(number), 2) for number in attempts}
    assert [number for number, (apart, sizes) in found.items() if apart < sum(sizes)] == []
    close = [sum(sizes) / apart for apart, sizes in found.values() if sizes]
    assert len(close) > len(attempts) / 10, "many pairs are certified for different classes"
    assert max(close) > 0.6, "the regions nearly touch, so a little more would be a contradiction"


def write_parity_reader(path: Path, shape: tuple[int, ...]) -> None:
    """A float32 classifier: is any value between -1/2 and -1/4 an odd number of units of 2^-25?

    At sigma 1/2, such a value comes from a z below -1, whose half is a multiple of 2^-24. So its last bit is that of x.
    """
    nodes = [
        helper.make_node("Greater", ["x", "low"], ["above"]),
        helper.make_node("Less", ["x", "high"], ["below"]),
        helper.make_node("And", ["above", "below"], ["inside"]),
        helper.make_node("Cast", ["inside"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "units"], ["scaled"]),
        helper.make_node("Floor", ["scaled"], ["floor"]),
        helper.make_node("Sub", ["scaled", "floor"], ["rest"]),
        helper.make_node("Mul", ["rest", "mask"], ["odd"]),
        helper.make_node("Flatten", ["odd"], ["flat"]),
        helper.make_node("ReduceSum", ["flat", "axis"], ["score"]),
        helper.make_node("Sub", ["limit", "score"], ["even"]),
        helper.make_node("Concat", ["even", "score"], ["logits"], axis=1),
    ]
    numbers = {"low": -0.5, "high": -0.25, "units": 2.0**24, "limit": 0.5}
    weights = [(name, np.float32(number)) for name, number in numbers.items()] + [("axis", np.array([1]))]
    models.save(path, nodes, [models.value("x", "n", *shape)], [models.value("logits", "n", 2)], weights)


@pytest.fixture
def neighbours(tmp_path, monkeypatch):
    """Two images that are one unit in the last place apart, and the classifier that tells them apart."""
    monkeypatch.chdir(tmp_path)
    shape = (3, 32, 32)
    write_parity_reader(Path("reader.onnx"), shape)
    x = np.full((2, *shape), 0.3125, np.float32)  # an even number of units of 2^-25
    x[1] = np.nextafter(x[0], np.float32(1))
    np.savez("data.npz", x=x, y=np.array([0, 1]))
    return float(np.linalg.norm((x[1] - x[0]).ravel()))


def certified(noise_stream):
    result = certify("--sigma", "0.5", "--noise-stream", noise_stream, engine="reader.onnx", n=1000)
    assert result.exit_code == 0, result.output
    assert CliRunner().invoke(main, ["audit", "run.sqlite"]).exit_code == 0
    return [certificate for _, _, certificate, _, _ in records()]


def test_a_parity_reader_contradicts_itself_with_noise_stream_1(neighbours):
    one, other = certified("1")
    assert (one.predicted, other.predicted) == (0, 1)
    assert min(one.radius, other.radius) > 1 > 1e-5 > neighbours
    assert "real arithmetic" in str(one.assumption)


def test_a_parity_reader_does_not_contradict_itself_with_noise_stream_2(neighbours):
    one, other = certified("2")
    assert one.predicted == other.predicted
    assert one.noise_stream == 2
    assert one.assumption is None
