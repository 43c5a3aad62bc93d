"""Attacks in the report: where a file of them lies beside a store, radius and smallest attack stand side by side."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from support.browser import find_violations, needs_browser, shown_on, wait_for
from support.engine_runs import refused

from ars.bench.attack.attack_file import Attacked, AttackSettings, Success, attack_path, open_attack_file
from ars.bench.cli import main
from ars.bench.report.attacks import attacks_of
from ars.engine.records.stored_run import read_run

RATIOS = (1.25, 1.5, 2.0)


def write_attacks(store, ratios=RATIOS, *, moves_maps=False):
    """Attacks of these sizes, in units of the certificates, on the first certified inputs of a run, and one on the next
    input that was not successful."""
    run = read_run(store)
    settings = AttackSettings(run.header.settings.to_json(), "0" * 64, 1, 4000, 1e-6, 20, 32, 3, 3.0, moves_maps)
    certified = [record for record in run.records if not record.certificate.abstained]
    with open_attack_file(attack_path(store), settings, any_seed=False) as file:
        for record, ratio in zip(certified, (*ratios, None), strict=False):
            made = record.certificate
            success = ratio and Success(0, ratio * made.K, ratio * made.radius, (9, 1, 0), 1e-8)
            facts = (record.idx, record.input_sha256, made.predicted, made.K, made.radius, 3 * made.K, 5, 1.5)
            file.write(Attacked(*facts, success))
    return run, certified


@pytest.fixture
def stores(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return [Path(shutil.copy(run, tmp_path)) for run in runs]


def report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


def test_each_attack_is_shown_rounded_up_and_none_as_how_far_was_searched(stores):
    assert attacks_of(read_run(stores[0])) is None
    run, certified = write_attacks(stores[0])
    found = attacks_of(run)
    for record, ratio in zip(certified, RATIOS, strict=False):
        exact = ratio * record.certificate.radius
        assert exact <= float(found.show(record.idx)) < exact + 0.001
    assert found.show(certified[3].idx).startswith("> ")
    assert float(found.show(certified[3].idx)[2:]) <= 3 * certified[3].certificate.radius
    assert found.show(certified[4].idx) == ""
    assert (found.inside, found.median_ratio) == (0, "2.00")  # one without an attack is beyond all others
    assert "> 3" in attacks_of(write_attacks(stores[1], ())[0]).median_ratio


def test_attacks_on_other_certificates_are_not_shown(stores):
    write_attacks(stores[0])
    shutil.copy(attack_path(stores[0]), attack_path(stores[1]))
    refused(report(stores[1], "-o", "report.html"), "generated.attack.jsonl: it has attacks on another run")
    attack_path(stores[1]).write_text("nonsense\n")
    refused(report(stores[1], "-o", "report.html"), "it is not a file of attacks")


def test_the_figure_is_drawn_where_there_are_attacks(stores):
    write_attacks(stores[0])
    assert report(*stores, "-o", "report.html", "--figures", "figures").exit_code == 0
    assert "median 2.00 times" in Path("figures/attacks.svg").read_text()
    assert report(stores[1], "-o", "report.html", "--figures", "others").exit_code == 0
    assert not Path("others/attacks.svg").exists()


@pytest.fixture
def page(browser, stores):
    """Opens the report of the stores."""

    def show():
        assert report(*stores, "-o", "report.html").exit_code == 0
        browser.get(Path("report.html").absolute().as_uri())
        wait_for(browser, "return document.querySelectorAll('#seconds rect').length > 0")
        return browser.execute_script("return document.getElementById('attacks').innerText")

    return show


@needs_browser
def test_the_page_has_a_chart_a_table_and_a_column(browser, stores, page):
    page()
    assert browser.execute_script("return document.getElementById('attacks').offsetHeight") == 0
    write_attacks(stores[0])
    text = page()
    count = "return document.querySelectorAll(arguments[0]).length"
    assert browser.execute_script(count, "#attacks circle.point") == 3
    assert browser.execute_script(count, "#attacks path.none") == 1
    assert "No attack on isotropic contradicts a certificate" in text
    assert "at most 0.004 contradictions" in text
    assert browser.execute_script(count, "[data-sort=attack]") == 1
    write_attacks(stores[1])
    text = page()
    assert "No attack on isotropic, generated contradicts a certificate" in text, "one note, and not one for each run"
    assert text.count("contradictions are expected by chance") == 1
    words = "return [...document.querySelectorAll('#attacks figure svg text')].map(text => text.textContent)"
    assert max(map(len, browser.execute_script(words))) < 24, "no long text lies over the points on a phone"
    browser.execute_script("document.querySelector('[data-sort=attack]').click()")
    first = "return document.querySelector('#table tbody tr').innerText"
    assert "> " in browser.execute_script(first)  # the largest
    for width in (1200, 360):
        for scheme in ("light", "dark"):
            with shown_on(browser, width, scheme):
                assert find_violations(browser) == []
                assert browser.execute_script("return document.documentElement.scrollWidth") <= width


@needs_browser
def test_a_success_inside_is_a_contradiction_unless_the_maps_move(stores, page):
    write_attacks(stores[0], (0.5, 1.5))
    write_attacks(stores[1], (0.5, 1.5), moves_maps=True)
    text = page()
    assert "Contradiction: the attacks on isotropic change the answer inside 1 of 3 certificates" in text
    assert "Contradiction: the attacks on generated" not in text
    assert "A success inside shows what this scope leaves out. Here: generated." in text


@needs_browser
def test_the_index_of_a_site_has_a_column_for_attacks_where_there_are_some(browser, stores):
    heads = "return [...document.querySelectorAll('#table thead th')].map(head => head.textContent)"
    for shown in (False, True):
        assert report(".", "-o", "site").exit_code == 0
        browser.get(Path("site/index.html").absolute().as_uri())
        assert ("attack / certificate" in browser.execute_script(heads)) == shown
        if not shown:
            write_attacks(stores[0])
    assert find_violations(browser) == []
