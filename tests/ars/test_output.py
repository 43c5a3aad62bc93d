"""Files that a command writes: whole or not at all, and in the place that the path means."""

import os
import threading
from pathlib import Path

import pytest

from ars.errors import FileError
from ars.output import open_output


def write(path, text="new"):
    with open_output(path) as file:
        file.write(text)


def fail(path):
    with open_output(path) as file:
        file.write("half")
        raise RuntimeError


def test_a_file_takes_the_place_of_an_older_one_only_when_it_is_whole(tmp_path):
    path = tmp_path / "page"
    path.write_text("old")
    with pytest.raises(RuntimeError):
        fail(path)
    assert path.read_text() == "old"
    write(path)
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("page", "new")]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_and_the_file_that_it_leads_to_is_written(tmp_path, exists):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "page", tmp_path / "link"
    link.symlink_to(target)
    if exists:
        target.write_text("old")
    write(link)
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["page"]


def test_a_pipe_is_written_directly(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write(pipe)
    reader.join()
    assert read == ["new"]
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_a_device_stays_a_device():
    write(Path("/dev/null"))
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_stdout_has_two_names(name, capsys):
    write(Path(name))
    assert capsys.readouterr().out == "new"


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path):
    for path, reason in ((tmp_path, "it is a folder"), (tmp_path / "no" / "page", "No such file")):
        with pytest.raises(FileError, match=f"{path}: it cannot be written .{reason}"):
            write(path)
