"""A real browser for the tests of pages, and axe-core in it."""

import importlib.metadata
import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="Chromium and its driver are not installed")


@contextmanager
def open_browser(profile):
    from selenium.webdriver import Chrome, ChromeOptions, ChromeService

    options = ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "window-size=1200,900"):
        options.add_argument(f"--{argument}")
    options.add_argument(f"--user-data-dir={profile}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, ChromeService(DRIVER))
    driver.set_page_load_timeout(120)
    driver.set_script_timeout(120)
    try:
        yield driver
    finally:
        driver.quit()


def wait_for(browser, script):
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, 60).until(lambda driver: driver.execute_script(script))


@contextmanager
def shown_on(browser, width, scheme):
    """The page as a screen of this width shows it, in light or dark colours."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "screen", "features": features})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        wait_for(browser, f"return innerWidth === {width}")
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


def find_violations(browser):
    """What axe-core finds: rule, number of places, and the first of them. The policy of the page allows no script but
    its own, so axe is run by the driver, outside of it. (The package brings the script; its driver is not used.)"""
    (script,) = (file for file in importlib.metadata.files("axe-playwright-python") if file.name == "axe.min.js")
    browser.execute_script(script.read_text())
    found = browser.execute_async_script("axe.run(document).then(arguments[arguments.length - 1])")
    assert len(found["passes"]) > 10, "axe did look"
    return [(one["id"], len(one["nodes"]), one["nodes"][0]["html"][:200]) for one in found["violations"]]
