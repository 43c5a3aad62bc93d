"""Seeded mutations of good files, through every reader:

    python tests/fuzz/campaign.py --count 20000 --seed 0

Each reader may refuse a file with an error of ARS, in one line, or accept it. Anything else is a finding: another
exception, a crash, more than 60 s, more than 2 GiB, a program that was started, a message of several lines, rows of a
store that the run does not have. A finding is printed with the number that repeats it: --reader NAME --only NUMBER.

With --here all mutations are tried in this process, without a limit of time, for a debugger or for coverage:

    python -m coverage run tests/fuzz/campaign.py --here --count 4000 && python -m coverage report
"""

import argparse
import collections
import multiprocessing
import os
import random
import resource
import signal
import sys
import tempfile
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("XDG_CACHE_HOME", tempfile.mkdtemp(prefix="ars-fuzz-"))

from ars.errors import ArsError
from fuzz.readers import READERS, Odd, Reader

SECONDS, MEMORY = 60, 2**31
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn")


def mutate(reader: Reader, seed: int, number: int) -> bytes:
    """The mutation of this number."""
    rng = random.Random(zlib.crc32(f"{reader.name} {seed} {number}".encode()))
    return reader.mutate(reader.make(), rng)


def try_one(reader: Reader, content: bytes, folder: Path) -> str:
    """What a reader makes of a file: refused, accepted, or a finding."""
    for name, make in reader.beside.items():
        (folder / name).write_bytes(make())
    path = folder / reader.file
    path.write_bytes(content)
    started.clear()
    try:
        reader.read(path)
        verdict = "accepted"
    except ArsError as error:
        message = str(error).replace(str(folder), "")
        bad = "\n" in message or len(message) > 2000
        verdict = f"finding: a message that is not one line: {message[:200]!r}" if bad else "refused"
    except Odd as odd:
        verdict = f"finding: {odd}"
    except BaseException as error:  # of any kind: that is what is looked for
        where = error.__traceback__
        while where is not None and where.tb_next is not None:
            where = where.tb_next
        place = f"{where.tb_frame.f_code.co_filename}:{where.tb_lineno}" if where else ""
        verdict = f"finding: {type(error).__name__}: {str(error)[:200]!r} at {place}"
    if started:
        verdict = f"finding: it started {started[0]}"
    if resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 > MEMORY:
        verdict = "finding: more than 2 GiB of memory"
    return verdict


started: list[str] = []


def _watch(event: str, arguments: tuple) -> None:
    if event.startswith(STARTS) and "child.py" not in str(arguments):  # the trial of a model is ours
        started.append(f"{event} {arguments!r}"[:200])


def work(reader: Reader, seed: int, numbers: list[int], answers) -> None:
    """The mutations of these numbers, in a process that may die of one."""
    sys.addaudithook(_watch)
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # libraries print warnings
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            answers.send((number, None))
            place = Path(folder) / str(number)
            place.mkdir()
            answers.send((number, try_one(reader, mutate(reader, seed, number), place)))
            for file in place.iterdir():
                file.unlink()
    answers.close()


def run_here(reader: Reader, seed: int, numbers: list[int]) -> dict[int, str]:
    """The verdict on each mutation, tried in this process."""
    verdicts = {}
    for number in numbers:
        with tempfile.TemporaryDirectory() as folder:
            verdicts[number] = try_one(reader, mutate(reader, seed, number), Path(folder))
    return verdicts


def run(reader: Reader, seed: int, numbers: list[int]) -> dict[int, str]:
    """The verdict on each mutation."""
    verdicts: dict[int, str] = {}
    context = multiprocessing.get_context("fork")
    while numbers:
        answers, theirs = context.Pipe(duplex=False)
        process = context.Process(target=work, args=(reader, seed, numbers, theirs))
        process.start()
        theirs.close()
        current = None
        try:
            while answers.poll(SECONDS):
                current, verdict = answers.recv()
                if verdict is not None:
                    verdicts[current] = verdict
            if current not in verdicts:  # otherwise it waited for the process to end
                verdicts[current] = f"finding: more than {SECONDS} s"
        except EOFError:
            process.join()
            if current is not None and current not in verdicts:
                reason = signal.Signals(-process.exitcode).name if process.exitcode < 0 else process.exitcode
                verdicts[current] = f"finding: the process ended ({reason})"
        process.kill()
        process.join()
        numbers = [number for number in numbers if number not in verdicts]
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--reader", action="append")
    parser.add_argument("--only", type=int)
    parser.add_argument("--here", action="store_true")
    options = parser.parse_args()
    readers = [reader for reader in READERS if options.reader is None or reader.name in options.reader]
    shares = sum(reader.share for reader in readers)
    totals: collections.Counter[str] = collections.Counter()
    for reader in readers:
        begun = time.monotonic()
        count = -(-options.count * reader.share // shares)
        numbers = [options.only] if options.only is not None else list(range(count))
        verdicts = (run_here if options.here else run)(reader, options.seed, numbers)
        kinds = collections.Counter(verdict.partition(":")[0] for verdict in verdicts.values())
        totals.update(kinds)
        said = ", ".join(f"{kinds[kind]} {kind}" for kind in ("refused", "accepted", "finding"))
        print(f"{reader.name:20} {len(verdicts):6} mutations: {said} ({time.monotonic() - begun:.0f} s)", flush=True)
        seen: collections.Counter[str] = collections.Counter()
        for number, verdict in sorted(verdicts.items()):
            seen[verdict[:100]] += verdict.startswith("finding")
            if verdict.startswith("finding") and seen[verdict[:100]] == 1:
                print(f"    {number}: {verdict}", flush=True)
    print(f"{sum(totals.values())} mutations: {totals['refused']} refused, {totals['accepted']} accepted, "
          f"{totals['finding']} findings")  # fmt: skip
    return 1 if totals["finding"] else 0


if __name__ == "__main__":
    sys.exit(main())
