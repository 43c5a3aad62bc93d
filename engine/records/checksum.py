"""The checksum of a row of a run store.

It finds accidents: flipped bits, bad sectors, an interrupted copy. It does not find a forger, who can compute it again:
that is what an audit is for, which draws the noise again.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

__all__ = ["CHECKSUM", "check_row", "checksum"]

CHECKSUM = "checksum"
"""The name of its column."""


def checksum(row: Mapping[str, Any]) -> str:
    """The checksum of all other columns of a row, whatever their order. Numbers count by value, because SQLite stores
    0 in a column of reals as 0.0, and True as 1."""
    values = {name: _number(value) for name, value in row.items() if name != CHECKSUM}
    return hashlib.blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=8).hexdigest()


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, int) and float(value) == value else value


def check_row(row: Mapping[str, Any], what: str) -> None:
    """ValueError if a row is not what was written."""
    if row[CHECKSUM] != checksum(row):
        raise ValueError(f"the checksum of {what} does not match")
