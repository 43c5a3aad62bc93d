"""The CUDA graphs of a lane. A graph has all steps of a full batch, those of the model included, and is launched by one
call of the driver."""

from collections.abc import Callable

from ars.engine.gpu import Graph, Launch, Workspace

__all__ = ["Graphs"]

# A run needs one for each power of two up to the requests of its batches; more are kept for runs that share the lane.
_MOST = 16

Steps = tuple[Launch, ...]


class Graphs:
    """Graphs by the launches that they replay. As these say all that a kernel depends on, a graph that is found does
    what the same launches would do now, even if the memory of an earlier run has meanwhile become another run's.

    The GPU must be current when a method is called.
    """

    def __init__(self, space: Workspace) -> None:
        self._space = space
        self._found: dict[Steps, Graph | None] = {}  # None for a batch that was seen once

    def __enter__(self) -> "Graphs":
        return self

    def __exit__(self, *error: object) -> None:
        for steps in list(self._found):
            self._forget(steps)

    def find(self, steps: Steps) -> Graph | None:
        return self._found.get(steps)

    def is_worth_capturing(self, steps: Steps) -> bool:
        """Whether such a batch was seen before. A capture costs more than a launch, and many runs are short."""
        if steps in self._found:
            return self._found[steps] is None
        if len(self._found) == _MOST:
            self._forget(next(iter(self._found)))
        self._found[steps] = None
        return False

    def capture(self, steps: Steps, work: Callable[[], None]) -> Graph:
        made = self._space.capture(work)
        self._found[steps] = made
        return made

    def _forget(self, steps: Steps) -> None:
        graph = self._found.pop(steps)
        if graph is not None:
            graph.close()
