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


@functools.cache
def _library():
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "kernels.so"
        command = ["c++", *FLAGS, f"-I{HOST}", f"-I{NATIVE}", HOST / "kernels.cpp", "-o", made]
        run = subprocess.run(command, capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        library = ctypes.CDLL(str(made))  # it stays mapped without its file
    library.launch.restype = ctypes.c_size_t
    return library


def parameter_bytes(name: str) -> int:
    """The size of the parameters that a kernel takes; 0 for a name that no kernel has."""
    return int(_library().launch(name.encode(), _three((0, 0, 0)), _three((0, 0, 0)), bytes(1024)))


def launch(name: str, grid: Sequence[int], block: Sequence[int], form: str, *arguments: int) -> None:
    """Run a kernel; the arguments are packed as pycuda packs them, `P` being an address of this process."""
    packed = struct.pack(form, *arguments)
    assert len(packed) == parameter_bytes(name), f"{form} does not fit the parameters of {name}"
    _library().launch(name.encode(), _three(grid), _three(block), packed)


def _three(sizes: Sequence[int]):
    return (ctypes.c_uint * 3)(*[*sizes, 1, 1][:3])
