"""The GPU extras: every package of an extra is built for the same major version of CUDA."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
GPU_EXTRAS = pytest.mark.parametrize(("extra", "cuda"), [("gpu", 13), ("gpu-cu12", 12)])
# Packages without a CUDA in their names. Of some, the version is CUDA's; of others, these versions are known.
VERSIONED_AS_CUDA = re.compile(r"cuda-bindings|cuda-toolkit|nvidia-(cublas|cuda-\w+|nvjitlink|nvtx)")
FIRST_FOR_CUDA_13 = {"onnxruntime-gpu": "1.27", "torch": "2.11"}  # on PyPI; older ones are for CUDA 12
SOME_VERSIONS = {
    "onnxruntime-gpu": ["1.21", "1.26", "1.27", "1.31"],
    "cuda-bindings": ["12.8", "12.9", "13.0", "13.5"],
}


def number(version):
    return tuple(int(part) for part in version.split("."))


def cuda_of(name, version):
    """The major version of CUDA that a package is built for; none if it is for no CUDA."""
    if suffix := re.search(r"-cu(\d+)(-|$)", name):
        return int(suffix[1])
    if VERSIONED_AS_CUDA.fullmatch(name):
        return number(version)[0]
    if name in FIRST_FOR_CUDA_13:
        return 13 if number(version) >= number(FIRST_FOR_CUDA_13[name]) else 12
    return None


def cudas_of(packages):
    return {name: cuda for name, version in packages.items() if (cuda := cuda_of(name, version)) is not None}


def pinned(extra):
    """The versions that the extra and `train` are installed with."""
    lines = (ROOT / f"constraints-{extra}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


@GPU_EXTRAS
def test_the_packages_of_an_extra_agree_on_cudas_major_version(extra, cuda):
    for requirement in map(Requirement, EXTRAS[extra]):
        if requirement.name != "onnx":
            versions = SOME_VERSIONS.get(requirement.name, ["99"])
            allowed = {cuda_of(requirement.name, one) for one in requirement.specifier.filter(versions)}
            assert allowed == {cuda}, requirement


@GPU_EXTRAS
def test_the_pinned_packages_of_an_extra_and_of_training_agree_on_cudas_major_version(extra, cuda):
    packages = pinned(extra)
    for requirement in map(Requirement, (*EXTRAS[extra], *EXTRAS["train"])):
        assert requirement.specifier.contains(packages[requirement.name]), requirement
    found = cudas_of(packages)
    assert set(found.values()) == {cuda}, found
    suffix = "-cu12" if cuda == 12 else ""
    libraries = {f"nvidia-{name}{suffix}" for name in ("cublas", "cuda-runtime", "cuda-nvrtc", "cufft", "curand")}
    assert libraries | {f"nvidia-cudnn-cu{cuda}", f"tensorrt-cu{cuda}-libs", "onnxruntime-gpu", "torch"} <= set(
        packages
    )


@pytest.mark.parametrize("extra", ["gpu", "gpu-cu12"])
def test_onnxruntime_comes_with_the_libraries_that_it_loads(extra):
    assert any(requirement.startswith("onnxruntime-gpu[cuda,cudnn]") for requirement in EXTRAS[extra])


def test_what_is_tested_here_is_pinned_to_the_same_versions_for_gpus():
    here = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().lower().split())
    both = {name for name in pinned("gpu") if name in here}
    assert {name for name in both if pinned("gpu")[name] != here[name]} == set()
    assert {"torch", "onnx", "numpy", "cuda-bindings"} <= both


def test_the_ways_to_install_for_a_gpu_use_the_pinned_versions():
    for file in ("Makefile", "docker/Dockerfile.gpu"):
        (line,) = [line for line in (ROOT / file).read_text().splitlines() if "[gpu,train]" in line]
        assert "constraints-gpu.txt" in line


def test_packages_that_do_not_agree_are_found():
    """What a resolver chose for `gpu` and `train` alone: a PyTorch for CUDA 12, whose cuDNN has the other's files."""
    chosen = {"onnxruntime-gpu": "1.31.1", "nvidia-cudnn-cu13": "9.27.0.42", "torch": "2.9.1"}
    chosen |= {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cuda-runtime": "13.4.92", "numpy": "2.4.6"}
    assert set(cudas_of(chosen).values()) == {12, 13}
    assert {cuda_of("onnxruntime-gpu", version) for version in ("1.21", "1.31")} == {12, 13}
