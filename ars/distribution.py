"""The name under which ARS is installed, and its version. (The distribution called `ars` is another project.)"""

import importlib.metadata
import platform
from collections.abc import Iterator

__all__ = ["NAME", "VERSION", "install_line", "list_versions"]

NAME = "ars-certify"
VERSION = importlib.metadata.version(NAME)

# What certificates and models depend on, under the names of the distributions.
_RUNS = (
    *("numpy", "scipy", "onnx", "onnxruntime", "onnxruntime-gpu", "openvino", "torch"),
    *("tensorrt", "tensorrt_rtx", "cuda-bindings", "pycuda", "ray"),
)


def install_line(extra: str) -> str:
    """The command that installs ARS with one of its extras."""
    return f"pip install '{NAME}[{extra}]'"


def list_versions() -> Iterator[tuple[str, str]]:
    """Python's version, and those of the installed packages that ARS runs on. None of them is imported."""
    yield "python", f"{platform.python_version()} ({platform.system()} {platform.machine()})"
    for name in _RUNS:
        try:
            yield name, importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
