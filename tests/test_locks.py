"""The locks have what set-up installs: every package at the version in constraints.txt, with hashes."""

import re
import tomllib
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
EXTRAS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["optional-dependencies"]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
BASE = re.search(r"^BASE := (.*)$", MAKEFILE, re.M)[1].split()
DEVELOP = re.search(r"^DEVELOP := \$\(BASE\) (.*)$", MAKEFILE, re.M)[1].split()


def normalize(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def read_pins(text):
    pins = re.findall(r"^([\w.-]+)==(\S+)", text, re.M)
    return {normalize(name): version for name, version in pins}


def find_stale(lock, pins, requirements):
    """What is wrong with the text of a lock."""
    locked = read_pins(lock)
    wanted = {normalize(re.match(r"[\w.-]+", requirement)[0]) for requirement in requirements} - {"torch"}
    bare = [
        name for name, hashed in re.findall(r"^(\S+==\S+).*\n( +--hash=sha256:[0-9a-f]{64})?", lock, re.M) if not hashed
    ]
    other = sorted(name for name in locked if locked[name] != pins.get(name, locked[name]))
    return {"absent": sorted(wanted - set(locked)), "of another version": other, "without hashes": bare}


@pytest.mark.parametrize(("name", "extras"), [("base", BASE), ("develop", BASE + DEVELOP)])
def test_a_lock_has_what_is_wanted_at_the_versions_of_the_constraints(name, extras):
    lock, pins = (
        (REPOSITORY / "locks" / f"{name}.txt").read_text(),
        read_pins((REPOSITORY / "constraints.txt").read_text()),
    )
    found = find_stale(lock, pins, [requirement for extra in extras for requirement in EXTRAS[extra]])
    assert not any(found.values()), f"run `make locks`: {found}"
    assert "torch" not in read_pins(lock)


def test_a_stale_lock_is_found():
    lock = "a==1 \\\n    --hash=sha256:" + 64 * "0" + "\nb==2\n"
    assert find_stale(lock, {"a": "2", "b": "2"}, ["c>=1"]) == {
        "absent": ["c"],
        "of another version": ["a"],
        "without hashes": ["b==2"],
    }
