"""Mutated files through every reader.

`campaign.py` makes seeded mutations and counts what readers make of them; `atheris_readers.py` looks for more, guided
by coverage; `native.cpp` does that for the native module, under sanitizers. `make fuzz` runs all three.
"""
