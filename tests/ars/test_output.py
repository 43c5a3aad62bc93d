"""Files that a command writes: whole or not at all, and in the place that the path means."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ars.errors import ArgumentError, FileError
from ars.output import open_output, refuse_inputs, replacing


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


@pytest.mark.parametrize("output", ["k.sqlite", "k.sqlite-wal", "k.sqlite-shm", "k.sqlite-journal", "./link", "hard"])
def test_an_output_that_belongs_to_a_store_is_refused(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    Path("k.sqlite").touch()
    Path("link").symlink_to("k.sqlite-wal")
    Path("hard").hardlink_to("k.sqlite")
    with pytest.raises(ArgumentError, match=r"it belongs to the input k.sqlite; choose another one"):
        refuse_inputs(Path(output), [Path("k.sqlite")])
    refuse_inputs(Path("k.tsv"), [Path("k.sqlite")])


@pytest.mark.parametrize("output", ["k.sqlite", "k.sqlite-wal", "k.sqlite-journal", "link"])
def test_no_store_is_overwritten_by_a_command_that_does_not_read_it(tmp_path, monkeypatch, output):
    """`ars-bench sweep --folder . -o k.sqlite` replaced the certificates by its table."""
    monkeypatch.chdir(tmp_path)
    Path("k.sqlite").write_bytes(b"SQLite format 3\0 and so on")
    Path("link").symlink_to("k.sqlite")
    with pytest.raises(FileError, match=rf"{output}: it is a run store, or belongs to one; choose another output"):
        write(Path(output))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["k.sqlite", "link"]
    write(Path("other-wal"))


def test_an_output_among_the_data_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("images", "cat").mkdir(parents=True)
    for file in ("images/cat/1.png", "d.npz", "images/report.html"):
        Path(file).touch()
    for output, given in (("images/cat/1.png", "images"), ("d.npz", "d.npz:x_train")):
        with pytest.raises(ArgumentError, match="it belongs to the input"):
            refuse_inputs(Path(output), [given])
    refuse_inputs(Path("images/report.html"), ["images"])
    refuse_inputs(Path("-"), ["images"])


def test_a_file_in_progress_cannot_be_guessed_and_follows_no_link(tmp_path):
    target, victim = tmp_path / "page", tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "page.partial").symlink_to(victim)
    names = []
    for _ in range(2):
        with replacing(target) as place:
            names.append(place.name)
            place.write_text("new")
    assert (victim.read_text(), target.read_text()) == ("mine", "new")
    assert len(set(names)) == 2


def test_a_private_file_stays_private_while_it_is_written_and_after(tmp_path):
    target = tmp_path / "page"
    target.write_text("old")
    target.chmod(0o600)
    with replacing(target) as place:
        assert place.stat().st_mode & 0o777 == 0o600
        place.write_text("new")
    assert target.stat().st_mode & 0o777 == 0o600


def test_two_writers_share_no_file_in_progress(tmp_path):
    target = tmp_path / "page"
    with replacing(target) as one, replacing(target) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert target.read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]


def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path):
    program = f"""
import os, signal
from pathlib import Path
from ars.output import replacing
with replacing(Path({str(tmp_path / "page")!r})) as place:
    place.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], timeout=120, check=False)
    assert len(list(tmp_path.iterdir())) == 1
    (tmp_path / ".page.mine.partial").write_text("not ours")
    write(tmp_path / "page")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".page.mine.partial", "page"]


def test_long_names_can_be_written(tmp_path):
    write(tmp_path / ("x" * 255))
    assert (tmp_path / ("x" * 255)).read_text() == "new"
