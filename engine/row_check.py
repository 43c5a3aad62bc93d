"""A check, during a run, that the vote of a row does not depend on the other rows of its batch.

A certificate speaks of one function f: the vote that the model gives a row that is alone in its batch. (If a model has
a fixed batch size, or runs on a GPU, where every batch has the full size, the rest of the batch is zeros.) The votes
that are counted come from full batches. So rows of the run's own batches are run again, and their votes are compared
with those that were counted:

- *Alone.* Every row of a run is chosen with probability at least SHARE / c, independently of all others, and run again
  alone. Here c says how many rows of a full batch cost as much as a row alone: the size of the batch if it is fixed and
  on a GPU, 5 for OpenVINO, which is slow to change the shape of its batches, and otherwise 1. The choice is made after
  the votes are known and by the operating system's randomness, so neither the model's author nor somebody who knows the
  seed can foresee it. At the start of a run the probability is higher.
- *A closer look.* If a row votes differently when run alone, up to SIBLINGS rows of the same input in the same batch
  are run again too, so that an effect that is limited to a few inputs is not lost among the others.
- *Among other rows.* Now and then, half of a batch is run again in other positions, among rows of uniform random
  values. This is not needed for the certificates, which do not mention other rows. It finds models that would
  vote differently in batches that this run does not have.

Votes are compared, not logits, because a model could hide any difference of its logits from a tolerance behind a large
constant. An honest model, too, may vote differently in another batch, if its two largest logits nearly tie and are
rounded differently. The check allows for a probability of HONEST_RATE a row.

**False alarms.** Let m rows have been run again, k of which voted differently. The evidence is the likelihood ratio of
"each row votes differently with probability q", averaged over q uniform in (HONEST_RATE, 1), to the same with q =
HONEST_RATE. If every row, whatever happened before, votes differently with probability at most HONEST_RATE, then each
of the averaged ratios is a supermartingale that begins at 1, and so is their average. By Ville's inequality it ever
exceeds 1 / FALSE_ALARM with probability at most FALSE_ALARM, no matter how the rows are chosen or when the run ends.
There is one such tally for rows alone, one for rows among others, and one for each input that led to a closer look,
which does not count the row that did. So an honest model is refused in a run with probability at most FALSE_ALARM times
2 plus the number of closer looks, of which at most m HONEST_RATE are expected.

**Power.** Suppose that of the votes that were counted for an input, a share r is not the vote of f, and that c is 1.
With n draws, none of these rows is run again with probability at most (1 - SHARE)^(r n) < exp(-r n / 768). Once one of
them is, a closer look at 64 rows ends the run if 7 of them vote differently; below r = 0.1 it takes several.
docs/soundness.md has a table.

**Fixed batches.** A model on a CPU that takes only batches of one size computes a whole batch for a row that is alone.
At the rate of 1/c, an attack on a few inputs would pass. So of such a model 2 log(1 + n / 64) rows of each input are
run again alone (10 at n = 10,000), whatever they cost. If half of an input's votes are wrong, none of them is seen with
probability 0.001. A model with a dynamic batch axis does without this.

**Cost.** A long run of n draws runs n / 768c rows again alone, meant to take the time of n / 768 rows of full batches,
and a quarter of that among other rows. The start adds 4 log(1 + n / 4c) rows. docs/soundness.md has measurements: 0.2
to 0.5 % of the time on the CPU.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ars.engine.requests import Request, name_input
from ars.errors import DependentRows

__all__ = ["RowCheck", "Tally"]

Logits = NDArray[np.float32]
Run = Callable[[NDArray[np.float32]], Logits]
"""Computes the logits of each row of a batch."""

HONEST_RATE = 0.001
FALSE_ALARM = 1e-9
SHARE = 1 / 768
SIBLINGS = 64
_START = 4
_ROWS_BEFORE_A_RUN = 8
_FIXED_START, _FIXED_SOON = 2, 64
_LOGIT_TOLERANCE = 0.01


@dataclass
class Tally:
    """The rows that were run again, and how many of them voted differently."""

    rows: int = 0
    otherwise: int = 0

    def add(self, otherwise: NDArray[np.bool_]) -> None:
        self.rows += len(otherwise)
        self.otherwise += int(otherwise.sum())

    def log_evidence(self) -> float:
        """The logarithm of the likelihood ratio that the module's docstring defines."""
        if self.otherwise <= HONEST_RATE * self.rows:
            return 0.0  # not the ratio, which may have underflowed, but no less than it
        a, b = self.otherwise + 1, self.rows - self.otherwise + 1
        above = special.betaln(a, b) + math.log(special.betaincc(a, b, HONEST_RATE) / (1 - HONEST_RATE))
        return float(above - self.otherwise * math.log(HONEST_RATE) - (b - 1) * math.log1p(-HONEST_RATE))

    def check(self, found: str) -> None:
        """Refuse the model if an honest one would not have done so. `found` says what was found of the rows."""
        if self.log_evidence() > -math.log(FALSE_ALARM):
            raise DependentRows(f"{self.otherwise} of {self.rows} {found}")


class RowCheck:
    """The check of all runs on the lanes of a device. Its methods may be called from several threads at once.

    `batch` is the number of rows in a full batch, and `row_cost` the number of its rows that cost as much as a row that
    is run alone. It is not measured, because the model's author must not have a say in it. On GPUs, where it is
    `batch`, the author has one: docs/soundness.md, section 7, says what that lets pass.
    """

    def __init__(self, batch: int, row_cost: int, *, fixed: bool = False) -> None:
        self.alone, self.in_company = Tally(), Tally()
        self._batch, self._row_cost, self._fixed = batch, row_cost, fixed
        self._rng = np.random.default_rng()  # seeded by the operating system; a Generator has a lock of its own
        self._lock = threading.Lock()
        self._draws = 0
        self._suspects: dict[int, Tally] = {}
        self._refusal: DependentRows | None = None

    def check_before_run(self, run: Run, shape: tuple[int, ...]) -> None:
        """Refuse a model that treats rows of uniform random values differently in a full batch and alone or among
        other rows.

        Here a row also counts if its logits differ by more than a hundredth of the largest, because random rows often
        have all the same vote. This finds honest mistakes, such as batch normalisation in training mode, before a run
        is begun.
        """
        rows = self._rng.random((self._batch, *shape), dtype=np.float32)
        logits = run(rows)
        alone, in_company = Tally(), Tally()
        for row in self._rng.permutation(len(rows))[:_ROWS_BEFORE_A_RUN]:
            alone.add(_differ(logits[[row]], run(rows[[row]])))
        alone.check("random rows gave other logits when they were run again alone")
        if self._batch > 1:
            kept, again = self._run_in_company(run, rows)
            in_company.add(_differ(logits[kept], again))
            in_company.check("random rows gave other logits when they were run again among other rows")

    def choose(self, requests: Sequence[Request]) -> NDArray[np.intp]:
        """Which rows of the next batch of a run to run again."""
        draws = sum(request.draws for request in requests)
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            before, after = (_START + count / self._row_cost for count in (self._draws, self._draws + draws))
            self._draws += draws
        if self._fixed:  # by the number of the draw, so that every run of every input is checked from its start
            numbers = np.concatenate([request.first_draw + np.arange(request.draws) for request in requests])
            return np.flatnonzero(self._rng.random(draws) * (_FIXED_SOON + numbers) < _FIXED_START)
        runs = SHARE * draws / self._row_cost + _START * math.log(after / before)
        return np.flatnonzero(self._rng.random(draws) * draws < runs)

    def check(
        self,
        run: Run,
        copies: NDArray[np.float32],
        logits: Logits,
        requests: Sequence[Request],
        chosen: NDArray[np.intp],
    ) -> None:
        """Run the chosen rows of a batch again. Raises DependentRows if the evidence against the model suffices."""
        votes = _votes(logits)
        ends = np.cumsum([request.draws for request in requests])
        try:
            for row in chosen:
                number = int(np.searchsorted(ends, row, side="right"))
                request = requests[number]
                if self._differs_alone(run, copies, votes, row, request.input_id):
                    siblings = np.arange(ends[number] - request.draws, ends[number])
                    with self._lock:
                        self._suspects.setdefault(request.input_id, Tally())
                    for sibling in self._rng.permutation(siblings[siblings != row])[:SIBLINGS]:
                        self._differs_alone(run, copies, votes, sibling, request.input_id)
                if self._batch > 1 and self._rng.random() * 3 * self._batch < self._row_cost:
                    kept, again = self._run_in_company(run, copies)
                    with self._lock:
                        self.in_company.add(votes[kept] != _votes(again))
                        self.in_company.check("rows voted differently when they were run again among other rows")
        except DependentRows as error:
            self._refusal = error
            raise

    def _differs_alone(
        self, run: Run, copies: NDArray[np.float32], votes: NDArray[np.intp], row: int, input_id: int
    ) -> bool:
        """Whether a row votes differently when run alone, which is added to the tallies."""
        differs = votes[[row]] != _votes(run(copies[[row]]))
        with self._lock:
            self.alone.add(differs)
            self.alone.check("rows voted differently when they were run again alone")
            if suspect := self._suspects.get(input_id):
                suspect.add(differs)
                suspect.check(f"rows of {name_input(input_id)} voted differently when they were run again alone")
        return bool(differs.any())

    def _run_in_company(self, run: Run, copies: NDArray[np.float32]) -> tuple[NDArray[np.intp], Logits]:
        """Run some rows again, in other positions and among rows of random values: their numbers, and their logits."""
        size = self._batch if self._rng.random() < 0.5 else int(self._rng.integers(2, self._batch + 1))
        kept = self._rng.permutation(len(copies))[: (size + 1) // 2]
        places = self._rng.permutation(size)[: len(kept)]
        mixed = self._rng.random((size, *copies.shape[1:]), dtype=np.float32)
        mixed[places] = copies[kept]
        return kept, run(mixed)[places]


def _votes(logits: Logits) -> NDArray[np.intp]:
    """The vote of each row, as samplers count it: one past the last class if a logit is not finite."""
    votes: NDArray[np.intp] = logits.argmax(axis=1)
    votes[~_finite(logits)] = logits.shape[1]
    return votes


def _differ(one: Logits, other: Logits) -> NDArray[np.bool_]:
    """Whether each row votes differently, or its logits differ by more than the tolerance."""
    differ: NDArray[np.bool_] = _votes(one) != _votes(other)
    finite = _finite(one) & _finite(other)
    largest = np.maximum(1, np.abs(one[finite]).max(axis=1))
    differ[finite] |= np.abs(one[finite] - other[finite]).max(axis=1) > _LOGIT_TOLERANCE * largest
    return differ


def _finite(logits: Logits) -> NDArray[np.bool_]:
    return np.asarray(np.isfinite(logits).all(axis=1))
