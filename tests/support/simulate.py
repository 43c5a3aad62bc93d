"""Certification without a model: the votes of the real algorithm are drawn from known probabilities."""

import numpy as np

from ars.engine import algorithms
from ars.noise import GAUSSIAN, NoiseKind


def certify(probabilities, plan, *, seed, family=GAUSSIAN, scale=0.5, dimensions=1):
    """The certificate of one input whose answers (classes, and last nobody) have these probabilities.

    The seed decides each draw's vote, in whatever chunks they are asked for.
    """
    rng, edges = np.random.default_rng(seed), np.cumsum(probabilities)[:-1]
    procedure = algorithms.certify(np.full(dimensions, scale, np.float32), plan, family, NoiseKind.ISOTROPIC)
    wish = next(procedure)
    while True:
        try:
            votes = np.searchsorted(edges, rng.random(wish.number), side="right")
            wish = procedure.send(np.bincount(votes, minlength=len(probabilities)))
        except StopIteration as stop:
            return stop.value
