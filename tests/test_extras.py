"""The GPU extras: every package of an extra is built for the same major version of CUDA."""

import re
import tomllib
from pathlib import Path

import pytest

EXTRAS = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def versions_allowed(requirement, versions):
    """Those of some versions that a requirement allows."""

    def number(text):
        return tuple(int(part) for part in text.split("."))

    bounds = re.findall(r"(>=|<)([\d.]+)", requirement)
    return [v for v in versions if all((number(v) >= number(b)) == (sign == ">=") for sign, b in bounds)]


def cuda_of(requirement):
    """The major versions of CUDA that packages which meet a requirement are built for; none if they are not."""
    name = re.match(r"[\w-]+", requirement)[0]
    if name == "onnxruntime-gpu":  # up to 1.26 on PyPI for CUDA 12, and from 1.27 on for CUDA 13
        return {12 if v < "1.27" else 13 for v in versions_allowed(requirement, ["1.21", "1.26", "1.27", "1.31"])}
    if name == "cuda-bindings":
        return {int(v.partition(".")[0]) for v in versions_allowed(requirement, ["12.8", "12.9", "13.0", "13.5"])}
    suffix = re.search(r"-cu(\d+)$", name)
    return {int(suffix[1])} if suffix else set()


@pytest.mark.parametrize(("extra", "cuda"), [("gpu", 13), ("gpu-cu12", 12)])
def test_the_packages_of_an_extra_agree_on_cudas_major_version(extra, cuda):
    found = {requirement: cuda_of(requirement) for requirement in EXTRAS[extra] if not requirement.startswith("onnx>")}
    assert len(found) == 3
    assert all(versions == {cuda} for versions in found.values()), found


@pytest.mark.parametrize("extra", ["gpu", "gpu-cu12"])
def test_onnxruntime_comes_with_the_libraries_that_it_loads(extra):
    assert any(requirement.startswith("onnxruntime-gpu[cuda,cudnn]") for requirement in EXTRAS[extra])


def test_the_extras_as_they_were_would_not_agree():
    assert cuda_of("onnxruntime-gpu>=1.21") == {12, 13}
