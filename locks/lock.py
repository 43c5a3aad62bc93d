"""Write a lock: every package that set-up installs for some extras, at the version in constraints.txt, with its hashes.

lock.py LOCK EXTRA ...
"""

import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
BUILD = ["scikit-build-core", "nanobind", "cmake", "ninja"]

TORCH = "torch"
"""The package without hashes: README.md says why."""
TORCH_NEEDS = ["filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"]
"""Without CUDA's libraries, which only some of its files need."""


def list_requirements(extras: list[str]) -> list[str]:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    wanted = project["dependencies"] + [r for extra in extras for r in project["optional-dependencies"][extra]]
    return BUILD + TORCH_NEEDS + [requirement for requirement in wanted if not requirement.startswith(f"{TORCH}>")]


def main(lock: str, *extras: str) -> None:
    command = ["uv", "pip", "compile", "--quiet", "--universal", "--python-version", "3.11.5", "--generate-hashes"]
    command += ["--no-annotate", "--no-header", "--constraint", "constraints.txt", "--output-file", lock, "-"]
    text = "\n".join(list_requirements(list(extras)))
    subprocess.run(command, input=text, text=True, check=True, cwd=REPOSITORY)


if __name__ == "__main__":
    main(*sys.argv[1:])
