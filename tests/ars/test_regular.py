"""Files that take more memory than disk are refused before they are read."""

import os

import pytest

from ars.errors import FileError
from ars.regular import LARGEST_TEXT, LEAST_FILLED, check_regular


def make(path, size, filled):
    with path.open("wb") as file:
        file.write(b"x" * filled)
        file.truncate(size)
    return path


@pytest.fixture
def holes(tmp_path):
    """Whether this file system has holes, and says so."""
    with make(tmp_path / "probe", 2**20, 0).open("rb") as file:
        if os.lseek(file.fileno(), 0, os.SEEK_HOLE):
            pytest.skip("this file system has no holes")


@pytest.mark.parametrize("filled", [0, 5000])
@pytest.mark.parametrize("size", [LARGEST_TEXT + 1, 12 * 10**9])
def test_a_large_file_of_holes_is_refused(tmp_path, holes, size, filled):
    with pytest.raises(FileError, match=r"m\.onnx: it has [\d,]+ bytes, nearly all of them holes; give a whole file"):
        check_regular(make(tmp_path / "m.onnx", size, filled))


def test_small_files_and_files_with_few_holes_are_read(tmp_path, holes):
    check_regular(make(tmp_path / "small", LARGEST_TEXT, 0))
    check_regular(make(tmp_path / "filled", LARGEST_TEXT + 2**20, 2 * LARGEST_TEXT // LEAST_FILLED))
    check_regular(make(tmp_path / "empty", 0, 0))
    check_regular(tmp_path)
