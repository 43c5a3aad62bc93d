"""The pages about stores and file formats name every table, column and field that there is, and no other."""

import dataclasses
import re
import sqlite3
from contextlib import closing
from pathlib import Path

from support.stores import open_store

from ars.bench.attack.attack_file import FORMAT as ATTACK_FORMAT
from ars.bench.attack.attack_file import Attacked, AttackSettings, Success
from ars.bench.run.result import FORMAT as BENCH_FORMAT
from ars.bench.run.result import BenchResult, Measurement
from ars.engine.noise_maps import NoiseSource
from ars.engine.records.columns import SHOWN
from ars.engine.records.settings import Environment, Origin, RunSettings, Sampling
from ars.engine.records.store import FORMAT
from ars.engine.statistics.plan import Plan
from ars.engine.statistics.stopping import Grid, Tolerance
from ars.manifest import FORMAT as MANIFEST_FORMAT
from ars.manifest import EngineBuild, Manifest, ModelFile, NoiseSettings, Parity, Profile

REPOSITORY = Path(__file__).parents[2]
PAGES = {name: (REPOSITORY / "docs" / f"{name}.md").read_text() for name in ("store", "file-formats")}


def section(page, title, level="##"):
    """The text under a heading, up to the next one that is no lower."""
    (text,) = re.findall(rf"^{level} {title}\n(.*?)(?=^##? |\Z)", PAGES[page], re.M | re.S)
    return text


def rows(text):
    """The names in the first cells of the tables of a text, and the second cells."""
    for line in text.splitlines():
        cells = line.strip("|").split(" | ")
        if line.startswith("| `"):
            yield re.findall(r"`(\w+)`", cells[0]), cells[1].strip()


def names(text):
    return [name for listed, _ in rows(text) for name in listed]


def fields(*classes):
    return [field.name for one in classes for field in dataclasses.fields(one)]


def test_the_tables_of_a_store_are_those_of_the_page(tmp_path):
    open_store(tmp_path / "run.sqlite").close()
    found = {}
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as database:
        for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'"):
            columns = database.execute(f"PRAGMA table_info({table})")
            found[table] = [
                (name, f"{kind}{' PRIMARY KEY' if key else ' NOT NULL' if needed else ''}")
                for _, name, kind, needed, _, key in columns
            ]
    text = section("store", "Tables")
    run, _, certificates = text.partition("`certificates` has a row")
    said = {
        "run": [(name, sql) for (name,), sql in rows(run)],
        "certificates": [(name, sql) for (name,), sql in rows(certificates)],
    }
    assert said == found
    assert f"stores of format {FORMAT}, which this version writes" in PAGES["store"]
    assert f"| `format` | INTEGER NOT NULL | {FORMAT} |" in PAGES["store"]


def test_the_settings_and_the_environment_of_a_run_are_those_of_the_page():
    plan = {*Plan().settings, *Plan(question=Grid((0.0,))).settings, *Plan(question=Tolerance(0.01)).settings}
    settings = {*fields(RunSettings, NoiseSource), *plan} - {"noise", "plan"}
    assert set(names(section("store", "Settings"))) == settings
    environment = {*fields(Environment, Origin, Sampling)} - {"runner", "runner_version"}
    assert set(names(section("store", "Environment"))) == environment


def test_the_columns_of_the_results_are_those_of_the_page_in_their_order():
    assert names(section("file-formats", "Results")) == [column.name for column, _ in SHOWN]


def test_the_fields_of_the_other_files_are_those_of_the_page():
    manifest, _, files = section("file-formats", "Manifest").partition("| of a file")
    assert set(names(manifest)) == set(fields(Manifest))
    assert set(names(files)) == set(fields(ModelFile))
    said = {listed[0]: text for listed, text in rows(manifest + files)}
    for name, kind in (("noise", NoiseSettings), ("parity", Parity), ("build", EngineBuild)):
        nested = fields(kind) + (fields(Profile) if kind is EngineBuild else [])
        assert set(re.findall(r"`(\w+)`", said[name])) == set(nested)
    attacks = section("file-formats", "Attacks")
    assert set(names(attacks)) == set(fields(Attacked))
    settings, _, _ = attacks.partition("| name")
    assert set(re.findall(r"`(\w+)`", settings)) == set(fields(AttackSettings))
    assert set(re.findall(r"`(\w+)`", {n[0]: t for n, t in rows(attacks)}["success"])) == set(fields(Success))
    bench = section("file-formats", "Benchmarks")
    assert set(names(bench)) == set(fields(Measurement))
    assert set(re.findall(r"`(\w+)`", bench.partition("| name")[0])) == set(fields(BenchResult))
    assert {ATTACK_FORMAT, BENCH_FORMAT, MANIFEST_FORMAT} == {1}, "as the page says"
