"""Stores on file systems of clusters: without shared memory, with locks that exclude each other, or without locks.

nfs.c makes the calls of a process behave as on NFS; no such file system is mounted here.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from support.engine_runs import certify, records, refused

import ars
from ars.engine.records import file_system
from ars.engine.records.file_system import NETWORK, find_kind, place_of_lock
from ars.engine.records.store import read_records

pytestmark = pytest.mark.usefixtures("files")


@pytest.fixture(scope="module")
def like_nfs(tmp_path_factory):
    """The environment of a process whose calls behave as on NFS."""
    library = tmp_path_factory.mktemp("nfs") / "nfs.so"
    source = Path(__file__).with_name("nfs.c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return os.environ | {"LD_PRELOAD": str(library)}


@pytest.fixture
def named_nfs(monkeypatch):
    monkeypatch.setattr(file_system, "find_kind", lambda path: "nfs4")


def journal_of(path):
    with closing(sqlite3.connect(path)) as database:
        return database.execute("PRAGMA journal_mode").fetchone()[0]


def test_the_kind_of_a_file_system_is_found(tmp_path):
    assert find_kind(Path("/proc/self/status")) == "proc"
    here = find_kind(tmp_path / "run.sqlite")
    assert here
    assert here not in NETWORK
    assert place_of_lock(tmp_path / "run.sqlite") == tmp_path / "run.sqlite"


def test_a_mount_is_found_by_its_longest_path(monkeypatch, tmp_path):
    lines = [
        "1 0 0:1 / / rw - ext4 /dev/sda rw",
        f"2 1 0:2 / {tmp_path} rw shared:1 - nfs4 server:/a rw",
        f"3 1 0:3 / {tmp_path}/in\\040it rw - lustre fs rw",
        f"4 1 0:4 / {tmp_path}-other rw - tmpfs none rw",
    ]
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: "\n".join(lines))
    assert find_kind(tmp_path / "run.sqlite") == "nfs4"
    assert find_kind(tmp_path / "in it" / "run.sqlite") == "lustre"
    assert find_kind(Path("/somewhere/run.sqlite")) == "ext4"


def test_on_a_network_file_system_a_store_has_a_rollback_journal_and_says_so(named_nfs):
    result = certify("--seed", "3", "--limit", "5")
    assert result.exit_code == 0, result.output
    assert "Warning: run.sqlite is on a file system without shared memory (nfs4): it keeps a rollback journal" in (
        result.stderr
    )
    assert journal_of("run.sqlite") == "delete"
    assert certify("--seed", "3").exit_code == 0
    assert [one.idx for one in read_records("run.sqlite")] == list(range(40))


def test_a_store_that_was_moved_there_changes_its_journal(monkeypatch):
    certify("--seed", "3", "--limit", "5")
    assert journal_of("run.sqlite") == "wal"
    monkeypatch.setattr(file_system, "find_kind", lambda path: "lustre")
    certify("--seed", "3")
    assert journal_of("run.sqlite") == "delete"
    assert len(records()) == 40


def engine(*arguments, named_nfs):
    """The command to certify into run.sqlite, by a process that takes the file system for NFS or not."""
    name = "import ars.engine.records.file_system as f; f.find_kind = lambda path: 'nfs4'; " if named_nfs else ""
    code = f"{name}from ars.engine.cli import main; main()"
    options = ["--sigma", "0.1", "--seed", "3", "--batch", "64", "--n0", "10", "--out", "run.sqlite", *arguments]
    return [sys.executable, "-c", code, "certify", "--engine", "model.onnx", "--data", "data.npz", *options]


def run_engine(environment, *, named_nfs=False):
    command = engine("--n", "200", named_nfs=named_nfs)
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_lock_beside_the_store_does_not_lock_sqlite_out(like_nfs):
    result = run_engine(like_nfs, named_nfs=True)
    assert result.returncode == 0, result.stderr
    certify("--seed", "3", "--out", "local.sqlite")
    assert records() == records("local.sqlite")
    Path("run.sqlite").unlink()
    control = run_engine(like_nfs)
    assert "another process has locked it" in control.stderr, "with a lock on the store itself, it does"


def test_without_shared_memory_a_store_falls_back_whatever_the_file_system_is_called(like_nfs):
    result = run_engine(like_nfs | {"LOCKS": "local"})
    assert result.returncode == 0, result.stderr
    assert "it keeps a rollback journal" in result.stderr
    assert journal_of("run.sqlite") == "delete"


def test_without_locks_a_store_is_refused_in_these_words(like_nfs):
    result = run_engine(like_nfs | {"LOCKS": "none"})
    assert result.returncode == 2
    assert "run.sqlite: it cannot be locked (No locks available), so a second writer could not be kept" in result.stderr
    assert "another process" not in result.stderr


def test_a_second_writer_is_kept_out_and_a_killed_one_resumed(named_nfs):
    with subprocess.Popen(engine("--n", "300000", "--quiet", named_nfs=True)) as process:
        while not Path("run.sqlite").exists() or not _count():
            assert process.poll() is None
            time.sleep(0.05)
        result = certify("--seed", "3", n=300_000)
        process.send_signal(signal.SIGKILL)
    refused(result, "run.sqlite.lock: another process is writing it")
    done = [str(one.idx) for one in read_records("run.sqlite")]  # the first to end need not be the first inputs
    assert done
    result = certify("--seed", "3", "--only", ",".join(done), n=300_000)
    assert f"{len(done)} of {len(done)} inputs are certified already" in result.stderr


def _count():
    try:
        return len(list(read_records("run.sqlite")))
    except ars.ArsError:
        return 0
