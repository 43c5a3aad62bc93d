"""The site in a real browser, opened as files: it asks no server for anything, its search works, it never scrolls
sideways, and axe-core finds no accessibility violation."""

import json

import pytest
from support.browser import find_violations, needs_browser, shown_on, wait_for

pytestmark = needs_browser

SCREENS = [(1280, "light"), (1280, "dark"), (390, "light"), (390, "dark")]


def show(browser, site, name):
    browser.get((site / name).as_uri())
    wait_for(browser, "return document.readyState === 'complete'")


def look(browser, site, name, width, scheme):
    with shown_on(browser, width, scheme):
        show(browser, site, name)
        browser.execute_script("localStorage.clear()")  # the theme keeps the colours of the page before
        show(browser, site, name)
        shown = {"light": "default", "dark": "slate"}[scheme]
        wait_for(browser, f"return document.body.dataset.mdColorScheme === '{shown}'")
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert find_violations(browser) == []


@pytest.mark.parametrize(
    ("name", "width", "scheme"),
    [
        ("index", 1280, "light"),
        ("index", 390, "dark"),
        ("start", 390, "light"),
        ("families", 1280, "dark"),
        ("commands", 390, "light"),
        ("notebook-explore-a-run", 1280, "dark"),
    ],
)
def test_the_first_pages_have_no_violation(browser, site, name, width, scheme):
    look(browser, site, f"{name}.html", width, scheme)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
def test_no_page_has_a_violation(browser, site, width, scheme):
    pages = sorted(page.stem for page in site.glob("*.html") if page.name != "404.html")
    assert len(pages) > 35
    for name in pages:
        look(browser, site, f"{name}.html", width, scheme)


def test_the_search_finds_a_page_without_a_server(browser, site):
    from selenium.webdriver.common.by import By

    browser.get_log("performance")
    show(browser, site, "index.html")
    browser.find_element(By.CSS_SELECTOR, ".md-search__input").send_keys("stretch")
    wait_for(browser, "return document.querySelectorAll('.md-search-result__link').length > 2")
    found = [link.get_attribute("href") for link in browser.find_elements(By.CSS_SELECTOR, ".md-search-result__link")]
    assert any("families.html" in link or "soundness.html" in link for link in found)
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert any(address.endswith("search_index.js") for address in asked)
    assert {address.partition(":")[0] for address in asked} <= {"file", "data"}
