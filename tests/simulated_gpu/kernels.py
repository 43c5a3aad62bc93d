"""The project's own kernels.cu, compiled as host code: what a launch computes on the simulated GPU."""

import ctypes
import fcntl
import functools
import hashlib
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

HOST = Path(__file__).parent / "host"
NATIVE = Path(__file__).parents[2] / "engine" / "native"
KEPT = Path(__file__).parents[2] / "build" / "simulated_gpu"
FLAGS = ["-std=c++17", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]


def compiled(source: Path, *flags: str, name: str = "made.so") -> ctypes.CDLL:
    """A source file of the tests as a library."""
    made, _ = made_by("c++", *FLAGS, *flags, f"-I{HOST}", f"-I{NATIVE}", source=source, name=name)
    return ctypes.CDLL(str(made), ctypes.RTLD_GLOBAL)


def made_by(compiler: str, *flags: str, source: Path, name: str) -> tuple[Path, str]:
    """The file that a compiler makes of a source file, and what it said meanwhile. Both are kept for the next tests,
    and made anew if the compiler, its flags, or any file that the source may include are others."""
    version = subprocess.run([compiler, "--version"], capture_output=True, timeout=60).stdout
    key = hashlib.sha256(repr((compiler, version, flags, name, source.read_bytes())).encode())
    for file in sorted((*HOST.iterdir(), *NATIVE.iterdir())):
        key.update(file.name.encode() + file.read_bytes())
    folder = KEPT / key.hexdigest()
    KEPT.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # whoever needs the same file meanwhile waits for it
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=KEPT, ignore_cleanup_errors=True) as making:
                command = [compiler, *flags, str(source), "-o", str(Path(making) / name)]
                run = subprocess.run(command, capture_output=True, text=True, timeout=600)
                assert run.returncode == 0, run.stderr
                (Path(making) / "said").write_text(run.stdout + run.stderr)
                Path(making).rename(folder)
    return folder / name, (folder / "said").read_text()


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
