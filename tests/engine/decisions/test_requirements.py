"""`ars-engine check`: an exit status for pipelines."""

import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.engine_runs import certify, refused
from support.stores import forge

from ars.engine.cli import main

pytestmark = pytest.mark.usefixtures("files")


def check(*arguments):
    return CliRunner().invoke(main, ["check", "run.sqlite", *arguments])


def test_the_exit_status_says_whether_all_is_met(files):
    certify("--limit", "30")
    met = check("--require", "0:0.5", "--require-scope", "global")
    assert (met.exit_code, met.stdout.count("ok  ")) == (0, 2)
    failed = check("--require", "0:0.5", "--require", "5:0.1")
    assert failed.exit_code == 1
    assert "FAILED  certified accuracy at radius 5 is at least 10.0%: 0.00% of 30 of 40 inputs" in failed.stdout
    assert "no certificate of this run can reach it" in failed.stdout
    assert check("--require-scope", "frozen").exit_code == 1


def test_the_lower_end_is_harder_to_meet(files):
    certify("--limit", "30")
    assert check("--require", "0:0.95").exit_code == 0
    assert check("--require", "0:0.95", "--lower-bound").exit_code == 1
    certify()  # all inputs: exact, so the lower end is the accuracy itself
    assert check("--require", "0:0.95", "--lower-bound").exit_code == 0


def test_what_is_required_is_shown_in_full_and_what_was_measured_is_rounded_down(files):
    """59.996 % would otherwise be called 60.0 % where 60.0 % is required and not met."""
    certify()
    forge("run.sqlite", "UPDATE certificates SET predict = label")
    forge("run.sqlite", "UPDATE certificates SET predict = -1 WHERE idx IN (3, 17, 21)")  # 37 of 40: 92.5 %
    said = check("--require", "0:0.92508", "--require", "0:0.9").stdout
    assert "FAILED  certified accuracy at radius 0 is at least 92.508%: 92.50% of 40" in said
    assert "ok      certified accuracy at radius 0 is at least 90.0%: 92.50%" in said
    forge("run.sqlite", "UPDATE certificates SET label = NULL WHERE idx >= 38")  # 35 of 38: 92.105 %
    forge("run.sqlite", "UPDATE certificates SET predict = -1 WHERE idx = 5")  # 34 of 38: 89.47 %
    assert "at least 89.5%: 89.47% of 38" in check("--require", "0:0.895").stdout


def test_junit_has_a_case_for_each_requirement(files):
    certify("--limit", "5")
    check("--require", "0:0.5", "--require", "5:0.1", "--junit", "checks.xml")
    suite = ET.parse("checks.xml").getroot()
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "2", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True]


def test_bad_input_is_refused(files):
    certify("--limit", "5")
    for text in ("0.5", "0.5:60", "x:0.5", "-1:0.5", "0.5:0.6:1"):
        refused(check("--require", text), f"require = {text}", "like 0.5:0.60")
    refused(check(), "give --require")
    np.savez("plain.npz", x=np.load("data.npz")["x"])
    Path("run.sqlite").unlink()
    certify("--data", "plain.npz", "--limit", "2")
    refused(check("--require", "0:0.5"), "run.sqlite: its inputs have no labels")
