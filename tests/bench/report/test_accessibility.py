"""axe-core finds no accessibility violation on the page: desktop and phone, light and dark, with an open dialog."""

import pytest
from support.browser import find_violations, needs_browser, shown_on, wait_for

from ars.bench.report.page import render_page
from ars.bench.report.runs import read_runs
from ars.bench.report.write import strips_of

pytestmark = needs_browser

SCREENS = pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light"), (360, "dark")])


@pytest.fixture(scope="module")
def page(browser, run_folder, tmp_path_factory):
    runs = read_runs([run_folder / "isotropic.sqlite", run_folder / "generated.sqlite"])
    strips = strips_of(runs, [str(run_folder / "data.npz")], [run_folder / "noise.onnx"], None)
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_page(runs, strips), encoding="utf-8")
    browser.get(file.as_uri())
    wait_for(browser, "return document.querySelectorAll('#seconds rect').length > 0")
    return browser


@SCREENS
def test_the_report_has_no_violation(page, width, scheme):
    with shown_on(page, width, scheme):
        assert find_violations(page) == []


def test_the_dialog_opens_by_keyboard_and_has_no_violation(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    page.find_element(By.CSS_SELECTOR, "td button.input").send_keys(Keys.ENTER)
    wait_for(page, "return document.querySelector('dialog[open]') !== null")
    assert find_violations(page) == []
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    wait_for(page, "return document.querySelector('dialog') === null")


def test_every_control_is_reached_with_the_tab_key(page):
    from selenium.webdriver.common.keys import Keys

    reached = set()
    page.execute_script("document.querySelector('.skip').focus()")
    for _ in range(40):
        page.switch_to.active_element.send_keys(Keys.TAB)
        reached.add(
            page.execute_script(
                "const e = document.activeElement; return e.id || e.name || e.dataset.sort || e.tagName"
            )
        )
    assert reached >= {"norm", "class", "outcome", "radius", "idx", "draws"}


def test_a_picture_without_a_text_is_found(page):
    """The negative control."""
    page.execute_script(
        "const i = document.createElement('img'); i.id = 'bare'; i.src = 'data:,'; document.body.children[2].append(i)"
    )
    assert [rule for rule, _, _ in find_violations(page)] == ["image-alt"]
    page.execute_script("document.getElementById('bare').remove()")
