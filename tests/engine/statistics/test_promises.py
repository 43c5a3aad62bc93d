"""What the engine promises of a real network: the memory it takes, and how little the batch size matters."""

import subprocess
import sys

import numpy as np
import pytest

import ars
from ars.bench.networks import small_cnn
from ars.engine.statistics.plan import Plan

PEAK = """
import resource, sys, numpy as np, ars
with ars.load(sys.argv[1], sigma=0.25, batch=64, threads=2) as classifier:
    x = np.random.default_rng(0).random((1, 28, 28), dtype=np.float32)
    classifier.certify(x, n=int(sys.argv[2]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "small_cnn.onnx"
    small_cnn(path)
    return path


def test_memory_does_not_grow_with_n(network):
    def peak(n):
        return int(subprocess.run([sys.executable, "-c", PEAK, network, str(n)], capture_output=True, text=True).stdout)

    small, large = peak(1_000), peak(100_000)
    assert large <= 1.05 * small, f"{small} kB at n = 1,000 and {large} kB at n = 100,000"


def votes_by_batch(network, inputs, n):
    """The votes of the same draws, run in batches of 1, 7, 64 and the measured size."""
    rng = np.random.default_rng(0)
    x = rng.random((inputs, 1, 28, 28), dtype=np.float32)
    votes = {}
    for batch in (1, 7, 64, None):
        with ars.load(network, sigma=0.5, batch=batch) as classifier:
            done = {one.input_id: one.result.counts for one in classifier.certify_many(enumerate(x), Plan(n=n))}
        votes[batch] = np.array([done[idx] for idx in range(inputs)])
    return votes


@pytest.mark.parametrize(("inputs", "n"), [(4, 1000), pytest.param(20, 10_000, marks=pytest.mark.slow)])
def test_across_batch_sizes_at_most_one_draw_in_100_000_votes_differently(network, inputs, n):
    votes = votes_by_batch(network, inputs, n)
    for batch, counts in votes.items():
        moved = np.abs(counts - votes[64]).sum() / 2
        print(f"batch {batch or 'auto'}: {moved:.0f} of {inputs * n} draws vote differently than in batches of 64")
        assert moved <= inputs * n / 100_000
