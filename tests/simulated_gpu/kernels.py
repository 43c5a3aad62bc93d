"""The project's own kernels.cu, compiled as host code: what a launch computes on the simulated GPU."""

import ctypes
import functools
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HOST = Path(__file__).parent / "host"
NATIVE = Path(__file__).parents[2] / "engine" / "native"
FLAGS = ["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def compiled(source: Path, *flags: str, name: str = "made.so") -> ctypes.CDLL:
    """A source file of the tests as a library."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / name
        command = ["c++", *FLAGS, *flags, f"-I{HOST}", f"-I{NATIVE}", source, "-o", made]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        return ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)  # it stays mapped without its file


@functools.cache
def library() -> ctypes.CDLL:
    found = compiled(HOST / "kernels.cpp")
    found.launch.restype = ctypes.c_size_t
    return found


def parameter_bytes(name: str) -> int:
    """The size of the parameters that a kernel takes; 0 for a name that no kernel has."""
    return int(library().launch(name.encode(), _three((0, 0, 0)), _three((0, 0, 0)), None, None, None))


def launch(name: str, grid: Sequence[int], block: Sequence[int], form: str, *arguments: float) -> None:
    """Run a kernel on memory of this process; the arguments are packed as CUDA's driver takes them."""
    packed, fault = struct.pack(form, *arguments), ctypes.c_int()
    size = library().launch(name.encode(), _three(grid), _three(block), packed, None, ctypes.byref(fault))
    assert size == len(packed), f"{form} does not fit the parameters of {name}"
    assert fault.value == 0, f"{name}: CUDA error {fault.value}"


def _three(sizes: Sequence[int]):
    return (ctypes.c_uint * 3)(*[*sizes, 1, 1][:3])
