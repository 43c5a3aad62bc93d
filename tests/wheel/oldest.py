"""Print the oldest versions that pyproject.toml allows, as constraints: `oldest.py [EXTRA ...]`."""

import re
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path


def find_oldest(extras: Sequence[str]) -> Iterator[str]:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"] + [r for e in extras for r in project["optional-dependencies"][e]]:
        name, version = re.fullmatch(r"([\w.-]+)(?:\[.*\])?>=([\d.]+).*", requirement).groups()
        yield f"{name}=={version}"


if __name__ == "__main__":
    print(*find_oldest(sys.argv[1:]), sep="\n")
