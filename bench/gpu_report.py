"""`ars-bench gpu-report`: what ARS does on a GPU, in one file that can be sent to its developers."""

import dataclasses
import json
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click

from ars.bench.run.environment import describe_machine
from ars.command_line import Command
from ars.engine.samplers.host import usable_cores
from ars.engine.statistics.plan import Plan
from ars.errors import ArgumentError, ArsError, RunError, one_line
from ars.output import open_output

__all__ = ["gpu_report", "write_report"]


@click.command(
    "gpu-report",
    cls=Command,
    examples=[
        "ars-bench gpu-report",
        "ars-bench gpu-report --device cuda:1 --engine model.onnx",
    ],
)
@click.option("--device", default="cuda:0", show_default=True, help="The GPU to report on.")
@click.option("--engine", default="resnet20", show_default=True, help="As for `ars-bench run`.")
@click.option("--rounds", default=7, show_default=True, type=click.IntRange(3), help="Rounds that count.")
@click.option("--n", default=Plan.n, show_default=True, type=click.IntRange(1), help="Draws that bound a share.")
@click.option("--out", type=click.Path(path_type=Path), default="gpu-report.json", show_default=True, help="The file.")
def gpu_report(device: str, engine: str, rounds: int, n: int, out: Path) -> None:
    """Check a GPU, time it against the field's PyTorch loop, and write all of it to one file.

    The file has the machine, its devices and backends, the result of every check of `ars-engine selftest`, and, if all
    of them passed, that of `ars-bench run`. What goes wrong is in the file as well.
    """
    with open_output(out) as file:
        report = write_report(device, engine, rounds, Plan(n=n))
        file.write(json.dumps(report, indent=2) + "\n")
    click.echo(f"wrote {out}", err=True)
    failed = sum(not check["passed"] for check in report["selftest"])
    if failed:
        raise RunError(f"{device} failed {failed} checks; do not certify with it, and send {out} to the developers")
    if report["problem"]:
        raise RunError(f"{report['problem']}; {out} has what was found until then: send it to the developers")


def write_report(device: str, engine: str, rounds: int, plan: Plan) -> dict[str, Any]:
    """The content of the file. What cannot be checked or measured has its reason instead, whatever goes wrong: the file
    is for machines that nobody has tried."""
    from ars.engine.inventory import take_inventory
    from ars.engine.selftest import run_checks

    checks: list[dict[str, Any]] = []
    report = {
        "device": device,
        "machine": describe_machine(),
        "inventory": [dataclasses.asdict(item) for item in take_inventory()],
        "selftest": checks,
        "benchmark": None,
        "problem": None,
        "traceback": None,
    }
    try:
        for check in run_checks(device):
            click.echo(f"{check.name:<28} {'ok    ' if check.passed else 'FAILED'}  {check.said}")
            checks.append(dataclasses.asdict(check))
        if not all(check["passed"] for check in checks):
            return report | {"problem": "a check failed"}
        return report | {"benchmark": _benchmark(device, engine, rounds, plan)}
    except ArgumentError:
        raise
    except ArsError as error:
        return report | {"problem": str(error)}
    except Exception as error:  # a library's own error, which the developers have not seen yet
        problem = f"{type(error).__name__}: {one_line(error)}"
        return report | {"problem": problem, "traceback": traceback.format_exc().splitlines()}


def _benchmark(device: str, engine: str, rounds: int, plan: Plan) -> Any:
    from ars.bench.run.export import EXPORTERS
    from ars.bench.run.measure import Wanted, measure

    how: dict[str, Any] = {"data": None, "inputs": 20, "only_correct": False, "sigma": 0.25, "noise": "own"}
    with tempfile.TemporaryDirectory() as folder:
        result = measure(
            engine,
            Wanted((), ()),
            Path(folder),
            plan=plan,
            rounds=rounds,
            batch=None,
            threads=usable_cores(),
            device=device,
            **how,
        )
    return json.loads(EXPORTERS["json"](result))
