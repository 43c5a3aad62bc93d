"""nvcc compiles the kernels for the architectures that are shipped, without spills."""

import re
import shutil
import subprocess

import pytest
from simulated_gpu.kernels import NATIVE, made_by

NVCC = shutil.which("nvcc")


@pytest.mark.skipif(not NVCC, reason="nvcc is not installed")
def test_nvcc_compiles_the_kernels_for_each_architecture_without_spills():
    """For the architectures of CMakeLists.txt that this nvcc knows. `pytest -s` shows how many registers are used."""
    wanted = re.search(r"set\(gpu_architectures ([\d ]+)\)", (NATIVE.parents[1] / "CMakeLists.txt").read_text())[
        1
    ].split()
    known = subprocess.run([NVCC, "--list-gpu-code"], capture_output=True, text=True, timeout=60).stdout.split()
    chosen = [number for number in wanted if f"sm_{number}" in known]
    assert len(chosen) >= 3
    codes = [option for n in chosen for option in ("-gencode", f"arch=compute_{n},code=sm_{n}")]
    flags = "-std=c++17", "-fatbin", "-Xptxas=-v", *codes
    fatbin, said = made_by(NVCC, *flags, source=NATIVE / "kernels.cu", name="kernels.fatbin")
    assert fatbin.stat().st_size > 0
    print("", *re.findall(r"(?:Compiling entry function|Used|warning|error).*", said), sep="\n")
    assert "warning" not in said
    form = r"properties for (\w+)\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    functions = re.findall(form, said)
    assert len(functions) >= 10 * len(chosen)  # ten kernels, and the functions that they call
    for name, frame, stores, loads in functions:
        assert stores == loads == "0"
        assert int(frame) <= (16 if "stretched" in name else 0)
    registers = re.findall(r"entry function '(\w+)'.*?Used (\d+) registers", said, re.S)
    assert len(registers) == 10 * len(chosen)
    assert all(int(used) <= (96 if "stretched" in kernel else 64) for kernel, used in registers)
