"""`ars-bench gpu-report`: what ARS does on a GPU, in one file that can be sent to its developers."""

import dataclasses
import json
import tempfile
from pathlib import Path
from typing import Any

import click

from ars.bench.run.environment import describe_machine
from ars.command_line import Command
from ars.engine.samplers.host import usable_cores
from ars.engine.statistics.plan import Plan
from ars.errors import ArsError, RunError
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
    of them passed, that of `ars-bench run`.
    """
    with open_output(out) as file:
        report = write_report(device, engine, rounds, Plan(n=n))
        file.write(json.dumps(report, indent=2) + "\n")
    click.echo(f"wrote {out}", err=True)
    failed = sum(not check["passed"] for check in report["selftest"])
    if failed:
        raise RunError(f"{device} failed {failed} checks; do not certify with it, and send {out} to the developers")


def write_report(device: str, engine: str, rounds: int, plan: Plan) -> dict[str, Any]:
    """The content of the file. What cannot be measured has its reason instead."""
    from ars.bench.run.export import EXPORTERS
    from ars.bench.run.measure import Wanted, measure
    from ars.engine.inventory import take_inventory
    from ars.engine.selftest import run_checks

    checks = []
    for check in run_checks(device):
        click.echo(f"{check.name:<28} {'ok    ' if check.passed else 'FAILED'}  {check.said}")
        checks.append(dataclasses.asdict(check))
    report = {
        "device": device,
        "machine": describe_machine(),
        "inventory": [dataclasses.asdict(item) for item in take_inventory()],
        "selftest": checks,
    }
    if not all(check["passed"] for check in checks):
        return report | {"benchmark": None, "problem": "a check failed"}
    try:
        with tempfile.TemporaryDirectory() as folder:
            how: dict[str, Any] = {"data": None, "inputs": 20, "only_correct": False, "sigma": 0.25, "noise": "own"}
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
        return report | {"benchmark": json.loads(EXPORTERS["json"](result)), "problem": None}
    except ArsError as error:
        return report | {"benchmark": None, "problem": str(error)}
