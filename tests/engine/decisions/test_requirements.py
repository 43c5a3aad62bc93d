"""`ars-engine check`: an exit status for pipelines."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, refused

from ars.engine.cli import main

pytestmark = pytest.mark.usefixtures("files")


def check(*arguments):
    return CliRunner().invoke(main, ["check", "run.sqlite", *arguments])


def test_the_exit_status_says_whether_all_is_met(files):
    certify("--max", "30")
    met = check("--require", "0:0.5", "--require-scope", "global")
    assert (met.exit_code, met.stdout.count("ok  ")) == (0, 2)
    failed = check("--require", "0:0.5", "--require", "5:0.1")
    assert failed.exit_code == 1
    assert "FAILED  certified accuracy at radius 5 is at least 10.0%: 0.0% of 30 of 40 inputs" in failed.stdout
    assert "no certificate of this run can reach it" in failed.stdout
    assert check("--require-scope", "frozen").exit_code == 1


def test_the_lower_end_is_harder_to_meet(files):
    certify("--max", "30")
    assert check("--require", "0:0.95").exit_code == 0
    assert check("--require", "0:0.95", "--lower-bound").exit_code == 1
    certify()  # all inputs: exact, so the lower end is the accuracy itself
    assert check("--require", "0:0.95", "--lower-bound").exit_code == 0


def test_junit_has_a_case_for_each_requirement(files):
    certify("--max", "5")
    check("--require", "0:0.5", "--require", "5:0.1", "--junit", "checks.xml")
    suite = ET.parse("checks.xml").getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True]


def test_bad_input_is_refused(files):
    certify("--max", "5")
    for text in ("0.5", "0.5:60", "x:0.5", "-1:0.5", "0.5:0.6:1"):
        refused(check("--require", text), f"require = {text}", "like 0.5:0.60")
    refused(check(), "give --require")
    np.savez("plain.npz", x=np.load("data.npz")["x"])
    Path("run.sqlite").unlink()
    certify("--data", "plain.npz", "--max", "2")
    refused(check("--require", "0:0.5"), "run.sqlite: its inputs have no labels")
