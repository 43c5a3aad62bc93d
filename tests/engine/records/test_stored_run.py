"""A run read back: its table, the names of its files, and its files found again elsewhere."""

import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow.feather
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from PIL import Image
from support.engine_runs import certify, refused, write_manifest

import ars
from ars.engine.cli import main
from ars.engine.records.columns import SHOWN

pytestmark = pytest.mark.usefixtures("files")


def engine(*arguments):
    return CliRunner().invoke(main, list(arguments))


def test_the_tables_have_the_columns_and_values_of_the_results():
    certify("--limit", "5", "--seed", str(2**64 - 1))
    names = [column.name for column, _ in SHOWN]
    frame = ars.read_run("run.sqlite").to_pandas()
    assert list(frame) == names
    assert list(frame.radius) == [record.certificate.radius for record in ars.read_records("run.sqlite")]
    assert set(frame.seed) == {2**64 - 1}
    for form, read in (("parquet", pyarrow.parquet.read_table), ("arrow", pyarrow.feather.read_table)):
        assert engine("results", "run.sqlite", "--format", form, "-o", f"out.{form}").exit_code == 0
        assert read(f"out.{form}").to_pandas().equals(frame)
    refused(engine("results", "run.sqlite", "--format", "parquet"), "say with --output")


def test_rows_name_the_files_of_a_folder():
    for name in ("a", "b"):
        Path("folder", name).mkdir(parents=True)
        Image.fromarray(np.zeros((4, 4), np.uint8)).save(f"folder/{name}/1.png")
    certify("--data", "folder")
    assert [record.name for record in ars.read_records("run.sqlite")] == ["a/1.png", "b/1.png"]
    assert "a/1.png" in engine("results", "run.sqlite").stdout


def test_an_audit_from_another_folder_finds_model_and_data(monkeypatch):
    certify("--limit", "3", n=50)
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    found = engine("audit", "../run.sqlite", "--sample", "1", "--quiet")
    assert found.exit_code == 0, found.output


def test_an_audit_finds_files_that_moved_with_the_store_and_takes_no_others(monkeypatch, tmp_path_factory):
    write_manifest()
    Path("runs").mkdir()
    given = ["--engine", "model.onnx", "--data", "data.npz", "--n", "50", "--batch", "64", "--limit", "3"]
    engine("certify", *given, "--out", "runs/run.sqlite")
    moved = tmp_path_factory.mktemp("moved") / "there"
    shutil.copytree(".", moved)
    for path in Path().glob("*.*"):
        if path.is_file():
            path.unlink()
    monkeypatch.chdir("/")
    store = os.fspath(moved / "runs" / "run.sqlite")
    found = engine("audit", store, "--sample", "1", "--quiet")
    assert found.exit_code == 0, found.output
    (moved / "model.onnx").write_bytes(b"another")
    refused(engine("audit", store, "--sample", "1"), "there is no such file", "--engine")
