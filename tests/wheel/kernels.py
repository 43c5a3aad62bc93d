"""Check that the installed package has machine code of the kernels, and all sources that they include."""

import re
from pathlib import Path

from ars.engine import _native

KERNELS = Path(_native.__file__).parent / "kernels"


def find_missing(folder: Path) -> list[str]:
    sources = ["kernels.cu"]
    for name in sources:
        if (folder / name).exists():
            included = re.findall(r'^#include "(.+)"', (folder / name).read_text(), re.M)
            sources += [one for one in included if one not in sources]
    return [name for name in sources if not (folder / name).exists()]


if __name__ == "__main__":
    missing = find_missing(KERNELS)
    assert not missing, missing
    assert (KERNELS / "kernels.fatbin").read_bytes()[:4] == bytes.fromhex("50ed55ba"), "it is a CUDA fat binary"
