"""The table of columns drives the store, the results and the report."""

import sqlite3
from pathlib import Path

import pytest
from support.engine_runs import certify, records, refused
from support.stores import forge

from ars.bench.report.page import render_page
from ars.bench.report.runs import read_runs
from ars.bench.report.strips import Strips
from ars.engine.records.columns import COLUMNS, REPORTED, SHOWN, STORED, read_row, write_row
from ars.engine.records.store import read_records


def test_the_columns_of_the_results_stay_as_they_are():
    """Scripts read them by name, and some by number."""
    names = """idx label predict radius correct time p_a p_b K sigma_min sigma_geomean scope n0 n draws seconds
    selected counts stopping budget looks noise_stream eta dimensions inverse_scale_l1 inverse_scale_l2
    norm stopped next_radius votes_short volume_radius unit
    alpha two_sided family name seed model_sha256 input_sha256 environment explanation"""
    assert [column.name for column, _ in SHOWN] == names.split()


@pytest.mark.parametrize(("p_b", "shown"), [(0.12340001, "0.1235"), (0.25, "0.2500"), (1.0, "1.0000")])
def test_the_report_rounds_the_bound_on_pb_up(p_b, shown):
    (column,) = (column for column in REPORTED if column.name == "p_b")
    assert column.reported(p_b) == shown


def test_names_are_unique_and_the_key_comes_first():
    for columns in ([column for column, _ in STORED], [column for column, _ in SHOWN], REPORTED):
        assert len({column.name for column in columns}) == len(columns)
    assert COLUMNS[0].name == "idx"


@pytest.mark.usefixtures("files")
def test_the_store_has_the_stored_columns_and_the_page_the_reported_ones():
    certify("--limit", "2")
    database = sqlite3.connect("run.sqlite")
    found = database.execute("SELECT name, type FROM pragma_table_info('certificates')").fetchall()
    database.close()
    assert found == [(column.name, kind.sql.split()[0]) for column, kind in STORED] + [("checksum", "TEXT")]
    runs = read_runs([Path("run.sqlite")])
    for record in read_records("run.sqlite"):
        assert read_row(write_row(record)) == record
    page = render_page(runs, [Strips(())])
    for column in REPORTED:
        assert f'"name":"{column.name}"' in page


@pytest.mark.usefixtures("files")
def test_a_column_that_a_store_lacks_has_its_default_and_the_run_is_not_resumed():
    certify("--limit", "2")
    expected = records()
    forge("run.sqlite", "ALTER TABLE certificates DROP COLUMN looks")
    assert records() == expected
    refused(certify(), "run.sqlite: its certificates have no looks, and those of this version have")
    forge("run.sqlite", "ALTER TABLE certificates DROP COLUMN radius")
    with pytest.raises(ValueError, match=r"run.sqlite: it is damaged \(.*radius.*\)"):
        list(read_records("run.sqlite"))
