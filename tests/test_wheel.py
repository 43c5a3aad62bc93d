"""What is in a wheel: all of the packages and the kernels, but no C++. `make wheel` builds a whole one."""

import importlib.util
import re
import shutil
import subprocess
import tomllib
import zipfile
from pathlib import Path

from scikit_build_core import build

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PACKAGES = PROJECT["tool"]["scikit-build"]["wheel"]["packages"]


def load_script(name):
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / "tests" / "wheel" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_wheel_has_every_file_of_the_packages_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    name = build.build_wheel(
        str(tmp_path), {"wheel.cmake": "false", "wheel.platlib": "true", "build-dir": str(tmp_path / "build")}
    )
    with zipfile.ZipFile(tmp_path / name) as wheel:
        packed = {file for file in wheel.namelist() if file.startswith("ars/")}
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES.values()],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    inside = {path if path.startswith("ars/") else f"ars/{path}" for path in listed if (REPOSITORY / path).exists()}
    assert packed == {path for path in inside if not path.startswith("ars/engine/native/")}


def test_the_kernels_are_installed_with_all_that_they_include(tmp_path):
    kernels = load_script("kernels")
    assert kernels.find_missing(kernels.KERNELS) == []
    shutil.copytree(kernels.KERNELS, tmp_path / "kernels")
    (tmp_path / "kernels" / "philox.h").unlink()
    assert kernels.find_missing(tmp_path / "kernels") == ["philox.h"], "so it would be found"


def test_the_oldest_versions_are_those_of_pyproject():
    oldest = list(load_script("oldest").find_oldest(["cpu", "gpu"]))
    assert f"numpy=={re.search(r'numpy>=([0-9.]+)', str(PROJECT['project']['dependencies']))[1]}" in oldest
    assert any(line.startswith("onnxruntime-gpu==") for line in oldest)
