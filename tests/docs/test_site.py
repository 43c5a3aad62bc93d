"""The documentation site is built without a warning, its links have targets, and it loads nothing from elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.links import find_faults

import ars

DOCS = Path(__file__).parents[2] / "docs"


def test_the_site_has_no_dead_link_and_loads_nothing_from_elsewhere(site):
    assert find_faults(site) == []
    assert len(list(site.glob("*.html"))) > 25


def test_links_to_pages_show_their_titles(site):
    assert '<a href="families.html">Noise families</a>' in (site / "certificates.html").read_text()
    for page in site.glob("*.html"):
        assert not re.search(r">(docs/)?(families|bench|ARCHITECTURE)\.md</a>", page.read_text()), page


def test_styles_load_nothing_from_elsewhere(site):
    styles = list(site.glob("assets/**/*.css"))
    assert len(styles) > 2
    for path in styles:
        assert not re.search(r"url\(['\"]?(?!data:|['\"])|@import", path.read_text()), path


@pytest.mark.parametrize(
    ("markup", "fault"),
    [
        ('<a href="other.html">', "page.html links to other.html"),
        ('<a href="#there">', "page.html links to #there"),
        ('<a href="page.html#there">', "page.html links to page.html#there"),
        ('<img src="picture.svg">', "page.html links to picture.svg"),
        ('<script src="https://example.org/a.js">', "page.html loads https://example.org/a.js"),
        ('<link href="//example.org/a.css">', "page.html loads //example.org/a.css"),
        ('<p id="here"><a href="page.html#here">', None),
    ],
)
def test_the_checker_finds_faults(tmp_path, markup, fault):
    (tmp_path / "page.html").write_text(markup)
    assert find_faults(tmp_path) == ([fault] if fault else [])


def test_every_public_name_is_on_the_page_about_python(site):
    text = (DOCS / "python.md").read_text()
    for name in ars.__all__:
        assert re.search(rf"^::: ars\.{name}$|`ars\.{name}`", text, re.M), name
        assert f"ars.{name}" in (site / "python.html").read_text()


def test_every_command_and_its_options_are_on_the_page_about_commands(site):
    text = (site / "commands.html").read_text()
    for command in ("ars-train", "ars-export", "ars-engine certify", "ars-engine audit", "ars-bench report"):
        assert command in text
    assert text.count("--stopping") >= 1


def test_the_figures_are_drawn_by_their_script(tmp_path):
    """Not bit by bit, which would depend on the version of matplotlib."""
    subprocess.run([sys.executable, DOCS / "_site" / "figures.py", tmp_path], check=True)
    drawn = {path.name: len(re.findall("<path|<use", path.read_text())) for path in tmp_path.iterdir()}
    kept = {path.name: len(re.findall("<path|<use", path.read_text())) for path in (DOCS / "figures").iterdir()}
    assert drawn == kept
    shown = {name for page in DOCS.glob("*.md") for name in re.findall(r"\(figures/(\S+)\)", page.read_text())}
    assert shown == kept.keys()
