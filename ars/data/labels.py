"""Labels as numbers: the names of classes, in the order that the user or the names themselves give."""

from collections.abc import Sequence
from pathlib import Path

from ars.errors import DataError
from ars.regular import check_regular

__all__ = ["number_labels", "order_classes", "read_classes"]


def read_classes(file: Path) -> list[str]:
    """The names of the classes in a text file, one per line."""
    check_regular(file, DataError)
    try:
        classes = [line.strip() for line in file.read_text().splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(file, f"it cannot be read ({error})", "use a text file with one class name per line") from error
    if len(set(classes)) < len(classes):
        raise DataError(file, "it names a class twice", "list each class once, one per line")
    return classes


def order_classes(found: Sequence[str], file: Path | None, path: Path) -> list[str]:
    """The names that were found at `path`, sorted, or the classes in the order of the lines of `file`."""
    if file is None:
        return sorted(set(found))
    classes = read_classes(file)
    missing = sorted(set(found) - set(classes))
    if missing:
        raise DataError(file, f"it does not name the class {missing[0]!r} of {path}", "list every class, one per line")
    return classes


def number_labels(labels: Sequence[str], file: Path | None, path: Path) -> tuple[list[int], list[str] | None]:
    """Labels as numbers, and the names of the classes, if they have names. Labels that are numbers stay what they are;
    others are numbered as `order_classes` says."""
    if all(label.lstrip("-").isdecimal() for label in labels):
        return [int(label) for label in labels], None if file is None else read_classes(file)
    classes = order_classes(labels, file, path)
    numbers = {name: number for number, name in enumerate(classes)}
    return [numbers[label] for label in labels], classes
