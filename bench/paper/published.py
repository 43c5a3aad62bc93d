"""The paper's own figures (published.json), to be shown beside ours. Each names its network and data."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["AccuracyRow", "AccuracyTable", "AttackRow", "Runtime", "accuracy_tables", "attack_rows", "runtime"]


@dataclass(frozen=True)
class AccuracyRow:
    method: str
    noise: str
    network: str
    scope: str
    percent: tuple[float | None, ...]


@dataclass(frozen=True)
class AccuracyTable:
    table: str
    data: str
    radii: tuple[float, ...]
    rows: tuple[AccuracyRow, ...]


@dataclass(frozen=True)
class AttackRow:
    method: str
    noise: str
    network: str
    scope: str
    data: str
    sigma0: float
    radii: tuple[float, ...]
    before: tuple[float, ...]
    after: tuple[float, ...]


@dataclass(frozen=True)
class Runtime:
    section: str
    network: str
    data: str
    machine: str
    draws: int
    seconds_with_generator: float
    seconds_without_generator: float


@cache
def _content() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text(encoding="utf-8"))
    return content


def accuracy_tables() -> list[AccuracyTable]:
    """Tables 1 and 2: certified accuracy in percent, the best over sigma at each radius."""
    return [
        AccuracyTable(
            table["table"],
            table["data"],
            tuple(table["radii"]),
            tuple(
                AccuracyRow(r["method"], r["noise"], r["network"], r["scope"], tuple(r["percent"]))
                for r in table["rows"]
            ),
        )
        for table in _content()["accuracy"]
    ]


def attack_rows() -> list[AttackRow]:
    """Table 3: certified accuracy in percent, before and after PGD."""
    table = _content()["attack"]
    radii = tuple(table["radii"])
    return [
        AttackRow(
            row["method"],
            row["noise"],
            row["network"],
            row["scope"],
            table["data"],
            table["sigma0"],
            radii,
            tuple(row["before"]),
            tuple(row["after"]),
        )
        for row in table["rows"]
    ]


def runtime() -> Runtime:
    """Section 7.2: seconds to certify an input."""
    return Runtime(**_content()["runtime"])
