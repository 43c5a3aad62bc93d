"""A run in which one call of CUDA's driver, or of the libraries, fails: once, or from then on.

`PYTHONPATH=tests python -m simulated_gpu.faults` runs it for every call, each in a process of its own, and prints what
became of them. With the environment of tests/gpu_lab.sh the binding is the real pycuda, whose destructors may abort.
"""

import gc
import json
import os
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

import ars
from ars.engine.row_check import RowCheck
from ars.errors import ArsError, one_line
from simulated_gpu import installed
from simulated_gpu.machine import Faults, Machine


def answer(machine: Machine, engine: Path | str, x: np.ndarray, faults: Faults) -> object:
    """The prediction, or the error, of a run with such a fault. What it left behind is then collected."""
    machine.reset()
    machine.faults = faults
    try:
        with ars.load(engine, sigma=0.1, batch=64, threads=1, device="cuda:0") as classifier:
            return classifier.predict(x, n=300)
    except ArsError as error:
        return error
    finally:
        if any(machine.held().values()):
            gc.collect()  # it takes its time


def outcome(machine: Machine, engine: Path, x: np.ndarray, faults: Faults) -> tuple[str | None, str]:
    """The call that failed, and what became of the run, which has a process of its own."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        faults.announce = lambda name: os.write(writing, json.dumps([name, ""]).encode() + b"\n")
        try:
            found = answer(machine, engine, x, faults)
        except Exception as error:  # any other is what this looks for
            os.write(writing, json.dumps([faults.happened, f"a traceback ({one_line(error)})"]).encode())
            os._exit(0)
        left = "" if faults.lasting else ", ".join(what for what, number in machine.held().items() if number)
        kind = "the usual answer"
        if isinstance(found, ArsError):
            kind = "one sentence" if "\n" not in str(found) else "several lines"
        os.write(
            writing, json.dumps([faults.happened, kind + (f", and behind stays: {left}" if left else "")]).encode()
        )
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        *_, last = [json.loads(line) for line in pipe] or [[None, ""]]
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return last[0], last[1] if status == 0 else f"the process ends with status {status}"


def main() -> None:
    from support import models

    from simulated_gpu.tensorrt import make_plan

    RowCheck.choose = lambda self, draws: np.empty(0, np.intp)  # every run makes the same calls
    x = np.random.default_rng(3).random((1, 4, 4), dtype=np.float32)
    with tempfile.TemporaryDirectory() as folder, installed() as machine:
        os.environ["PATH"] = ""  # kernels that do not load are not compiled: it takes long
        engine = Path(folder) / "model.trt"
        engine.write_bytes(make_plan(models.linear(Path(folder) / "model.onnx").read_bytes()))
        for lasting in (False, True):
            by_call: dict[str, Counter[str]] = defaultdict(Counter)
            for number in range(1, 10_000):
                call, what = outcome(machine, engine, x, Faults(number, "launch" if lasting else "error", lasting))
                if call is None:
                    break
                by_call[what][call] += 1
            print(f"{number - 1} calls, each of which fails {'from then on' if lasting else 'once'}:")
            for what, calls in sorted(by_call.items()):
                names = "" if what == "one sentence" else ", at " + ", ".join(f"{n} x {c}" for c, n in calls.items())
                print(f"  {sum(calls.values())} times {what}{names}")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
