"""Describes the machine that a benchmark runs on."""

import importlib.metadata
import os
import platform
import shutil
import subprocess
from pathlib import Path

from ars.distribution import VERSION
from ars.engine.backends import list_backends
from ars.engine.samplers.host import usable_cores, usable_instructions

__all__ = ["describe_machine"]


def describe_machine() -> dict[str, str | int | float]:
    """The processor, cores, GPU, operating system and versions, and how busy the machine was at the start."""
    facts: dict[str, str | int | float] = {
        "cpu": _processor(),
        "cores": usable_cores(),
        "noise": usable_instructions()[0],
        "gpu": _gpu() or "none",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "ars": VERSION,
    }
    for package in ("numpy", "cuda-bindings", "pycuda", *(backend.package for backend in list_backends())):
        try:
            facts[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return facts


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "Model")))
    return next(names, platform.machine())


def _gpu() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return "; ".join(found.split("\n")).strip("; ") or None
