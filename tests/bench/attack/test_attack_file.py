"""The file of attacks beside a run: what is not one is refused in a sentence, and left as it is."""

import dataclasses
import json
import os
import re

import pytest
from support.stores import SETTINGS

from ars.bench.attack.attack_file import Attacked, AttackSettings, Success, attack_path, open_attack_file, read_attacks
from ars.errors import FileError

WANTED = AttackSettings(
    run=SETTINGS.to_json(),
    model="abc",
    seed=1,
    n=10,
    alpha=0.1,
    steps=1,
    draws=1,
    restarts=1,
    reach=3.0,
    moves_maps=False,
)
ONE = Attacked(0, "f" * 64, 1, 0.5, 0.25, 1.5, 2, 0.1, Success(0, 0.6, 0.3, (9, 1, 0), 0.05))
GOOD = [dataclasses.asdict(WANTED), dataclasses.asdict(ONE), dataclasses.asdict(ONE) | {"idx": 1, "success": None}]


def write(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def path(tmp_path):
    path = attack_path(tmp_path / "run.sqlite")
    write(path, GOOD)
    return path


def read(path):
    return read_attacks(path.with_name("run.sqlite"), SETTINGS)


def resume(path):
    with open_attack_file(path, WANTED, any_seed=False) as kept:
        return kept.settings, kept.done


def test_a_good_file_comes_back(path):
    two = dataclasses.replace(ONE, idx=1, success=None)
    assert read(path) == resume(path) == (WANTED, (ONE, two))


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        (0, {"format": 2}),
        (0, {"alpha": "x"}),
        (0, {"alpha": 0}),
        (0, {"reach": -1}),
        (0, {"seed": True}),
        (0, {"run": [1]}),
        (0, {"more": 1}),
        (1, {"K": 0}),
        (1, {"K": 10**400}),
        (1, {"radius": float("nan")}),
        (1, {"radius": "1"}),
        (1, {"idx": -1}),
        (1, {"idx": 0.5}),
        (1, {"input_sha256": "\ud800"}),
        (1, {"seconds": None}),
        (1, {"success": 3}),
        (1, {"success": GOOD[1]["success"] | {"counts": ["a"]}}),
        (1, {"success": GOOD[1]["success"] | {"measure": 0}}),
        (1, {"success": GOOD[1]["success"] | {"length": 1e999}}),
    ],
)
@pytest.mark.parametrize("use", [read, resume])
def test_values_that_no_attack_has_are_refused(path, line, changed, use):
    write(path, [content | (changed if number == line else {}) for number, content in enumerate(GOOD)])
    with pytest.raises(FileError, match=r"it is not a file of attacks \(.*\); move it away"):
        use(path)


@pytest.mark.parametrize(
    "content", [b"\xff\xfe{}\n", b"[" * 100_000 + b"\n", b"{}\n", b"\n", b"3\n", b'{"run": 1}\n', b"a\x00b\n"]
)
@pytest.mark.parametrize("use", [read, resume])
def test_what_is_no_file_of_attacks_is_refused_and_left_as_it_is(path, content, use):
    path.write_bytes(content)
    with pytest.raises(FileError, match="it is not a file of attacks"):
        use(path)
    assert path.read_bytes() == content


def test_another_file_without_a_whole_line_is_left_as_it_is(path):
    path.write_bytes(b"notes of mine, without a line break")
    with pytest.raises(FileError, match="it is not a file of attacks"):
        resume(path)
    assert path.read_bytes() == b"notes of mine, without a line break"


@pytest.mark.parametrize("length", [0, 3, 40])
def test_a_file_that_ended_before_its_first_line_did_is_begun_again(path, length):
    path.write_bytes(path.read_bytes()[:length])
    assert resume(path) == (WANTED, ())
    assert json.loads(path.read_text()) == json.loads(json.dumps(GOOD[0]))


@pytest.mark.parametrize("use", [read, resume])
def test_a_pipe_does_not_hang(path, use):
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(FileError, match=re.escape("it is not a regular file")):
        use(path)
