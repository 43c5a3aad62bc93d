"""Shards: each certifies a fair share of the inputs into a store of its own, and merged they equal one run."""

import os
import signal
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, records, refused

import ars
from ars.data import select
from ars.engine.cli import main
from ars.engine.records.store import Store, read_header
from ars.errors import ArgumentError

pytestmark = pytest.mark.usefixtures("files")


def certify_shard(number, count, *arguments, out=None, **files):
    given = ["--shard", f"{number}/{count}", "--seed", "7", "--out", out or f"{number}.sqlite"]
    result = certify(*given, *arguments, **files)
    assert result.exit_code == 0, result.output


def merge(*stores, output="merged.sqlite"):
    return CliRunner().invoke(main, ["merge", *stores, "-o", output])


def test_every_input_is_in_one_shard_and_shards_differ_by_at_most_one_input():
    for total, count in ((10_000, 20), (41, 4), (7, 7)):
        shards = [select(total, shard=f"{number + 1}/{count}") for number in range(count)]
        assert sorted(idx for shard in shards for idx in shard) == list(range(total))
        assert max(map(len, shards)) - min(map(len, shards)) <= 1
    assert select(100, start=10, limit=9, skip=2, shard="2/4") == [22, 30]


@pytest.mark.parametrize("shard", ["0/0", "0/4", "5/4", "-1/4", "3", "a/b", "3/4/5", "/", "", "²/4"])
def test_what_is_no_shard_is_refused(shard):
    with pytest.raises(ArgumentError, match="it must be like 3/20, from 1/20 to 20/20"):
        select(10, shard=shard)
    refused(certify("--shard", shard, "--seed", "7"), f"shard = {shard} is not valid")


def test_more_shards_than_inputs_are_refused():
    refused(certify("--shard", "41/50", "--seed", "7"), "there are only 40 inputs; divide them among fewer shards")


def test_a_shard_needs_a_seed_that_the_others_have_too():
    refused(certify("--shard", "1/4"), "shard = 1/4 is not valid; all shards of a run need the same random seed")
    certify_shard(1, 4, "--limit", "8", out="run.sqlite")
    assert certify("--shard", "1/4").exit_code == 0, "a resumed shard has its seed"
    target = certify("--shard", "1/4", "--seed", "7", "--target-width", "0.1")
    refused(target, "shard = 1/4 is not valid; with --target-width")


def test_the_default_store_is_named_after_the_shard():
    with ars.load("model.onnx", sigma=0.1, batch=64, seed=7) as classifier:
        result = ars.certify_run(classifier, ars.Inputs("data.npz", shard="3/20"), ars.Plan(10, 50))
    assert result.store == Path("model.onnx.data.npz.gaussian-0.1.shard-3-of-20.sqlite")


@pytest.mark.parametrize("stopping", [[], ["--stopping", "adaptive", "--radii", "0,0.05,0.1"]])
def test_merged_shards_equal_one_run_and_can_be_audited(stopping):
    for number in (1, 2, 3):
        certify_shard(number, 3, *stopping)
    assert certify("--seed", "7", *stopping).exit_code == 0
    result = merge("3.sqlite", "1.sqlite", "2.sqlite")
    assert (result.exit_code, result.stdout) == (0, "merged.sqlite: 40 certified inputs of 3 stores\n")
    assert records("merged.sqlite") == records()
    whole, merged = read_header(Path("run.sqlite")), read_header(Path("merged.sqlite"))
    assert merged == whole
    audit = CliRunner().invoke(main, ["audit", "merged.sqlite"])
    assert audit.exit_code == 0, audit.output
    assert "the run is not finished" not in CliRunner().invoke(main, ["summary", "merged.sqlite"]).stdout
    again = certify("--seed", "7", *stopping, "--out", "merged.sqlite")
    assert "40 of 40 inputs are certified already" in again.stderr


def test_shards_with_other_batches_merge_and_each_row_says_its_own():
    certify_shard(1, 2)
    certify_shard(2, 2, "--batch", "16")
    assert merge("1.sqlite", "2.sqlite").exit_code == 0
    assert [one.made_by.batch for one in ars.read_records("merged.sqlite")] == [64, 16] * 20
    audit = CliRunner().invoke(main, ["audit", "--sample", "40", "merged.sqlite"])
    assert audit.exit_code == 0, audit.output
    assert "40 certificates computed again from their votes, 40 drawn again" in audit.stdout
    assert "different environment" not in audit.stdout
    environments = [one.environment for one in ars.read_run("merged.sqlite").results]
    assert "batch 64" in environments[0]
    assert "batch 16" in environments[1]


def test_a_missing_shard_leaves_a_run_that_is_resumed():
    for number in (1, 3):
        certify_shard(number, 3)
    assert merge("1.sqlite", "3.sqlite").exit_code == 0
    summary = CliRunner().invoke(main, ["summary", "merged.sqlite"]).stdout
    assert "the run is not finished: 27 of the 40 inputs asked for are certified" in summary
    assert certify("--seed", "7", "--out", "merged.sqlite").exit_code == 0
    certify("--seed", "7")
    assert records("merged.sqlite") == records()


def test_parts_that_were_chosen_otherwise_merge_too():
    for number, part in enumerate((["--only", "0-4,9"], ["--start", "5", "--limit", "3"])):
        certify("--seed", "7", *part, "--out", f"{number}.sqlite")
    assert merge("0.sqlite", "1.sqlite").exit_code == 0
    sampling = read_header(Path("merged.sqlite")).sampling
    assert sampling.only == "0-7,9-9"
    assert sampling.asked == [0, 1, 2, 3, 4, 5, 6, 7, 9]


def test_an_input_may_be_in_two_stores_if_they_agree():
    certify("--seed", "7", "--limit", "10", "--out", "a.sqlite")
    certify("--seed", "7", "--start", "5", "--limit", "10", "--batch", "16", "--out", "b.sqlite")
    assert merge("a.sqlite", "b.sqlite").exit_code == 0
    header, found = read_header(Path("b.sqlite")), list(ars.read_records("b.sqlite"))
    with Store(Path("other.sqlite"), header) as store:
        store.add(*(replace(one, label=(one.label + 1) % 3) if one.idx == 7 else one for one in found))
    result = merge("a.sqlite", "other.sqlite", output="c.sqlite")
    refused(result, "other.sqlite: for input 7, its label is", "in a.sqlite is")
    assert not Path("c.sqlite").exists()


def test_stores_of_other_runs_are_refused_by_name():
    certify_shard(1, 2)
    content = bytearray(Path("model.onnx").read_bytes())
    weights = np.random.default_rng(0).normal(0, 1, (16, 3)).astype(np.float32)  # as in models.linear
    content[content.index(weights.tobytes())] ^= 1
    Path("other.onnx").write_bytes(content)
    x, y = np.load("data.npz")["x"], np.load("data.npz")["y"].copy()
    y[3] = (y[3] + 1) % 3
    np.savez("labels.npz", x=x, y=y)
    others = {
        "its model is": {"engine": "other.onnx"},
        "its data (images, labels or their order) is": {"data": "labels.npz"},
        "its n is 300, and that of 1.sqlite is 200": {"n": 300},
    }
    for problem, files in others.items():
        certify_shard(2, 2, out="2.sqlite", **files)
        refused(merge("1.sqlite", "2.sqlite"), f"2.sqlite: {problem}", "merge stores of one run")
        Path("2.sqlite").unlink()
    for name, value in (("seed", "8"), ("sigma", "0.2"), ("family", "laplace")):
        certify_shard(2, 2, f"--{name}", value)
        refused(merge("1.sqlite", "2.sqlite"), f"2.sqlite: its {name} is {value}, and that of 1.sqlite is")
        Path("2.sqlite").unlink()
    assert not Path("merged.sqlite").exists()


def test_a_target_and_an_existing_output_are_refused():
    certify("--target-width", "0.9", "--target-radii", "0", "--out", "target.sqlite")
    refused(merge("target.sqlite"), "it was made with --target-width")
    certify()
    refused(merge("run.sqlite", output="run.sqlite"), "run.sqlite: it exists already")
    refused(merge("none.sqlite"), "none.sqlite: there is no such file")
    refused(merge("run.sqlite", output="no/merged.sqlite"), "there is no such folder")


def test_an_output_that_cannot_be_written_is_named(monkeypatch):
    certify_shard(1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=3, f_frsize=1024))
        refused(merge("1.sqlite", output="full.sqlite"), "full.sqlite: it cannot be written (no space left")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(30, "Read-only file system")))
        refused(merge("1.sqlite", output="full.sqlite"), "full.sqlite: it cannot be written (Read-only file system)")


def test_a_row_says_where_and_how_it_was_made():
    certify("--limit", "1")
    (one,) = ars.read_records("run.sqlite")
    header = read_header(Path("run.sqlite"))
    assert one.made_by == header.environment
    assert all((one.made_by.node, one.made_by.instructions, one.made_by.batch == 64))
    assert replace(one, made_by=None) != one


def test_a_killed_merge_leaves_nothing_after_the_next_one():
    for number in (1, 2):
        certify_shard(number, 2)
    before = sorted(os.listdir())
    killed = "import os; os.replace = lambda *_: os.kill(os.getpid(), 9); from ars import merge_runs; merge_runs"
    done = subprocess.run([sys.executable, "-c", f"{killed}(['1.sqlite', '2.sqlite'], 'merged.sqlite')"], check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(os.listdir()) != before, "it was killed before it had written anything"
    assert merge("1.sqlite", "2.sqlite").exit_code == 0
    assert sorted(os.listdir()) == sorted([*before, "merged.sqlite"])


def test_a_merge_that_is_killed_as_its_store_appears_leaves_nothing_else():
    """The next merge of that name is refused, and would clean up nothing."""
    for number in (1, 2):
        certify_shard(number, 2)
    before = sorted(os.listdir())
    killed = (
        "import os; real = os.replace; os.replace = lambda *a: (real(*a), os.kill(os.getpid(), 9)); from ars import "
    )
    killed += "merge_runs; merge_runs(['1.sqlite', '2.sqlite'], 'merged.sqlite')"
    assert subprocess.run([sys.executable, "-c", killed], check=False).returncode == -signal.SIGKILL
    assert sorted(os.listdir()) == sorted([*before, "merged.sqlite"])
    assert len(records("merged.sqlite")) == len(records("1.sqlite")) + len(records("2.sqlite"))


def test_commits_of_an_older_store_do_not_get_into_a_merged_one():
    """SQLite replays a log of that name, whichever store it belonged to."""
    for number in (1, 2):
        certify_shard(number, 2)
    older = sqlite3.connect("merged.sqlite")
    older.executescript("PRAGMA journal_mode = WAL; CREATE TABLE other (x)")
    Path("kept").write_bytes(Path("merged.sqlite-wal").read_bytes())
    older.close()
    Path("merged.sqlite").unlink()
    Path("kept").rename("merged.sqlite-wal")
    refused(merge("1.sqlite", "2.sqlite"), "merged.sqlite-wal: it exists already")
    assert Path("merged.sqlite-wal").exists()


@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal"])
def test_a_store_is_not_merged_into_what_sqlite_keeps_beside_another(suffix):
    """SQLite would take it for a log, and remove it."""
    certify_shard(1, 2)
    refused(merge("1.sqlite", output=f"1.sqlite{suffix}"), "it belongs to the input 1.sqlite")


def test_an_audit_of_a_run_of_many_computers_names_one_and_counts_the_others():
    certify("--limit", "12")
    header, found = read_header(Path("run.sqlite")), list(ars.read_records("run.sqlite"))
    with Store(Path("many.sqlite"), header) as store:
        store.add(*(replace(one, made_by=replace(one.made_by, node=f"node-{one.idx % 4}")) for one in found))
    audit = CliRunner().invoke(main, ["audit", "many.sqlite"])
    assert audit.exit_code == 0, audit.output
    assert "different environment: node: the run's is node-0 (and 3 others), and here it is" in audit.stdout
    assert audit.stdout.count("different environment") == 1
