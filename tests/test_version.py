"""pyproject.toml has the version; what else names it agrees."""

import re
import tomllib
from pathlib import Path

import ars
from ars.distribution import NAME

REPOSITORY = Path(__file__).parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def test_the_installed_package_has_the_name_and_the_version_of_pyproject():
    assert (NAME, ars.__version__) == (PROJECT["name"], PROJECT["version"])


def test_the_citation_has_the_version_of_pyproject():
    citation = (REPOSITORY / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", citation, re.M) == [PROJECT["version"]]


def test_the_newest_release_in_the_changelog_is_no_newer_than_the_version():
    released = re.findall(r"^## \[(\d.*?)\]", (REPOSITORY / "CHANGELOG.md").read_text(), re.M)
    assert released[:1] in ([], [PROJECT["version"]])
