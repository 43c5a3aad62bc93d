"""What a GPU could do at best, on paper: the tables of docs/gpu.md. `python -m ars.bench.roofline` prints them.

Computed, not measured. A draw costs at least its arithmetic at the GPU's peak rate and at least its traffic at the
memory's peak rate; the larger of the two is the roofline.
"""

import itertools
import math
from dataclasses import dataclass

__all__ = ["GPUS", "NETWORKS", "Datasheet", "Network", "draw", "int8_input_gain", "tables"]

DRAWS = 100_100
"""Of a sample: n0 = 100 and n = 100,000."""
BATCH = 512
# Instructions in the PTX of nvcc 13.0 that a warp executes, as tests/simulated_gpu/instructions.py counts them: of
# fill_lattice for one value of Gaussian noise, and of count_votes for a row with this many classes.
FILL_INSTRUCTIONS = 114.6
COUNT_INSTRUCTIONS = {10: 170, 1000: 548}
# count_votes: each thread of a warp reads every 32nd logit of a row. Four are on their way at a time, each some 500
# cycles from memory. Then the threads exchange what they found, ten times for some 25 cycles.
WARP, LOGIT_CYCLES, EXCHANGE_CYCLES = 32, 500 / 4, 10 * 25
EXPECTED_SHARE = 0.5
BYTES = {"FP32": 4, "TF32": 4, "FP16": 2, "INT8": 1}


@dataclass(frozen=True)
class Datasheet:
    """A data sheet."""

    name: str
    operations: dict[str, float]
    """Peak rate by precision, in 10^12 a second; a multiplication and an addition are two."""
    bandwidth: float
    """Of its memory, in 10^9 bytes a second."""
    cores: int
    clock: float
    """In 10^9 a second."""


@dataclass(frozen=True)
class Network:
    name: str
    dimensions: int
    classes: int
    multiplications: float
    """With their additions, in 10^9 for one image."""
    values: float
    """That move between memory and the layers, in 10^6 for one image: every layer writes its output once, with its
    normalisation, ReLU and addition fused into it, and the next reads it; the addition reads the shortcut."""


GPUS = (
    Datasheet(
        "A100", {"FP32": 19.5, "TF32": 156, "FP16": 312, "INT8": 624}, bandwidth=1555, cores=108 * 64, clock=1.41
    ),
    Datasheet("V100", {"FP32": 15.7, "FP16": 125, "INT8": 62.8}, bandwidth=900, cores=80 * 64, clock=1.53),
)
NETWORKS = (
    Network("ResNet-110, 3x32x32", 3072, 10, multiplications=0.253, values=2.62),
    Network("ResNet-50, 3x224x224", 150_528, 1000, multiplications=4.09, values=27.7),
)


@dataclass(frozen=True)
class Draw:
    """What each part of a draw takes, in microseconds."""

    fill: float
    arithmetic: float
    traffic: float
    count: float

    @property
    def model(self) -> float:
        return max(self.arithmetic, self.traffic)

    def seconds_a_sample(self, share: float) -> float:
        """The seconds per sample if the model reaches this share of its roofline."""
        return DRAWS * (self.fill + self.model / share + self.count) * 1e-6


def draw(gpu: Datasheet, network: Network, precision: str) -> Draw:
    size = BYTES[precision]
    noise = 2 if precision == "FP16" else 4  # an INT8 graph takes float32 and quantises it
    written = noise * network.dimensions / (gpu.bandwidth * 1e3)
    instructions = gpu.cores * gpu.clock * 1e3  # in a microsecond, one for each lane
    made = FILL_INSTRUCTIONS * network.dimensions / instructions
    cycles = math.ceil(network.classes / WARP) * LOGIT_CYCLES + EXCHANGE_CYCLES
    return Draw(
        fill=max(written, made),
        arithmetic=2 * network.multiplications * 1e9 / (gpu.operations[precision] * 1e6),
        traffic=size * network.values * 1e6 / (gpu.bandwidth * 1e3),
        count=max(COUNT_INSTRUCTIONS[network.classes] * WARP / instructions, cycles / (gpu.clock * 1e3) / BATCH),
    )


def int8_input_gain(gpu: Datasheet, network: Network) -> float:
    """The share of the time of an INT8 draw, at best, that an input of INT8 in place of float32 would save: the model
    reads three bytes less for each value. To write less saves nothing, because the noise takes longer to make."""
    one = draw(gpu, network, "INT8")
    saved = max(0.0, one.traffic - max(one.arithmetic, one.traffic - 3 * network.dimensions / (gpu.bandwidth * 1e3)))
    return saved / (one.fill + one.model + one.count)


def tables() -> str:
    """As Markdown: a row for each network, GPU and precision."""
    lines = []
    for network in NETWORKS:
        lines += [
            f"| {network.name} | fill | model: arithmetic | model: traffic | count | s a sample, at best | expected |",
            "|---|---|---|---|---|---|---|",
        ]
        for gpu in GPUS:
            for precision in gpu.operations:
                one = draw(gpu, network, precision)
                times = f"{one.fill:.2f} | {one.arithmetic:.2f} | {one.traffic:.2f} | {one.count:.2f}"
                seconds = " | ".join(_say(one.seconds_a_sample(share)) for share in (1, EXPECTED_SHARE))
                lines.append(f"| {gpu.name}, {precision} | {times} | {seconds} |")
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _say(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2f}"


if __name__ == "__main__":
    print(tables())
    for gpu, network in itertools.product(GPUS, NETWORKS):
        print(
            f"{gpu.name}, {network.name}: an INT8 input would save {int8_input_gain(gpu, network):.1%} of an INT8 draw"
        )
