"""A folder of runs becomes a site with an index: searchable, accessible, and with the comparison of any two."""

import os
import shutil
from urllib.parse import unquote

import pytest
from click.testing import CliRunner
from support.browser import find_violations, needs_browser, shown_on, wait_for
from support.engine_runs import refused
from support.stores import forge

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
    forge(folder / "later" / "isotropic.sqlite", "DELETE FROM certificates WHERE idx >= 12")
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


def test_no_page_takes_the_place_of_another_whatever_the_stores_are_called(run_folder, tmp_path):
    """a/b, a-b and a-b-0 were two pages."""
    folder = tmp_path / "runs"
    (folder / "a").mkdir(parents=True)
    odd = os.fsdecode(b"\xff\n\\x")
    for name in ("a/b", "a-b", "a-b-0", "a-b-2", odd, "long" * 60):
        shutil.copy(run_folder / "isotropic.sqlite", folder / f"{name}.sqlite")
    result = report(folder, "-o", tmp_path / "site")
    assert result.exit_code == 0, result.output
    pages = sorted(path.name for path in (tmp_path / "site").iterdir())
    assert len(pages) == 7
    assert [page for page in pages if page.startswith("a-b")] == [
        "a-b-0.run.html",
        "a-b-2.run.html",
        "a-b-3.run.html",
        "a-b.run.html",
    ]
    assert all(page.isprintable() and "\\" not in page for page in pages)


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
        words = browser.find_elements(By.CSS_SELECTOR, "#table tbody th small")
        assert [word.text for word in words] == ["not finished"]
    browser.get("about:blank")
    browser.get((site / "index.html").as_uri() + "#1,2")
    wait_for(browser, "return document.querySelectorAll('#compare tbody tr').length > 1")
    notes = "return document.getElementById('compare').textContent"
    assert "the run is not finished: 12 of the 60 inputs asked for are certified." in browser.execute_script(notes)


@needs_browser
def test_links_lead_to_the_pages_of_stores_with_odd_names(browser, run_folder, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    names = ["a #1?", "javascript:alert(1)"]
    for name in names:
        shutil.copy(run_folder / "isotropic.sqlite", folder / f"{name}.sqlite")
    assert report(folder, "-o", tmp_path / "site").exit_code == 0
    browser.get((tmp_path / "site" / "index.html").as_uri())
    links = browser.execute_script(
        "return [...document.querySelectorAll('table a')].map(a => new URL(a.href).pathname)"
    )
    assert [unquote(link) for link in links] == [f"{tmp_path}/site/{name}.run.html" for name in names]
