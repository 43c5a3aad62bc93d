"""The help of all commands has one shape, and the shells complete them."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ars.bench.cli import main as bench
from ars.engine.cli import main as engine
from ars.export.cli import main as export
from ars.train.cli import main as train

SCRIPTS = Path(sys.executable).parent
AUDIT = engine.commands["audit"]
ROOTS = {"ars-train": train, "ars-export": export, "ars-engine": engine, "ars-bench": bench}
COMMANDS = ROOTS | {f"{r} {n}": c for r, g in ROOTS.items() for n, c in getattr(g, "commands", {}).items()}

LAST = ["--format", "--output", "--out", "--overwrite", "--json", "--quiet", "--version"]
"""What is written and said comes last, in this order; click puts --help behind it."""

SAME_WORDS = ["--json", "--quiet", "--version", "--format", "--resize", "--crop", "--n0", "--on-error", "--threads"]
"""Options that mean the same wherever they are. `--threads` has two meanings: lanes of the engine, and cores."""


def options(command):
    return {max(option.opts, key=len): option for option in command.params if isinstance(option, click.Option)}


@pytest.fixture(params=COMMANDS)
def name(request):
    return request.param


def test_a_command_says_what_it_does_then_its_options_then_examples(name):
    shown = CliRunner().invoke(ROOTS[name.split()[0]], [*name.split()[1:], "--help"], prog_name=name.split()[0])
    assert shown.exit_code == 0
    sections = re.findall(r"^(\w+):", shown.output, re.M)
    assert [s for s in sections if s != "Commands"] == ["Usage", "Options", "Examples"]
    if "Commands" in sections:
        assert sections.index("Commands") == 2
    assert re.match(r"[A-Z]\w+,? [^.]*\.", COMMANDS[name].help.replace("model.pt", "model")), name
    assert max(map(len, shown.output.splitlines())) <= 90


def test_its_examples_are_command_lines_that_it_takes(name):
    assert COMMANDS[name].examples
    for example in COMMANDS[name].examples:
        script, *words = shlex.split(example)
        command = ROOTS[script]
        if isinstance(command, click.Group):
            command = command.commands[words.pop(0)]
        assert name in (script, f"{script} {command.name}")
        given, left, _ = command.make_parser(click.Context(command)).parse_args(list(words))
        assert not left, example
        required = [p for p in command.params if p.required]
        assert all(given.get(p.name) for p in required), f"{example} lacks one of {required}"


def test_an_example_with_a_wrong_option_is_found():
    with pytest.raises(click.NoSuchOption):
        AUDIT.make_parser(click.Context(AUDIT)).parse_args(["run.sqlite", "--samples", "3"])


def test_every_option_has_a_help_that_is_a_sentence(name):
    for option, found in options(COMMANDS[name]).items():
        assert found.help, option
        assert found.help.endswith((".", "?")), option


def test_what_is_written_and_said_comes_last_in_one_order(name):
    found = [option for option in options(COMMANDS[name]) if option in LAST]
    assert found == sorted(found, key=LAST.index)
    assert list(options(COMMANDS[name]))[len(options(COMMANDS[name])) - len(found) :] == found


@pytest.mark.parametrize("option", SAME_WORDS)
def test_an_option_that_means_the_same_is_described_in_the_same_words(option):
    said = {options(command)[option].help for command in COMMANDS.values() if option in options(command)}
    assert len(said) == (2 if option == "--threads" else 1), said


@pytest.mark.parametrize(
    ("script", "typed", "completed"),
    [
        ("ars-engine", "cert", "plain,certify"),
        ("ars-engine", "results --norm i", "plain,inf"),
        ("ars-bench", "rep", "plain,report\nplain,reproduce"),
        ("ars-train", "--epo", "plain,--epochs"),
        ("ars-export", "--tensorrt o", "plain,on\nplain,off"),
        ("ars-engine", "audit r", "file,r"),
    ],
)
def test_the_shell_completes_commands_options_choices_and_files(script, typed, completed):
    words = [script, *typed.split()]
    variable = f"_{script.upper().replace('-', '_')}_COMPLETE"
    asked = {variable: "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    run = subprocess.run([SCRIPTS / script], capture_output=True, text=True, env=asked | {"PATH": "/usr/bin:/bin"})
    assert (run.stdout.strip(), run.stderr) == (completed, "")


def test_the_lines_for_the_shell_are_those_of_the_documentation():
    page = (Path(__file__).parents[1] / "docs" / "commands.md").read_text()
    lines = re.findall(r'^eval "\$\((\w+)=bash_source (\S+)\)"$', page, re.M)
    assert [script for _, script in lines] == list(ROOTS)
    for variable, script in lines:
        run = subprocess.run(
            [SCRIPTS / script], capture_output=True, text=True, env={variable: "bash_source", "PATH": "/usr/bin:/bin"}
        )
        assert f"complete -o nosort -F _{script.replace('-', '_')}_completion {script}" in run.stdout, run.stderr
