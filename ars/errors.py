"""Every error that ARS raises on purpose.

ArsError
├── InputError            the user's input is wrong: exit status 2 (also a ValueError)
│   ├── ArgumentError     an argument has an invalid value; the message names both
│   ├── FileError         a file cannot be used; the message names it
│   │   ├── DataError     a data file
│   │   ├── ModelError    a model file
│   │   │   └── NotExportable   a module of this process that does not become ONNX
│   │   └── StoreError    a run store
│   ├── MissingPackage    an optional package is missing; the message has the command that installs it
│   └── UnknownName       a name is not known; the message suggests the nearest one
└── RunError              a run failed after it had started: exit status 1
    ├── DependentRows     a model's vote for a row depends on the rest of its batch
    ├── DeviceError       a GPU is not there, does not work, or was lost
    │   └── OutOfMemory   a GPU does not have enough memory
    └── NativeError       the native library is missing, or does not work on this processor

Each message is one sentence that says what is wrong and, after a semicolon, what to do about it.
"""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ars.distribution import install_line
from ars.printable import printable

__all__ = [
    "ArgumentError",
    "ArsError",
    "DataError",
    "DependentRows",
    "DeviceError",
    "FileError",
    "InputError",
    "MissingPackage",
    "ModelError",
    "NativeError",
    "NotExportable",
    "OutOfMemory",
    "RunError",
    "StoreError",
    "UnknownName",
    "one_line",
]


_LONGEST = 1500


def _sentence(text: str) -> str:
    """A message in one line that a terminal can show, whatever the names and values from a file are in it."""
    shown = printable(text)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST // 2]} ... {shown[-_LONGEST // 2 :]}"


class ArsError(Exception):
    """The base class: `except ArsError` catches every error that ARS raises on purpose."""

    exit_status = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors travel between processes as they are; Python would call the class with the message alone."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[ArsError], args: tuple[Any, ...], attributes: dict[str, Any]) -> ArsError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(attributes)
    return error


class InputError(ArsError, ValueError):
    """The user's input is wrong."""

    exit_status = 2


class ArgumentError(InputError):
    """An argument has an invalid value."""

    def __init__(self, argument: str, value: object, requirement: str) -> None:
        super().__init__(_sentence(f"{argument} = {value} is not valid; {requirement}"))
        self.argument = argument
        self.value = value


class FileError(InputError):
    """A file cannot be used."""

    def __init__(self, path: Path | str, problem: str, fix: str) -> None:
        super().__init__(_sentence(f"{path}: {problem}; {fix}"))
        self.problem = problem


class DataError(FileError):
    """A data file cannot be used."""


class ModelError(FileError):
    """A model file cannot be used."""


class NotExportable(ModelError):
    """A module of this process cannot become ONNX, or computes something else as ONNX. Torch may still run it."""


class StoreError(FileError):
    """A run store cannot be used."""


class MissingPackage(InputError):
    """A package that one of the extras installs is missing."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed; run `{install_line(extra)}`")


class UnknownName(InputError):
    """A name is not one of the known ones."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        known = list(known)
        near = difflib.get_close_matches(str(name).lower(), known, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(known)}"
        super().__init__(_sentence(f"unknown {what} {name!r}; {advice}"))


class RunError(ArsError):
    """A run failed after it had started."""


class DependentRows(RunError):
    """A model's vote for a row depends on the rest of its batch, so no certificate of it can be trusted."""

    def __init__(self, found: str) -> None:
        problem = f"the model's votes for a row depend on the other rows of its batch, or on chance ({found})"
        super().__init__(f"{problem}; export it for inference (model.eval()), and trust no certificate of this one")


class DeviceError(RunError):
    """A GPU is not there, does not work, or was lost."""


class OutOfMemory(DeviceError):
    """A GPU does not have enough memory."""


class NativeError(RunError):
    """The native library is missing, or does not work on this processor."""


# How OpenVINO (first) and TensorRT say where in their source an error arose.
_SOURCE_LINES = re.compile(
    r"(Exception from|Check '.*?' failed at) \S+:\d+:"
    r"|\s*In \w+ at \S+?:\d+|\[\w+\.cpp:\d+: \w+\] ?|\bI\w+::\w+: Error Code \d+: "
)


def one_line(reason: object) -> str:
    """The start of a library's error or message, in one line and without places in the library's source."""
    return " ".join(_SOURCE_LINES.sub("", " ".join(str(reason).split())).split())[:300]
