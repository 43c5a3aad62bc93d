"""A certificate that can be checked by hand.

A linear classifier on 3072 dimensions is smoothed with anisotropic Gaussian noise. The decision boundary of the
smoothed classifier is known, so the certified radius can be compared with the true distance, which it must not exceed.

Run it with `python examples/linear.py` in an environment with ARS.
"""

import time

import numpy as np

import ars
from ars.engine.requests import Phase, Request
from ars.engine.samplers.host import HostSampler
from ars.engine.statistics.certificate import format_radius

DIMENSIONS, N0, N, ALPHA, BATCH = 3072, 100, 100_000, 0.001, 1000


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(DIMENSIONS, dtype=np.float32)
    mean = rng.normal(0, 0.1, DIMENSIONS).astype(np.float32)
    scale = rng.uniform(0.25, 1.0, DIMENSIONS).astype(np.float32)
    weights = rng.normal(0, 1, DIMENSIONS).astype(np.float32) / scale  # it relies on the pixels with little noise
    distance = 1.0
    bias = float(weights @ (x + mean)) - distance * float(np.linalg.norm(weights))

    sampler = HostSampler(1, DIMENSIONS, ars.FAMILIES["gaussian"], seed=0, threads=2)
    sampler.load(0, x, mean, scale)
    batch = np.empty((BATCH, DIMENSIONS), np.float32)

    def votes(phase: Phase, draws: int) -> np.ndarray:
        counts = np.zeros(3, np.int64)
        for first in range(0, draws, BATCH):
            request = [Request(0, 0, phase, first, min(BATCH, draws - first))]
            copies = batch[: request[0].draws]
            sampler.fill(copies, request)
            margin = copies @ weights - bias
            counts += sampler.count(np.stack([margin, -margin], axis=1), request)[0]
        return counts

    start = time.perf_counter()
    selected = int(votes(Phase.SELECTION, N0)[:2].argmax())
    counts = votes(Phase.ESTIMATION, N).tolist()
    plan = ars.Plan(N0, N, ALPHA)
    certificate = ars.certify_votes(
        counts, selected, plan=plan, family="gaussian", scale=scale, kind=ars.NoiseKind.DATASET
    )
    seconds = time.perf_counter() - start

    print(f"a linear classifier on {DIMENSIONS} dimensions, true distance to its smoothed boundary {distance:.3f}")
    print(f"{N0} + {N} draws in {seconds:.2f} s; votes {counts[0]} to {counts[1]}, {counts[2]} for nobody")
    print(f"class {certificate.predicted}, certified l2 radius {format_radius(certificate.radius)}, alpha {ALPHA}")
    print(f"K {format_radius(certificate.K)}, min(sigma) {certificate.sigma_min:.3f}, scope {certificate.scope}")
    if certificate.radius > distance:
        raise SystemExit("the certificate is wrong")


if __name__ == "__main__":
    main()
