"""Fuzzes the readers with atheris, guided by the coverage of ARS:

    python tests/fuzz/atheris_readers.py READER [libFuzzer's options, such as -max_total_time=60]

The corpus is the reader's own good file; its mutations are those of mutations.py, which know the format.
"""

import gc
import os
import random
import sys
import tempfile
import types
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent.parent))
os.environ.setdefault("XDG_CACHE_HOME", tempfile.mkdtemp(prefix="ars-fuzz-"))

from fuzz.campaign import try_one
from fuzz.readers import READERS


def instrument() -> None:
    """Record the coverage of the functions of ARS. (atheris does not see the imports of an editable install.)"""
    for function in [one for one in gc.get_objects() if isinstance(one, types.FunctionType)]:
        if function.__module__ and function.__module__.startswith(("ars.", "structure")):
            atheris.instrument_func(function)


def main() -> None:
    instrument()
    reader = next(reader for reader in READERS if reader.name == sys.argv[1])
    folder = Path(tempfile.mkdtemp(prefix="ars-fuzz-"))
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "good").write_bytes(reader.make())
    place = folder / "place"
    place.mkdir()

    def mutate(data: bytes, largest: int, seed: int) -> bytes:
        try:
            return reader.mutate(data, random.Random(seed))[:largest]
        except Exception:  # an earlier mutation broke the format
            return atheris.Mutate(data, largest)

    def test(data: bytes) -> None:
        verdict = try_one(reader, data, place)
        if verdict.startswith("finding"):
            raise RuntimeError(verdict)

    atheris.Setup([sys.argv[0], str(corpus), *sys.argv[2:]], test, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
