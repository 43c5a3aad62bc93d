"""The run store: what was committed is there, and what does not fit is refused."""

import multiprocessing
import os
import sqlite3

import pytest
from support.stores import HEADER, forge, open_store, record

from ars.engine.noise_maps import NoiseSource
from ars.engine.records.store import find_begun, read_header, read_records
from ars.engine.records.summary import summarize
from ars.errors import RunError, StoreError


def test_records_come_back_as_they_were(tmp_path):
    path = tmp_path / "run.sqlite"
    records = [record(7), record(3, label=None), record(5, counts=(1, 999, 0))]
    with open_store(path) as store:
        for one in records:
            store.add(one)
        assert store.done().keys() == {3, 5, 7}
    assert list(read_records(path)) == sorted(records, key=lambda one: one.idx)
    assert read_header(path) == HEADER


def test_a_store_is_opened_again_to_resume_and_read_meanwhile(tmp_path):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        store.add(record(1))
        assert [one.idx for one in read_records(path)] == [1], "committed, while the run goes on"
    with open_store(path) as store:
        assert store.done() == {1: "f" * 64}
        store.add(record(2))
    assert len(list(read_records(path))) == 2


def test_other_settings_are_refused_and_the_difference_is_named(tmp_path):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        store.add(record(0))
    with pytest.raises(StoreError, match=r"it holds a run with sigma = 0.5, and this one has 0.25"):
        open_store(path, noise=NoiseSource(sigma=0.25))
    with pytest.raises(StoreError, match="it holds a run with maps = None, and this one has x"):
        open_store(path, noise=NoiseSource(sigma=0.5, maps="x"))
    open_store(path).close()  # a refused store is left as it was, and unlocked


def hold(path, ready, end):
    with open_store(path):
        ready.set()
        end.wait(20)


def test_a_store_that_another_process_is_writing_is_refused(tmp_path):
    path = tmp_path / "run.sqlite"
    context = multiprocessing.get_context("spawn")
    ready, end = context.Event(), context.Event()
    other = context.Process(target=hold, args=(path, ready, end))
    other.start()
    try:
        assert ready.wait(20)
        with pytest.raises(StoreError, match="another process is writing it"):
            open_store(path)
    finally:
        end.set()
        other.join()
    open_store(path).close()


@pytest.mark.parametrize(
    "content", [b"not a database, but a text that is long enough to be looked at" * 20, b"\x00" * 5000]
)
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "run.sqlite"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"run.sqlite: it is not a run store"):
        open_store(path)
    with pytest.raises(StoreError):
        list(read_records(path))
    assert path.read_bytes() == content


def test_another_database_and_another_format_are_refused(tmp_path):
    path = tmp_path / "other.sqlite"
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE something (x)")
    database.close()
    with pytest.raises(StoreError, match="it is a database, but not a run store"):
        open_store(path)
    newer = tmp_path / "newer.sqlite"
    open_store(newer).close()
    database = sqlite3.connect(newer)
    with database:
        database.execute("UPDATE run SET format = 9")
    database.close()
    with pytest.raises(StoreError, match="its format is 9, and this version reads 1 and 2"):
        list(read_records(newer))


def test_a_missing_store_and_a_folder_that_is_not_there_are_named(tmp_path):
    with pytest.raises(StoreError, match="there is no such file"):
        list(read_records(tmp_path / "none.sqlite"))
    with pytest.raises(StoreError, match="it cannot be written"):
        open_store(tmp_path / "no" / "run.sqlite")
    (tmp_path / "empty.sqlite").touch()
    with pytest.raises(StoreError, match="it is not a run store"):
        read_header(tmp_path / "empty.sqlite")


def test_a_full_disk_loses_nothing_that_was_committed(tmp_path):
    """SQLite's own limit on pages raises the very error that a full disk does."""
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages + 2}")

        def fill_up():
            for idx in range(1000):
                store.add(record(idx))

        with pytest.raises(RunError, match=r"cannot be written \(database or disk is full\); make room"):
            fill_up()
        kept = store.done().keys()
    assert kept
    assert {one.idx for one in read_records(path)} == kept
    with open_store(path) as store:
        store.add(record(5000))


def test_a_store_in_which_nothing_was_certified_takes_other_settings(tmp_path):
    path = tmp_path / "run.sqlite"
    open_store(path).close()
    open_store(path, noise=NoiseSource(sigma=0.25)).close()
    assert read_header(path).settings.noise.sigma == 0.25
    assert find_begun(path) == (read_header(path).settings, False)
    assert find_begun(tmp_path / "none.sqlite") is None


def test_a_store_that_was_killed_before_its_tables_were_made_is_begun_again(tmp_path):
    path = tmp_path / "run.sqlite"
    database = sqlite3.connect(path)
    database.execute("PRAGMA journal_mode = WAL")
    database.close()
    assert find_begun(path) is None
    with open_store(path) as store:
        store.add(record(1))
    assert len(list(read_records(path))) == 1


def test_a_store_is_read_where_nothing_can_be_written(tmp_path, monkeypatch):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        store.add(record(1))
    monkeypatch.setattr(os, "access", lambda *_: False)  # a read-only folder; root could write in a real one
    assert len(list(read_records(path))) == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.sqlite"]


def test_a_damaged_store_is_one_sentence(tmp_path):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        for idx in range(200):
            store.add(record(idx))
    content = bytearray(path.read_bytes())
    content[5000:40000] = bytes(35000)
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"run.sqlite: it is damaged"):
        list(read_records(path))


def test_the_summary_is_what_the_counts_say():
    records = [record(0), record(1, label=1), record(2, counts=(500, 490, 10)), record(3, label=None)]
    summary = summarize(records)
    radius = records[0].certificate.radius
    assert (summary.inputs, summary.labelled, summary.abstained, summary.nobody) == (4, 3, 1, 40)
    assert summary.certified_accuracy[0.0] == pytest.approx(1 / 3)
    assert summary.certified_accuracy[0.5] == pytest.approx((radius >= 0.5) / 3)
    assert summary.average_certified_radius == pytest.approx(radius / 3)
    assert summary.average_volume_radius == pytest.approx(records[0].certificate.volume_radius / 3)
    assert summary.draws == 4040
    assert summarize([]).certified_accuracy == {}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE certificates SET counts = '[]'",
        "UPDATE certificates SET counts = '[900, 90, -1]'",
        "UPDATE certificates SET radius = 'abc'",
        "UPDATE certificates SET radius = -1",
        "UPDATE certificates SET draws = 0",
        "UPDATE certificates SET seconds = 9e999",
        "UPDATE certificates SET looks = '[[\"a\", 2, 3]]'",
        "UPDATE certificates SET looks = '5'",
        "UPDATE certificates SET label = 'cat'",
        "UPDATE certificates SET scope = 'wide'",
    ],
)
def test_a_certificate_that_is_none_is_one_sentence(tmp_path, damage):
    path = tmp_path / "run.sqlite"
    with open_store(path) as store:
        store.add(record(1))
    forge(path, damage)
    with pytest.raises(StoreError, match=r"run\.sqlite: it is damaged \(.*\); certify again into another store"):
        list(read_records(path))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE run SET settings = '{}'",
        "UPDATE run SET settings = '[]'",
        "UPDATE run SET environment = '5'",
        "UPDATE run SET classes = '5'",
        "UPDATE run SET settings = json_set(settings, '$.batch', 'x')",
    ],
)
def test_settings_that_are_none_are_one_sentence(tmp_path, damage):
    path = tmp_path / "run.sqlite"
    open_store(path).close()
    forge(path, damage)
    with pytest.raises(StoreError, match=r"run\.sqlite: it is damaged"):
        read_header(path)


def test_a_file_that_is_no_store_is_said_to_be_so_once(tmp_path):
    (tmp_path / "images.npz").write_bytes(b"no database at all" * 100)
    with pytest.raises(
        StoreError, match=r"npz: it is not a run store \(file is not a database\); choose another file$"
    ):
        read_header(tmp_path / "images.npz")
    with pytest.raises(StoreError, match="it is a folder"):
        read_header(tmp_path)
