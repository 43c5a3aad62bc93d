"""Everything that the pages show to be typed works: the README, and every page in docs/.

Commands and Python run page by page, in the order of the page and in a folder of its own, on small files of the same
names and with few draws. What would take hours, a GPU or a cluster is parsed instead: the command exists, and so does
each of its options, with a value that it takes. PARSED and LEFT_OUT say which, and why.
"""

import itertools
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image
from support.shown import PAGES, REPOSITORY, inline_commands, shown_blocks

import ars
from ars.bench.cli import main as bench
from ars.bench.run.random_model import export_random
from ars.engine.cli import main as engine
from ars.export.cli import main as export
from ars.train.cli import main as train

COMMANDS = {"ars-train": train, "ars-export": export, "ars-engine": engine, "ars-bench": bench}

PARSED = {
    r".* (-o|--out) (fm|ci)-|.* (fm-1.0|pareto|volume|input|cifar-input)(\.int8)?\.(pt|onnx)": (
        "the commands behind a table of measurements, with hours of training"
    ),
    r"ars-train .* -o (isotropic|dataset|floor|input|volume|pareto|clean|paper|cifar-\w+)\.pt": "likewise",
    r"ars-bench bounds (fm-|cifar10-cpu)": "likewise",
    r".* deep\.(pt|onnx|sqlite)": "likewise",
    r"ars-bench run .*(cifar|r20|isotropic-0.5)": "likewise; tests/bench/run runs such benchmarks",
    r"ars-bench (paper|field|reproduce)": "hours; tests/bench/paper, test_field.py and reproduce run them in small",
    r"ars-bench gpu-report": "a GPU; tests/bench/test_gpu_report.py runs it on a simulated one",
    r"ars-train --dataset imagenet": "ImageNet",
    r"ars-engine certify .*--data cifar10/test": "CIFAR-10",
    r".*--arch timm:": "timm, which is not installed",
    r"ars-export (script.pt .*--sigma 0.5 |program.pt2|mine.onnx|lite.onnx|digits.onnx)": (
        "files of other programs; tests/test_what_works.py makes them and runs such commands"
    ),
    r"ars-engine certify --engine (digits|classifier)": "likewise",
    r"ars-export .*--compute-capability": "tensorrt_rtx; tests/export/test_tensorrt.py builds engines",
    r".*--cluster auto": "a cluster; tests/engine/test_cluster.py has one",
    r".* \.\.\. ": "it is abridged",
}
"""Commands that are only parsed, and what it would take to run them."""

LEFT_OUT = {
    r"python3 -m venv|\. \.venv|source ": "it sets up the environment that the tests run in",
    r"ray start": "Ray's own command",
    r"torchrun": "torch's own command; tests/train/test_processes.py runs it",
    r"docker run": "Docker",
}
"""Commands that are not ours. Those of pip, make, pytest and docker build are checked for what they name."""

# What makes a command short: words that are added at its end, and so win over those that the page shows.
LESS = {
    ("ars-train",): "--epochs 1 --limit 64 --batch 32 --draws 2 --arch cnn --overwrite",
    ("ars-export",): "--min-agreement 0 --tensorrt off",
    ("ars-engine", "certify"): "--n 50 --limit 2 --batch 16",
    ("ars-engine", "predict"): "--n 50 --limit 2 --batch 16",
    ("ars-engine", "audit"): "--sample 1",
    ("ars-engine", "covers"): "--input 0",
    ("ars-bench", "sweep"): "--n 50 --limit 2 --batch 16 --sigmas 0.5",
    ("ars-bench", "run"): "--rounds 3 --n 200 --batch 16 --inputs 2 --backend loop --backend onnxruntime",
    ("ars-bench", "attack"): "--n 100 --limit 1 --steps 1 --draws 2 --restarts 1",
    ("ars-bench", "bounds"): "--n 100",
    ("ars-bench", "sampler"): "--rounds 3 --batch 10",
    ("ars-bench", "overhead"): "--rounds 3 --batch 4",
    ("ars-bench", "generator"): "--rounds 3 --n 100",
}
STAND_INS = {
    "fashion-mnist": "small",
    "cifar10": "small",
    "fashion-mnist:test": "images.npz",
    "cifar-10-batches-bin/": "images.npz",
    "images/": "images.npz",
    "resnet20": "cnn",
    "resnet110": "cnn",
    "resnet50": "cnn",
}
"""Data that not every machine has, and networks that take long, by what stands for them."""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with files of the pages' names: a model with all its files, images, and a run store."""
    folder = tmp_path_factory.mktemp("pages")
    pixels = np.random.default_rng(0).integers(0, 256, (100, 1, 28, 28), np.uint8)
    labels = np.arange(100) % 10
    np.savez(folder / "images.npz", x=pixels, y=labels)
    np.savez(folder / "maps.npz", mean=np.zeros((1, 28, 28), np.float32), scale=np.full((1, 28, 28), 0.25, np.float32))
    (folder / "small").mkdir()
    np.savez(folder / "small" / "train.npz", x=pixels, y=labels)
    np.savez(folder / "small" / "test.npz", x=pixels, y=labels)
    Image.fromarray(pixels[0, 0]).save(folder / "cat.png")
    for name in ("cats", "dogs"):
        (folder / "folder" / name).mkdir(parents=True)
        Image.fromarray(pixels[1, 0]).save(folder / "folder" / name / "1.png")
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    export_random("cnn", (1, 28, 28), folder)
    for path in list(folder.glob("cnn*")):
        renamed = path.rename(folder / path.name.replace("cnn", "model"))
        if renamed.suffix == ".json":
            renamed.write_text(renamed.read_text().replace('"cnn.', '"model.'))
    (folder / "runs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with ars.load("model.onnx", batch=16, seed=1) as classifier:
            inputs, adaptive = ars.Inputs("images.npz", limit=4), ars.Plan(n=50, question=ars.Grid((0.0, 0.25)))
            ars.certify_run(classifier, inputs, ars.Plan(n=50), store="runs/fixed.sqlite")
            ars.certify_run(classifier, inputs, adaptive, store="runs/adaptive.sqlite")
    for number in (1, 2):
        shutil.copy(folder / "runs" / "fixed.sqlite", folder / f"shard-{number}.sqlite")
    return folder


@pytest.fixture
def here(files, tmp_path, monkeypatch):
    folder = shutil.copytree(files, tmp_path / "here", symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def is_listed(command, patterns):
    return any(re.match(pattern, command) for pattern in patterns)


def shown_in(page, kind):
    return list(dict.fromkeys(shown.text for shown in shown_blocks(page) if shown.kind == kind))


def names_of(page):
    """What the Python of a page speaks of, beside what it makes itself."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    convolutions = nn.Conv2d(3, 4, 3, stride=4), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU()
    network = nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(144, 10))
    images, labels = torch.rand(40, 3, 32, 32), torch.arange(40) % 10
    names = {"network": network, "model": network, "images": images, "image": images[0], "labels": labels}
    if page.name == "migrating.md":
        pairs = torch.utils.data.TensorDataset(images, labels)
        names |= {"x": images[0], "dataset": pairs, "function": lambda rows: rows.reshape(len(rows), -1)[:, :10]}
    return names


def run_python(code, names):
    """Run it with few draws, and with our own class in the place of the field's. What needs a cluster is compiled;
    tests/engine/test_cluster.py runs such calls."""
    code = re.sub(r"limit=\d+", "limit=2", re.sub(r"\bn=\d[\d_]*", "n=60", code)).replace("from core", "from ars")
    compiled = compile(code, "page", "exec")
    if "ars.Cluster(" not in code:
        with warnings.catch_warnings(action="ignore"):  # of torch's exporter
            exec(compiled, names)


def short_form(command):
    words = [STAND_INS.get(word, word) for word in shlex.split(command.partition(" | ")[0])]
    less = next((added for start, added in LESS.items() if tuple(words[: len(start)]) == start), "")
    return [*words, *less.split()]


def run_command(command):
    name, *words = short_form(command)
    if name == "python":
        run = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        return
    words = [found for word in words for found in (sorted(map(str, Path().glob(word))) if "*" in word else [word])]
    for store in map(Path, re.findall(r"[\w.-]+\.sqlite", command)):
        if "--out" in words:  # not what an earlier command of the page has left
            store.unlink(missing_ok=True)
            store.with_name(f"{store.stem}.attack.jsonl").unlink(missing_ok=True)
        elif not store.exists() and words[0] != "merge":  # it reads a store that is made elsewhere
            shutil.copy("runs/adaptive.sqlite" if "adaptive" in store.name else "runs/fixed.sqlite", store)
    result = CliRunner().invoke(COMMANDS[name], words)
    if re.search(r"\.trt|cuda", command):  # they need a GPU, and say so where there is none
        assert result.exit_code in (0, 1, 2), f"{command}\n{result.output}"
        assert "Traceback" not in result.output
    elif words[0] == "check":  # whether this random model meets the requirements does not matter here
        assert result.exit_code in (0, 1), f"{command}\n{result.output}"
    else:
        assert result.exit_code == 0, f"{command}\n{result.output}"


def find_command(words):
    """The command of click and its own words."""
    command, words = COMMANDS[words[0]], words[1:]
    while isinstance(command, click.Group) and words:
        assert words[0] in command.commands, f"{words[0]} is no command"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def parse_command(command):
    """Each option exists and takes its value, and nothing is missing."""
    words = shlex.split(command)
    abridged = "..." in words
    words = ["1" if re.fullmatch("[A-Z]+", word) else word for word in words if word != "..."]
    found, words = find_command(words)
    with click.Context(found, info_name=command, resilient_parsing=abridged) as context:
        found.parse_args(context, words)


def check_command(command):
    """What a command of pip, make, docker or pytest names is there."""
    program, *words = shlex.split(command)
    pyproject = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    if program == "pip":
        (package,) = (word for word in words if "[" in word)
        name, extras = package.rstrip("]").split("[")
        assert name in (".", pyproject["name"])
        assert set(extras.split(",")) <= pyproject["optional-dependencies"].keys()
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(), re.M)
        assert next(word for word in words if re.fullmatch(r"[a-z-]+", word)) in targets
    elif program == "docker":
        assert (REPOSITORY / words[words.index("-f") + 1]).exists()
    else:
        assert program == "pytest"
        paths = [word for word in words if word.startswith("tests/")]
        assert all((REPOSITORY / path.partition("::")[0]).exists() for path in paths)


def can_run(command):
    return command.split()[0] in (*COMMANDS, "python") and not is_listed(command, [*PARSED, *LEFT_OUT])


RUNNING = [page for page in PAGES if any(map(can_run, shown_in(page, "shell"))) or shown_in(page, "python")]


@pytest.mark.parametrize("page", RUNNING, ids=lambda page: page.name)
def test_what_a_page_shows_runs(page, here):
    names, done = names_of(page), set()
    for shown in shown_blocks(page):
        if shown.kind == "python":
            run_python(shown.text, names)
        elif can_run(shown.text) and (short := tuple(short_form(shown.text))) not in done:
            done.add(short)
            run_command(shown.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_command_and_its_options_exist(page):
    for command in shown_in(page, "shell"):
        if command.split()[0] in COMMANDS:
            parse_command(command.partition(" | ")[0])
        elif not is_listed(command, LEFT_OUT) and not command.startswith("python "):
            check_command(command)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_text_names_exists(page):
    for command in inline_commands(page):
        words = command.split()
        if words[0] not in COMMANDS:
            check_command(command)
            continue
        options = [word.partition("=")[0] for word in words if word.startswith("--")]
        found, _ = find_command(list(itertools.takewhile(lambda word: not word.startswith("-"), words)))
        known = {name for option in found.params for name in (*option.opts, *option.secondary_opts)}
        known |= {"--help", "--version"}
        assert set(options) <= known, command


def test_the_lists_name_nothing_else():
    """Each line of the two lists is about something that a page shows, and the pages show much that is run."""
    commands = [command for page in PAGES for command in shown_in(page, "shell")]
    for pattern in (*PARSED, *LEFT_OUT):
        assert any(re.match(pattern, command) for command in commands), pattern
    ran = [command for command in commands if can_run(command)]
    assert len(ran) > 70
    kinds = {" ".join(command.split()[:2]) for command in ran}
    assert kinds >= {"ars-engine certify", "ars-bench run", "ars-engine merge"}


@pytest.mark.parametrize(
    "command",
    [
        "ars-engine certify --sigm 1",
        "ars-engine certfy",
        "ars-train --epochs x",
        "ars-bench report --norm inf run.sqlite",
    ],
)
def test_a_wrong_command_would_be_found(command):
    with pytest.raises((AssertionError, click.ClickException)):
        parse_command(command)
