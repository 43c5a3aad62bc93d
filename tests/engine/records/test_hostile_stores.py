"""Run stores after accidents, and from people who mean harm: what was committed is shown, or the store is refused."""

import fcntl
import json
import os
import random
import shutil
import sqlite3
import struct
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from support.engine_runs import certify, refused
from support.stores import HEADER, forge, forged, open_store, record

from ars.bench.cli import main as bench
from ars.engine.cli import main
from ars.engine.records import database
from ars.engine.records.store import find_begun, read_header, read_records
from ars.errors import StoreError


@pytest.fixture
def path(tmp_path):
    """A store of thirty certificates."""
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        for idx in range(30):
            store.add(record(idx))
    return path


@pytest.fixture
def killed(tmp_path):
    """What a run leaves that was killed: commits that are only in the WAL."""
    (tmp_path / "left").mkdir()
    with open_store(tmp_path / "run.sqlite") as store:
        for idx in range(30):
            store.add(record(idx))
        for suffix in ("", "-wal", "-shm"):
            shutil.copy(tmp_path / f"run.sqlite{suffix}", tmp_path / "left" / f"run.sqlite{suffix}")
    return tmp_path / "left" / "run.sqlite"


def read_only(monkeypatch):
    """root could write in a read-only folder."""
    monkeypatch.setattr(os, "access", lambda *_: False)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_read_only_folder_drops_no_certificate_of_a_killed_run(killed, monkeypatch, shared_memory):
    if not shared_memory:
        killed.with_name("run.sqlite-shm").unlink()
    before = {file.name: file.read_bytes() for file in killed.parent.iterdir() if not file.name.endswith("-shm")}
    read_only(monkeypatch)
    assert [one.idx for one in read_records(killed)] == list(range(30))
    assert {
        file.name: file.read_bytes() for file in killed.parent.iterdir() if not file.name.endswith("-shm")
    } == before


def test_a_full_file_system_is_read_by_a_copy_and_not_written(killed, monkeypatch):
    """SQLite's shared memory cannot be made there: writing to it would kill the process."""
    killed.with_name("run.sqlite-shm").unlink()
    before = sorted(killed.parent.iterdir())
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=3, f_frsize=1024))
    assert len(list(read_records(killed))) == 30
    assert sorted(killed.parent.iterdir()) == before
    with pytest.raises(StoreError, match=r"no space left on its file system\); make room"):
        open_store(killed)


def test_a_full_file_system_does_not_stop_the_writer_from_reading(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        store.add(record(0))
        monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=3, f_frsize=1024))
        assert len(list(read_records(path))) == 1
        store.add(record(1))


MAGIC = bytes.fromhex("d9d505f920a163d7")


def journal_that_deletes(path, victim):
    """A hot journal that names `victim` as the journal of a transaction over several databases."""
    content, name = path.read_bytes(), str(victim).encode()
    size = struct.unpack(">H", content[16:18])[0]
    page, pages = content[:size], len(content) // size
    summed = sum(page[place] for place in range(size - 200, 0, -200)) % 2**32
    journal = MAGIC + struct.pack(">5I", 1, 0, pages, 512, size) + bytes(512 - 28)
    journal += struct.pack(">I", 1) + page + struct.pack(">I", summed)
    journal += struct.pack(">I", 2**30 // size + 1) + name + struct.pack(">2I", len(name), sum(name)) + MAGIC
    path.with_name(f"{path.name}-journal").write_bytes(journal)


def test_a_journal_that_names_another_file_deletes_nothing(path, tmp_path, monkeypatch):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    journal_that_deletes(path, notes)
    for use in (lambda: list(read_records(path)), lambda: open_store(path)):
        with pytest.raises(StoreError, match=r"run.sqlite-journal: it is a journal that would delete another file"):
            use()
    with monkeypatch.context() as context:
        context.setattr(database, "_check_beside", lambda path: None)
        assert len(list(read_records(path))) == 30
        assert not notes.exists()  # the negative control: without the check, reading deletes the notes


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_links_and_pipes_in_the_place_of_what_sqlite_keeps_are_refused(path, tmp_path, suffix, kind):
    """SQLite would write to the target of a link, and wait for a pipe."""
    notes, beside = tmp_path / "notes.txt", path.with_name(path.name + suffix)
    notes.write_text("mine")
    beside.symlink_to(notes) if kind == "link" else os.mkfifo(beside)
    for use in (lambda: list(read_records(path)), lambda: open_store(path)):
        with pytest.raises(StoreError, match=f"run.sqlite{suffix}: it is not a regular file"):
            use()
    assert notes.read_text() == "mine"


@pytest.mark.parametrize("shared_memory", [True, False])
def test_a_link_to_a_store_drops_no_certificate_of_a_killed_run(killed, tmp_path, monkeypatch, shared_memory):
    """SQLite's files are beside the store itself."""
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "latest.sqlite"
    link.symlink_to(killed)
    if not shared_memory:
        killed.with_name("run.sqlite-shm").unlink()
    read_only(monkeypatch)
    assert [one.idx for one in read_records(link)] == list(range(30))


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_store_is_not_named_like_what_sqlite_keeps_beside_another(path, suffix):
    """Whoever opens the other one next has SQLite remove it, or read it as a log."""
    with pytest.raises(StoreError, match="choose a name that ends otherwise"):
        open_store(path.with_name(path.name + suffix))
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name]


TRIGGER = "CREATE TRIGGER t AFTER INSERT ON certificates BEGIN UPDATE certificates SET radius = 99.0; END"


@pytest.mark.parametrize(
    "sql",
    [
        TRIGGER,
        TRIGGER.replace("UPDATE certificates SET radius = 99.0", "DELETE FROM certificates WHERE idx < 10"),
        "CREATE VIEW v AS SELECT * FROM certificates",
        "CREATE INDEX i ON certificates (idx) WHERE abs(idx) > 3",
        "CREATE TABLE other (x)",
        "ALTER TABLE certificates ADD COLUMN more TEXT",
        "ALTER TABLE certificates ADD COLUMN more AS (radius + 1)",
        "ALTER TABLE run ADD COLUMN more CHECK (length(hex(zeroblob(100000000))) > 0)",
    ],
)
def test_anything_in_the_schema_that_is_not_ours_is_refused(path, sql):
    with sqlite3.connect(path) as database:
        database.execute(sql)
    database.close()
    before = path.read_bytes()
    for use in (open_store, read_header, lambda path: list(read_records(path)), find_begun):
        with pytest.raises(StoreError, match="is not one that ARS makes, and might run code; trust nothing in it"):
            use(path)
    assert path.read_bytes() == before


def test_a_view_in_the_place_of_the_certificates_is_refused(path):
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE certificates RENAME TO hidden")
        database.execute("CREATE VIEW certificates AS SELECT * FROM hidden")
    database.close()
    with pytest.raises(StoreError, match="it is a database, but not a run store"):
        list(read_records(path))


def test_a_trigger_that_slipped_in_runs_nothing(path):
    """Even if the schema were not compared, the authorizer would stop it."""
    with open_store(path) as store:
        with sqlite3.connect(path) as other:
            other.execute(TRIGGER)
        other.close()
        with pytest.raises(Exception, match=r"not authorized|prohibited"):
            store.add(record(77))
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT count(*) FROM certificates WHERE radius = 99").fetchone() == (0,)
    database.close()


def test_a_flipped_bit_is_found_or_changes_nothing(path):
    """In stores without checksums, 39 of 500 flips gave other certificates, and no error."""
    expected, header, content = list(read_records(path)), read_header(path), path.read_bytes()
    rng, refused = random.Random(21), 0
    for _ in range(400):
        damaged = bytearray(content)
        place = rng.randrange(len(damaged))
        damaged[place] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        try:
            assert (list(read_records(path)), read_header(path)) == (expected, header), place
        except StoreError:
            refused += 1
        finally:
            for suffix in ("-wal", "-shm"):
                path.with_name(f"run.sqlite{suffix}").unlink(missing_ok=True)
    assert refused > 100  # the others hit free space


@pytest.mark.parametrize("column", ["radius", "seconds", "counts", "input_sha256", "label", "eta"])
def test_the_checksum_covers_every_column(path, column):
    value = {"counts": "[900, 80, 20]", "input_sha256": "e" * 64}.get(column, 0.125 if column != "label" else 1)
    with sqlite3.connect(path) as database:
        database.execute(f"UPDATE certificates SET {column} = ? WHERE idx = 7", (value,))
    database.close()
    with pytest.raises(StoreError, match=r"it is damaged \(the checksum of input 7 does not match\)"):
        list(read_records(path))
    with pytest.raises(StoreError, match=r"it is damaged \(the checksum of input 7 does not match\)"):
        open_store(path)


def test_the_settings_have_a_checksum_too(path):
    with sqlite3.connect(path) as database:
        database.execute("UPDATE run SET settings = replace(settings, '0.5', '0.7')")
    database.close()
    with pytest.raises(StoreError, match="the checksum of its settings does not match"):
        read_header(path)


def test_a_store_whose_checksums_were_taken_out_is_refused(path):
    with sqlite3.connect(path) as database:
        database.execute("ALTER TABLE certificates DROP COLUMN checksum")
    database.close()
    with pytest.raises(StoreError, match="its rows have no checksums"):
        list(read_records(path))


@pytest.mark.parametrize("batch", ["0", "-1", "true", "1e309", "64.0", "[64]", str(2**70)])
def test_a_batch_size_that_no_run_has_is_refused(path, batch):
    """A batch of 0 once ended a resumed run with inputs left, and without an error."""
    text = json.dumps(HEADER.settings.to_json()).replace('"batch": 64', f'"batch": {batch}')
    forge(path, "UPDATE run SET settings = ?", text)
    with pytest.raises(StoreError, match="it is damaged"):
        find_begun(path)


@pytest.mark.parametrize(
    "settings",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        json.dumps(HEADER.settings.to_json()).replace("0.5", "1e309"),
        '"\\ud800"',
        "NaN",
    ],
)
def test_settings_that_are_none_are_one_sentence(path, settings):
    forge(path, "UPDATE run SET settings = ?", settings)
    for use in (read_header, find_begun, open_store):
        with pytest.raises(StoreError, match="it is damaged") as caught:
            use(path)
        assert "\n" not in str(caught.value)


def test_missing_columns_are_one_sentence(tmp_path):
    path = tmp_path / "run.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE run (format INTEGER NOT NULL, settings TEXT NOT NULL)")
        database.execute("CREATE TABLE certificates (p_a REAL NOT NULL)")
        database.execute("INSERT INTO run VALUES (3, '{}')")
        database.execute("INSERT INTO certificates VALUES (0.5)")
    database.close()
    for use in (read_header, find_begun, lambda path: list(read_records(path))):
        with pytest.raises(StoreError, match="it is damaged"):
            use(path)


def test_a_lock_that_fails_is_not_called_another_writer(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", fail)
    with pytest.raises(StoreError, match=r"it cannot be locked \(No locks available\)"):
        open_store(tmp_path / "run.sqlite")


def test_a_locked_store_is_not_called_something_else(path, monkeypatch):
    monkeypatch.setattr(
        sqlite3,
        "connect",
        lambda *given, connect=sqlite3.connect, **options: connect(*given, **options | {"timeout": 0}),
    )
    other = sqlite3.connect(path)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    for use in (read_header, find_begun, open_store):
        with pytest.raises(StoreError, match="another process has locked it; wait for it"):
            use(path)
    other.close()


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("member", ["engine_file", "data_source"])
def test_a_path_elsewhere_is_opened_only_if_the_user_names_it(tmp_path, monkeypatch, member):
    certify("--limit", "3")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "mine").mkdir()
    for name in ("model.onnx", "data.npz"):
        shutil.copy(name, tmp_path / ("elsewhere" if member.startswith(name[:2].replace("mo", "en")) else "mine"))
    shutil.copy("run.sqlite", tmp_path / "mine")
    monkeypatch.chdir(tmp_path / "mine")
    name, option = ("model.onnx", "--engine") if member == "engine_file" else ("data.npz", "--data")
    with forged("run.sqlite") as database:
        (environment,) = database.execute("SELECT environment FROM run").fetchone()
        other = json.loads(environment) | {"folder": None, "store_folder": None}
        other |= {member: str(tmp_path / "elsewhere" / name)}
        database.execute("UPDATE run SET environment = ?", (json.dumps(other),))
    opened = []
    hook = sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    assert hook is None
    refused(CliRunner().invoke(main, ["audit", "run.sqlite"]), f"if you trust it, name it with {option}")
    assert not [path for path in opened if "elsewhere" in path]
    assert CliRunner().invoke(main, ["audit", "run.sqlite", option, f"../elsewhere/{name}"]).exit_code == 0


@pytest.mark.usefixtures("files")
def test_pipes_and_devices_are_refused_at_once():
    """Reading them would wait for ever, or never end."""
    os.mkfifo("pipe")
    os.mkdir("images")
    os.mkdir("images/cat")
    os.mkfifo("images/cat/1.png")
    os.mkfifo("pipe.npz")
    os.mkfifo("pipe.pt")
    os.mkfifo("pipe.json")
    certify("--limit", "2")
    given = ["--engine", "model.onnx", "--sigma", "0.1", "--n", "50", "--batch", "16", "--out", "o.sqlite"]
    for arguments in (
        ["results", "pipe"],
        ["results", "/dev/zero"],
        ["inspect", "pipe"],
        ["inspect", "pipe.pt"],
        ["inspect", "pipe.json"],
        ["inspect", "/dev/zero"],
        ["summary", "pipe"],
        ["audit", "run.sqlite", "--engine", "pipe"],
        ["audit", "run.sqlite", "--engine", "/dev/zero"],
        ["audit", "run.sqlite", "--data", "pipe.npz"],
        ["covers", "run.sqlite", "--input", "0", "--perturbed", "pipe.npz"],
        ["certify", *given, "--data", "pipe.npz"],
        ["certify", *given, "--data", "/dev/zero"],
        ["certify", *given, "--data", "images"],
        ["certify", *given, "--data", "data.npz", "--classes", "pipe"],
        ["certify", *given, "--data", "data.npz", "--out", "pipe"],
        ["certify", *given, "--data", "data.npz", "--engine", "pipe.pt"],
        ["certify", *given[2:], "--data", "data.npz", "--engine", "pipe"],
        ["predict", *given[:4], "--data", "pipe.npz"],
    ):
        result = CliRunner().invoke(main, arguments)
        assert (result.exit_code, result.stderr.count("Error: ")) == (2, 1), (arguments, result.output)


def test_names_in_tables_are_one_cell_and_no_formula(tmp_path):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        store.add(replace(record(0), name="=cmd|' /C calc'!A0"))
        store.add(replace(record(1), name="a\n\x1b[2Jb.png"))
    for form in ("tsv", "csv"):
        text = CliRunner().invoke(main, ["results", str(path), "--format", form]).stdout
        assert text.count("\n") == 3
        assert "\x1b" not in text
        assert "'=cmd|" in text
        assert "a\\n\\x1b[2Jb.png" in text


@pytest.mark.parametrize("output", ["model.onnx", "data.npz", "./data.npz"])
@pytest.mark.parametrize("command", [["ars-engine", "results"], ["ars-engine", "summary"], ["ars-bench", "report"]])
def test_the_model_and_the_data_of_a_run_are_not_overwritten(files, command, output):
    certify("--limit", "2")
    before = (files / output).read_bytes()
    use = {"ars-engine": main, "ars-bench": bench}[command[0]]
    refused(CliRunner().invoke(use, [command[1], "run.sqlite", "-o", output]), "it belongs to the input")
    assert (files / output).read_bytes() == before


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("data_inputs", 2**64 - 1, "no data has 18446744073709551615 inputs"),
        ("data_inputs", 2**62, "at most 16,777,216 inputs"),
        ("data_inputs", 2**25, "at most 16,777,216 inputs"),
        ("data_inputs", -5, "no data has -5 inputs"),
        ("skip", 0, "skip = 0"),
        ("engine_file", "a\0b", r"its engine_file is 'a\x00b'"),
        ("start", -9, "start = -9"),
        ("limit", 0, "limit = 0"),
    ],
)
def test_a_store_that_asks_for_impossible_inputs_or_files_is_refused_and_does_not_hang(path, name, value, problem):
    with forged(path) as database:
        (text,) = database.execute("SELECT environment FROM run").fetchone()
        content = json.loads(text) | {"data_inputs": 40} | {name: value}
        database.execute("UPDATE run SET environment = ?", (json.dumps(content),))
    refused(CliRunner().invoke(main, ["summary", str(path)]), problem)


@pytest.mark.parametrize(("column", "value"), [("radius", 1e308), ("K", 1e308), ("seconds", 1e300)])
def test_numbers_that_no_certificate_has_are_refused_before_they_are_calculated_with(path, column, value):
    """`report` and `results` failed on them."""
    forge(path, f"UPDATE certificates SET {column} = ?", value)
    refused(CliRunner().invoke(main, ["results", str(path)]), "it is damaged")


@pytest.mark.parametrize("column", ["counts", "looks", "environment"])
@pytest.mark.parametrize("value", ["[" * 100_000, "[1e999]", '{"runner": 1e999}', "3", '"\\ud800"'])
def test_damaged_json_of_a_row_is_one_sentence(path, column, value):
    forge(path, f"UPDATE certificates SET {column} = ?", value)
    with pytest.raises(StoreError, match="it is damaged"):
        list(read_records(path))
