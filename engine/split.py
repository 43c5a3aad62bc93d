"""One run on several devices: each has a scheduler of its own, and takes the next input when it has room for one. The
noise is a function of seed, input and draw, so the certificates do not depend on which device made them."""

import dataclasses
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from ars.engine import scheduler
from ars.engine.lanes import Lanes
from ars.engine.samplers import Sampler
from ars.engine.scheduler import Finished, Job

__all__ = ["run"]

Result = TypeVar("Result")


class _Stopped(Exception):
    """Nobody waits for the results any more."""


def run(
    parts: Sequence[tuple[Lanes, Sampler]],
    jobs: Iterator[Job[Result]],
    on_draws: Callable[[int], None] = lambda draws: None,
) -> Iterator[Finished[Result]]:
    """As scheduler.run, on pairs that belong together. Where one fails, the others finish what they began."""
    if len(parts) == 1:
        yield from scheduler.run(*parts[0], jobs, on_draws)
        return
    news: queue.SimpleQueue[Finished[Result] | int | BaseException | None] = queue.SimpleQueue()
    taking = threading.Lock()
    no_more, stopped = threading.Event(), threading.Event()

    def take() -> Iterator[Job[Result]]:
        while True:
            with taking:
                job = None if no_more.is_set() else next(jobs, None)
            if job is None:
                return
            yield job

    def count(draws: int) -> None:
        if stopped.is_set():
            raise _Stopped
        news.put(draws)

    def work(lanes: Lanes, sampler: Sampler) -> None:
        try:
            for finished in scheduler.run(lanes, sampler, take(), count):
                news.put(dataclasses.replace(finished, seconds=finished.seconds / len(parts)))
            news.put(None)
        except BaseException as error:
            no_more.set()
            news.put(error)

    threads = [threading.Thread(target=work, args=part, name=f"device {i}") for i, part in enumerate(parts)]
    failure: BaseException | None = None
    try:
        for thread in threads:
            thread.start()
        at_work = len(threads)
        while at_work:
            new = news.get()
            if isinstance(new, Finished):
                yield new
            elif isinstance(new, int):
                on_draws(new)
            else:
                at_work -= 1
                failure = failure or new
    finally:
        no_more.set()
        stopped.set()
        for thread in threads:
            thread.join()
    if failure is not None:
        raise failure
