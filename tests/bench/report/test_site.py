"""A folder of runs becomes a site with an index: searchable, accessible, and with the comparison of any two."""

import shutil

import pytest
from click.testing import CliRunner
from support.browser import find_violations, needs_browser, shown_on, wait_for
from support.engine_runs import refused

from ars.bench.cli import main


def report(*arguments):
    return CliRunner().invoke(main, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def site(run_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "my runs"
    (folder / "later").mkdir(parents=True)
    for name in ("isotropic", "generated"):
        shutil.copy(run_folder / f"{name}.sqlite", folder)
    shutil.copy(run_folder / "isotropic.sqlite", folder / "later")
    result = report(folder, "-o", folder / "site")
    assert result.exit_code == 0, result.output
    return folder / "site"


def test_each_run_has_a_page_beside_the_index(site):
    assert sorted(path.name for path in site.iterdir()) == [
        "generated.run.html",
        "index.html",
        "isotropic.run.html",
        "later-isotropic.run.html",
    ]


def test_a_folder_is_given_alone_and_has_runs(site, run_folder, tmp_path):
    refused(report(tmp_path, "-o", tmp_path / "x"), "it has no run stores")
    refused(report(site.parent, run_folder / "isotropic.sqlite"), "a folder of runs is given alone")


@needs_browser
@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (360, "dark")])
def test_the_index_is_searched_compares_two_and_has_no_violation(browser, site, width, scheme):
    from selenium.webdriver.common.by import By

    browser.get((site / "index.html").as_uri())
    with shown_on(browser, width, scheme):
        search = browser.find_element(By.ID, "search")
        search.send_keys("INPUT gaussian")
        wait_for(browser, "return document.getElementById('status').textContent === '1 of 3 runs'")
        search.clear()
        search.send_keys(" ")
        wait_for(browser, "return document.getElementById('status').textContent === '3 of 3 runs'")
        for box in browser.find_elements(By.CSS_SELECTOR, "input[type=checkbox]")[:2]:
            box.click()
        wait_for(browser, "return document.querySelectorAll('#compare tbody tr').length > 1")
        assert find_violations(browser) == []
        assert browser.execute_script("return location.hash") == "#0,1"
    browser.get("about:blank")
    browser.get((site / "index.html").as_uri() + "#1,2")
    wait_for(browser, "return document.querySelectorAll('#compare tbody tr').length > 1")
