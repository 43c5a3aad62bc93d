"""The page in a real browser: charts, filters, sorting, phone width, and nothing that leaves the page."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from support.browser import needs_browser, wait_for

from ars.bench.report.page import render_page
from ars.bench.report.runs import read_runs
from ars.bench.report.strips import Strips
from ars.bench.report.write import strips_of
from ars.engine.cli import main as engine
from ars.engine.statistics.certificate import format_radius

pytestmark = needs_browser

EVIL = "<script>window.broken = true</script>"


@pytest.fixture(scope="module")
def page(browser, run_folder, tmp_path_factory):
    """The page of two runs, one of them with 10,000 inputs and with names that are markup, open in the browser."""
    runs = read_runs([run_folder / "isotropic.sqlite", run_folder / "generated.sqlite"])
    strips = strips_of(runs, [str(run_folder / "data.npz")], [run_folder / "noise.onnx"], None)
    many = tuple(replace(runs[0].records[i % 60], idx=i, draws=100 + i) for i in range(10_000))
    sampling = replace(runs[0].header.sampling, data_inputs=20_000)
    header = replace(runs[0].header, classes=(EVIL, "b", "c"), sampling=sampling)
    runs[0] = replace(runs[0], header=header, records=many, name=EVIL)
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(render_page(runs, strips), encoding="utf-8")
    browser.get(file.as_uri())
    wait_for(browser, "return document.querySelectorAll('#seconds rect').length > 0")
    return browser


def count(page, selector):
    return page.execute_script("return document.querySelectorAll(arguments[0]).length", selector)


def column(page, key):
    """The texts of the column that is sorted by this key."""
    script = """
    const heads = [...document.querySelectorAll("#table th")];
    const place = heads.findIndex(head => head.querySelector(`[data-sort="${arguments[0]}"]`)) + 1;
    return [...document.querySelectorAll(`#table tbody td:nth-child(${place})`)].map(cell => cell.textContent)"""
    return page.execute_script(script, key)


def numbers(texts):
    return [float(text.replace(",", "")) for text in texts]


def test_the_charts_are_drawn_with_their_descriptions_and_tables(page):
    assert count(page, "#accuracy svg path.curve") >= 2
    assert count(page, "#draws svg rect.bar") > 2
    assert count(page, "#seconds svg rect.bar") == 2
    assert count(page, "figure.chart svg[role=img] > title") == count(page, "figure.chart") == 3
    assert count(page, "figure.chart svg[role=img] > desc") == 3
    assert count(page, "table") == count(page, "table > caption")
    shown = page.execute_script("return [...document.querySelectorAll('#strips img')].map(i => i.naturalWidth)")
    assert len(shown) > 20
    assert min(shown) > 0, "every picture is decoded"


def test_the_lead_says_what_a_frozen_scope_speaks_of(page):
    lead = page.execute_script("return document.getElementById('lead').textContent")
    assert "Where the scope is frozen, that is the classifier whose noise stays" in lead  # one of the runs has it


def test_names_that_are_markup_are_shown_as_text(page):
    assert not page.execute_script("return window.broken")
    assert page.execute_script("return document.querySelector('#cards h3').textContent") == EVIL
    assert count(page, "body script") == 2


def test_columns_sort_by_click_and_by_keyboard(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    draws = page.find_element(By.CSS_SELECTOR, "[data-sort=draws]")
    draws.click()
    assert draws.find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"
    assert numbers(column(page, "draws"))[:2] == [10_099, 10_098]
    draws.send_keys(Keys.ENTER)
    assert draws.find_element(By.XPATH, "..").get_attribute("aria-sort") == "ascending"
    assert numbers(column(page, "draws"))[0] == 100
    page.find_element(By.CSS_SELECTOR, "[data-sort=idx]").click()
    assert count(page, "#table th[aria-sort]") == 1
    assert numbers(column(page, "idx"))[:3] == [0, 0, 1]


def test_filters_choose_rows_and_say_how_many(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    def expect(status):
        wait_for(page, f"return document.getElementById('status').textContent.startsWith({json.dumps(status)})")

    expect("1 to 50 of 10,060 certificates")
    assert count(page, "#table tbody tr") == 50, "one page of rows at a time"
    page.find_element(By.XPATH, "//nav[@id='pages']/button[2]").click()
    expect("51 to 100 of")
    Select(page.find_element(By.NAME, "outcome")).select_by_value("wrong")
    expect("1 to 50 of")
    assert set(column(page, "outcome")) == {"✗ wrong"}
    Select(page.find_element(By.NAME, "run")).select_by_value("1")
    expect("1 to 5 of 5 certificates, out of 10,060")
    assert set(column(page, "run")) == {"generated"}
    page.find_element(By.NAME, "radius").send_keys("99")
    expect("No certificate fits these filters.")
    page.find_element(By.CSS_SELECTOR, "#filters button[type=reset]").click()
    expect("1 to 50 of 10,060 certificates")
    page.find_element(By.NAME, "class").send_keys("9999")
    expect("1 to 1 of 1 ")
    assert column(page, "idx") == ["9,999"]
    page.find_element(By.CSS_SELECTOR, "#filters button[type=reset]").click()
    expect("1 to 50 of 10,060 certificates")


def test_the_curve_is_read_with_the_arrow_keys(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    chart = page.find_element(By.CSS_SELECTOR, "#accuracy svg.drawing")
    chart.send_keys(Keys.HOME)
    reading = page.find_element(By.CSS_SELECTOR, "#accuracy .reading").text
    assert "at radius 0" in reading
    assert "generated" in reading
    chart.send_keys(Keys.ARROW_RIGHT)
    assert page.find_element(By.CSS_SELECTOR, "#accuracy .reading").text != reading


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_the_page_never_scrolls_sideways(page, width):
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        wait_for(page, f"return innerWidth === {width}")
        wait_for(page, "return document.documentElement.scrollWidth <= innerWidth")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_mode_and_print_change_the_colours(page):
    colour = "return getComputedStyle(document.documentElement).backgroundColor"
    seen = set()
    for media, scheme in (("screen", "light"), ("screen", "dark"), ("print", "light")):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        seen.add(page.execute_script(colour))
        hidden = page.execute_script("return getComputedStyle(document.getElementById('filters')).display === 'none'")
        assert hidden == (media == "print")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert len(seen) == 3


def choose_norm(page, norm):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    Select(page.find_element(By.ID, "norm")).select_by_value(norm)
    wait_for(page, "return document.querySelectorAll('#accuracy svg.drawing').length === 1")


def test_cards_curves_and_table_follow_the_norm(page):
    def radii():
        return numbers(column(page, "radius"))

    def average():
        return float(page.execute_script("return document.querySelectorAll('#cards dd')[2].textContent"))

    own, own_average = radii(), average()
    assert page.execute_script("return document.querySelector('#norm').value") == "l2"
    try:
        for norm, name, factor in (("linf", "ℓ∞", 8), ("l1", "ℓ1", 1), ("l2", "ℓ2", 1)):
            choose_norm(page, norm)
            title = page.execute_script("return document.querySelector('#accuracy svg > title').textContent")
            assert title == f"Certified accuracy by {name} radius"
            assert (
                page.execute_script("return document.querySelector('[data-sort=radius]').textContent")
                == f"{name} radius"
            )
            assert radii()[0] == pytest.approx(own[0] / factor, abs=0.001), "of isotropic noise in 64 dimensions"
            assert average() == pytest.approx(own_average / factor, abs=0.001)
            assert f"{name} radius" in page.execute_script(
                "return document.querySelector('#strips .about').textContent"
            )
        assert radii() == own
    finally:
        choose_norm(page, "l2")


def test_the_rows_and_the_dialog_of_an_input_say_why_it_stopped(page):
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    sentence = column(page, "explanation")[0]
    assert sentence.startswith("It took all 500 draws. ")
    page.find_element(By.CSS_SELECTOR, "#table tbody td button").click()
    dialog = page.find_element(By.CSS_SELECTOR, "dialog[open]")
    assert "Input 0" in dialog.text
    assert sentence in dialog.text
    assert all(f"{name} radius" in dialog.text for name in ("ℓ1", "ℓ2", "ℓ∞"))
    dialog.send_keys(Keys.ESCAPE)
    wait_for(page, "return document.querySelector('dialog') === null")


def test_nothing_is_logged_and_no_request_leaves_the_page(page):
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    from_page = [one["request"]["url"] for one in sent if one["documentURL"] == page.current_url]
    assert from_page[0] == page.current_url
    assert [url for url in from_page[1:] if not url.startswith("data:")] == []
    outside = ("http", "ws", "ftp")  # the browser's own start page asks only itself, by chrome: addresses
    assert [one["request"]["url"] for one in sent if one["request"]["url"].startswith(outside)] == []


def show(browser, runs, strips, file):
    file.write_text(render_page(runs, strips), encoding="utf-8")
    browser.get(file.as_uri())


def with_records(run, change):
    records = tuple(map(change, run.records))
    return replace(run, records=records)


def test_runs_without_labels_have_a_page_too(browser, run_folder, tmp_path):
    runs = read_runs([run_folder / "isotropic.sqlite"])
    (of_run,) = strips_of(runs, [], [], None)
    unlabelled = with_records(runs[0], lambda record: replace(record, label=None))
    strips = tuple(replace(strip, record=replace(strip.record, label=None)) for strip in of_run.strips)
    show(browser, [unlabelled], [Strips(strips)], tmp_path / "page.html")
    assert "Without labels there is no accuracy" in browser.page_source
    assert count(browser, "#table tbody tr") == 50
    answered = sum(not strip.record.certificate.abstained for strip in strips)
    assert count(browser, ".about p.certified") == answered > 0, "neither right nor wrong"
    assert browser.get_log("browser") == []


def test_names_of_curves_stand_beside_their_ends(browser, run_folder, tmp_path):
    """A line from the end of a curve to the edge of the chart looked like a plateau."""
    (run,) = read_runs([run_folder / "isotropic.sqlite"])
    half = with_records(run, lambda one: replace(one, certificate=replace(one.certificate, sigma_min=0.05)))
    runs = [run, replace(half, name="half")]
    show(browser, runs, [Strips(())] * 2, tmp_path / "page.html")
    wait_for(browser, "return document.querySelectorAll('#accuracy path.leader').length === 2")
    boxes = "return [...document.querySelectorAll('#accuracy path.leader')].map((line) => line.getBBox().width)"
    assert max(browser.execute_script(boxes)) < 10


def test_a_unit_is_said_once_and_an_unfinished_run_on_its_card(browser, run_folder, tmp_path):
    runs = read_runs([run_folder / "isotropic.sqlite"] * 2)
    unit = replace(runs[0].header, origin=replace(runs[0].header.origin, unit="pixels, from 0 to 1"))
    few = replace(runs[1], header=unit, records=runs[1].records[:7])
    show(browser, [replace(runs[0], header=unit), few], [Strips(())] * 2, tmp_path / "page.html")
    text = browser.execute_script("return document.querySelector('section').textContent")
    assert text.count("σ and radii are in units of pixels, from 0 to 1") == 1
    cards = browser.execute_script("return [...document.querySelectorAll('.card')].map((card) => card.textContent)")
    assert ["The run is not finished: 7 of the 60 inputs asked for are certified." in card for card in cards] == [
        False,
        True,
    ]
    other = replace(unit, origin=replace(unit.origin, unit="features"))
    show(browser, [replace(runs[0], header=unit), replace(few, header=other)], [Strips(())] * 2, tmp_path / "b.html")
    assert count(browser, ".card .kind") == 4, "units that differ are said with each run"


def test_runs_of_different_families_share_a_chart(browser, run_folder, tmp_path):
    (run,) = read_runs([run_folder / "isotropic.sqlite"])
    laplace = with_records(run, lambda one: replace(one, certificate=replace(one.certificate, family="laplace")))
    show(browser, [run, replace(laplace, name="laplace")], [Strips(())] * 2, tmp_path / "page.html")
    for norm in ("l1", "linf", "l2"):
        choose_norm(browser, norm)
        assert count(browser, "#accuracy path.curve") == 2
    names = browser.execute_script(
        "return [...document.querySelectorAll('svg.drawing')].map((svg) => svg.getAttribute('aria-labelledby'))"
    )
    assert len(names) == len(set(names)) == 3


def test_a_run_that_does_not_say_its_scales_has_a_note_instead_of_a_curve(browser, run_folder, tmp_path):
    (run,) = read_runs([run_folder / "isotropic.sqlite"])
    unknown = {"dimensions": None, "inverse_scale_l1": None, "inverse_scale_l2": None}
    older = with_records(run, lambda one: replace(one, certificate=replace(one.certificate, **unknown)))
    show(browser, [older], [Strips(())], tmp_path / "page.html")
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import Select

    Select(browser.find_element(By.ID, "norm")).select_by_value("linf")
    wait_for(
        browser, "return document.querySelector('#accuracy').textContent.includes('did not keep what radii in ℓ∞')"
    )
    assert count(browser, "#accuracy path.curve") == 0
    assert set(column(browser, "radius")) == {"unknown"}
    assert browser.get_log("browser") == []


def test_a_table_of_one_page_has_no_buttons_to_turn_it(browser, run_folder, tmp_path):
    (run,) = read_runs([run_folder / "isotropic.sqlite"])
    few = replace(run, records=run.records[:10])
    for shown, display in ((few, "none"), (run, "flex")):
        show(browser, [shown], [Strips(())], tmp_path / "page.html")
        assert browser.execute_script("return getComputedStyle(document.getElementById('pages')).display") == display


@pytest.fixture(scope="module")
def mapped(run_folder, tmp_path_factory):
    """A run with one map for all inputs: 0.2 on the left, 0.8 on the right."""
    folder = tmp_path_factory.mktemp("mapped")
    scale = np.full((1, 8, 8), 0.2, np.float32)
    scale[..., 4:] = 0.8
    np.savez(folder / "maps.npz", mean=np.zeros_like(scale), scale=scale)
    given = ["certify", "--engine", run_folder / "model.onnx", "--data", run_folder / "data.npz", "--batch", 64]
    more = ["--n", 500, "--noise", folder / "maps.npz", "--out", folder / "mapped.sqlite", "--quiet"]
    result = CliRunner().invoke(engine, [str(word) for word in [*given, *more]])
    assert result.exit_code == 0, result.output
    return folder / "mapped.sqlite"


def test_the_dialog_shows_which_pixels_may_move_how_far(browser, mapped, run_folder, tmp_path, monkeypatch):
    from selenium.webdriver.common.by import By

    monkeypatch.chdir(run_folder)  # the data is found there; a store opens nothing far from it by itself

    runs = read_runs([mapped])
    show(browser, runs, strips_of(runs, [], [], None), tmp_path / "report.html")
    record = next(record for record in runs[0].records if not record.certificate.abstained)
    number = runs[0].records.index(record)
    card = browser.find_element(By.CSS_SELECTOR, "#cards article").text
    assert "average volume-equivalent radius" in card
    assert format_radius(runs[0].summary.average_volume_radius) in card
    browser.find_elements(By.CSS_SELECTOR, "#table tbody td button")[number].click()
    figure = browser.find_element(By.CSS_SELECTOR, "dialog[open] figure.region")
    ends = [span.text for span in figure.find_elements(By.CSS_SELECTOR, ".ends span")]
    smallest, largest = (float(np.float32(sigma)) * record.certificate.K * 255 for sigma in (0.2, 0.8))
    assert ends == [format_radius(smallest, 1), format_radius(largest, 1)]
    assert f"volume radius\n{format_radius(record.certificate.volume_radius)}" in (
        browser.find_element(By.CSS_SELECTOR, "dialog[open]").text
    )
    assert "scope\nglobal" in browser.find_element(By.CSS_SELECTOR, "dialog[open]").text
    image = figure.find_element(By.TAG_NAME, "img")
    wait_for(browser, "return document.querySelector('dialog figure.region img').naturalWidth === 8")
    assert "how far each pixel may move" in image.get_attribute("alt")
    assert browser.get_log("browser") == []
    # The left half has the first colour of the ramp, and the right half the last.
    pixels = browser.execute_script(
        "const c = document.createElement('canvas').getContext('2d');"
        "c.drawImage(document.querySelector('dialog figure.region img'), 0, 0);"
        "return [0, 7].map((x) => [...c.getImageData(x, 3, 1, 1).data])"
    )
    assert pixels == [[68, 1, 84, 255], [253, 231, 37, 255]]


def test_isotropic_runs_and_abstentions_have_no_picture_of_a_region(browser, run_folder, mapped, tmp_path):
    from selenium.webdriver.common.by import By

    isotropic, anisotropic = read_runs([run_folder / "isotropic.sqlite"])[0], read_runs([mapped])[0]
    nothing = with_records(
        anisotropic,
        lambda record: replace(record, certificate=replace(record.certificate, predicted=-1, K=0.0, radius=0.0)),
    )
    for run in (isotropic, nothing):
        strips = strips_of([run], [str(run_folder / "data.npz")], [], "3")
        show(browser, [run], strips, tmp_path / "report.html")
        browser.find_element(By.CSS_SELECTOR, "#table tbody td button").click()
        assert browser.find_element(By.CSS_SELECTOR, "dialog[open]")
        assert not browser.find_elements(By.CSS_SELECTOR, "figure.region")


def test_maps_of_single_inputs_have_a_picture_where_they_are_shown(browser, run_folder, tmp_path):
    from selenium.webdriver.common.by import By

    runs = read_runs([run_folder / "generated.sqlite"])
    strips = strips_of(runs, [], [], None)
    show(browser, runs, strips, tmp_path / "report.html")
    shown = strips[0].strips[0].record.idx
    other = next(r.idx for r in runs[0].records if r.idx not in [s.record.idx for s in strips[0].strips])
    for idx, pictures in ((shown, 1), (other, 0)):
        if idx >= 50:  # it is on the second page of the table
            continue
        browser.find_elements(By.CSS_SELECTOR, "#table tbody td button")[idx].click()
        assert len(browser.find_elements(By.CSS_SELECTOR, "dialog[open] figure.region")) == pictures
        assert "scope\nfrozen" in browser.find_element(By.CSS_SELECTOR, "dialog[open]").text
        browser.execute_script("document.querySelector('dialog').close()")
        wait_for(browser, "return document.querySelector('dialog') === null")
