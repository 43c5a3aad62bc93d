"""One run on several devices. Each device has a scheduler of its own, which takes the next input when it has room for
one. The noise is a function of seed, input and draw, so a certificate does not depend on the device that made it."""

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
    """The consumer stopped iterating."""


def run(
    devices: Sequence[tuple[Lanes, Sampler]],
    jobs: Iterator[Job[Result]],
    on_draws: Callable[[int], None] = lambda draws: None,
) -> Iterator[Finished[Result]]:
    """The results of all jobs, as `scheduler.run` gives them, from the lanes and samplers of several devices.

    If one device fails, the others finish the inputs that they have begun, and then the error is raised.
    """
    if len(devices) == 1:
        yield from scheduler.run(*devices[0], jobs, on_draws)
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
                news.put(dataclasses.replace(finished, seconds=finished.seconds / len(devices)))
            news.put(None)
        except BaseException as error:
            no_more.set()
            news.put(error)

    threads = [threading.Thread(target=work, args=pair, name=f"device {i}") for i, pair in enumerate(devices)]
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
