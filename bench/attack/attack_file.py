"""The attacks on a run, in a file of JSON lines beside its store: first the settings, then a line for each input.

A line is written as soon as its input is done, so that the same command again goes on where it was stopped.
"""

import dataclasses
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from ars.checks import check_types
from ars.data.memory import check_memory
from ars.engine.records.settings import RunSettings
from ars.errors import FileError, one_line
from ars.plain_json import parse_json
from ars.regular import check_regular

__all__ = ["AttackFile", "AttackSettings", "Attacked", "Success", "attack_path", "open_attack_file", "read_attacks"]

FORMAT = 1
_START = '{"run": {'
"""What each file begins with. A file that ends before its first line does can only be ours if it begins so."""


@dataclass(frozen=True)
class AttackSettings:
    """Everything that decides the attacks on a run, and the run itself."""

    run: dict[str, object]
    """The settings of the run."""
    model: str
    """The SHA-256 of the model that gave the gradients."""
    seed: int
    n: int
    """The draws of a test."""
    alpha: float
    """The probability that a success of an input is an error of its tests."""
    steps: int
    draws: int
    """The noisy copies behind each gradient."""
    restarts: int
    reach: float
    """How far the search goes, in certified radii."""
    moves_maps: bool
    """Whether the noise maps depend on the perturbed input. If so, the attacked classifier is not the one that the
    certificates speak of."""
    format: int = FORMAT


@dataclass(frozen=True)
class Success:
    """A perturbation that changes the answer of the smoothed classifier, by a test with noise of its own."""

    answer: int
    measure: float
    """||delta / scale|| in the norm of the certificate, never below its exact value. The certified region is where it
    is below K."""
    length: float
    """||delta|| in the same norm."""
    counts: tuple[int, ...]
    """The votes of the test: for each class, and last the draws that voted for nobody."""
    level: float
    """The level of the test."""


@dataclass(frozen=True)
class Attacked:
    """A certified input, and the smallest attack on it that was found."""

    idx: int
    input_sha256: str
    predicted: int
    K: float
    radius: float
    limit: float
    """The largest size of the search, in the measure of K."""
    tests: int
    seconds: float
    success: Success | None

    @property
    def ratio(self) -> float | None:
        """The smallest attack in units of the certificate; None if none was found."""
        return None if self.success is None else self.success.measure / self.K

    @property
    def upper_radius(self) -> float | None:
        """No certificate with this scale map can have a larger radius: min(scale) times the measure of the attack. If
        the scale is the same everywhere, this is the length of the attack."""
        return None if self.ratio is None else self.ratio * self.radius

    @property
    def inside(self) -> bool:
        """Whether the attack is strictly inside the certified region."""
        return self.success is not None and self.success.measure < self.K


def attack_path(store: Path) -> Path:
    """Where the attacks on the run of a store are kept."""
    return store.with_name(f"{store.stem}.attack.jsonl")


class AttackFile:
    """The attacks on a run that are done, and the file that the others are written to."""

    def __init__(self, file: TextIO, settings: AttackSettings, done: tuple[Attacked, ...]) -> None:
        self._file, self.settings, self.done = file, settings, done

    def write(self, attacked: Attacked) -> None:
        _write_line(self._file, dataclasses.asdict(attacked))


@contextmanager
def open_attack_file(path: Path, wanted: AttackSettings, *, any_seed: bool) -> Iterator[AttackFile]:
    """Open the file to go on with these settings, or begin it. With `any_seed`, an earlier seed is kept."""
    check_regular(path)
    try:
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise FileError(path, f"it cannot be written ({error.strerror})", "attack a copy of the run store") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FileError(path, "another process is writing it", "wait for it") from error
        except OSError as error:
            problem = f"it cannot be locked ({error.strerror}), so a second writer could not be kept out"
            raise FileError(path, problem, "attack a copy of the run store on a file system with locks") from error
        text, whole = _read_text(path)
        if not whole:
            if not (text.startswith(_START) or _START.startswith(text)):
                raise _unreadable(path, "it does not begin like one")
            file.truncate(0)
            _write_line(file, dataclasses.asdict(wanted))
            yield AttackFile(file, wanted, ())
            return
        settings, done = _read(path, whole)
        found = dataclasses.asdict(settings)
        for name, value in dataclasses.asdict(wanted).items():
            if found[name] != value and not (name == "seed" and any_seed):
                earlier = "another run" if name == "run" else f"{name} = {found[name]}"
                raise FileError(path, f"its attacks were made with {earlier}", "use the same, or move it away")
        file.truncate(len(whole.encode()))  # without a line that was being written when the process ended
        yield AttackFile(file, settings, done)


def read_attacks(store: Path, run: RunSettings) -> tuple[AttackSettings, tuple[Attacked, ...]] | None:
    """The attacks on the run of a store; None if there are none beside it."""
    path = attack_path(store)
    if not path.exists():
        return None
    settings, attacked = _read(path, _read_text(path)[1])
    if settings.run != run.to_json():
        raise FileError(path, "it has attacks on another run", "move it away, or give the run that was attacked")
    return settings, attacked


def _write_line(file: TextIO, content: dict[str, Any]) -> None:
    file.write(json.dumps(content) + "\n")
    file.flush()
    os.fsync(file.fileno())


def _read_text(path: Path) -> tuple[str, str]:
    """What is in a file, and its complete lines."""
    check_regular(path)
    try:
        check_memory(path, path.stat().st_size, error=FileError)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(path, f"it cannot be read ({error.strerror})", "check the file") from error
    except UnicodeDecodeError as error:
        raise _unreadable(path, "it is not text") from error
    return text, text[: text.rfind("\n") + 1]


def _read(path: Path, text: str) -> tuple[AttackSettings, tuple[Attacked, ...]]:
    try:
        first, *lines = [parse_json(line) for line in text.removesuffix("\n").split("\n")]
        if first.get("format") != FORMAT:
            raise ValueError(f"its format is {first.get('format')}, and this version reads {FORMAT}")
        settings = AttackSettings(**first)
        check_types(settings)
        if not (0 < settings.alpha < 1 and settings.reach > 0 and settings.n > 0):
            raise ValueError("its settings are not possible")
        return settings, tuple(_read_attacked(line) for line in lines)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _unreadable(path, one_line(error)) from error


def _read_attacked(line: dict[str, Any]) -> Attacked:
    success = line.pop("success")
    if success is not None:
        success = Success(**success | {"counts": tuple(success["counts"])})
    attacked = Attacked(**line, success=success)
    check_types(attacked)
    sizes = attacked.K, attacked.radius, attacked.limit, *(() if success is None else (success.measure, success.length))
    if min(sizes) <= 0 or min(attacked.idx, attacked.predicted, attacked.tests, attacked.seconds) < 0:
        raise ValueError(f"no attack on input {attacked.idx} can have these numbers")
    return attacked


def _unreadable(path: Path, problem: str) -> FileError:
    return FileError(path, f"it is not a file of attacks ({problem})", "move it away and run `ars-bench attack` again")
