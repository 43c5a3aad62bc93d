"""Every command that the README, docs/deciding.md and docs/attack.md show is run here, on small files of the same names
and with few draws."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

import ars
from ars.bench.cli import main as bench
from ars.bench.run.random_model import export_random
from ars.engine.cli import main as engine
from ars.export.cli import main as export
from ars.train.cli import main as train

REPOSITORY = Path(__file__).parents[1]
COMMANDS = {"ars-train": train, "ars-export": export, "ars-engine": engine, "ars-bench": bench}

# What makes a command short: words that are added at its end, and so win over those that the README shows.
LESS = {
    ("ars-train",): "--epochs 1 --limit 64 --batch 32 --draws 1 --arch cnn --overwrite",
    ("ars-export",): "--min-agreement 0",
    ("ars-engine", "certify"): "--n 50 --limit 2 --batch 16",
    ("ars-engine", "predict"): "--n 50 --limit 2 --batch 16",
    ("ars-engine", "audit"): "--sample 1",
    ("ars-engine", "covers"): "--input 0",
    ("ars-bench", "sweep"): "--n 50 --limit 2 --batch 16",
    ("ars-bench", "run"): "--rounds 3 --n 200 --batch 16 --inputs 2 --backend loop --backend onnxruntime",
    ("ars-bench", "attack"): "--n 100 --limit 1 --steps 1 --draws 2 --restarts 1",
    ("ars-bench", "paper"): "--n 50 --limit 4 --batch 16 --rounds 3",
    ("ars-bench", "sampler"): "--rounds 3 --batch 10",
    ("ars-bench", "overhead"): "--rounds 3 --batch 4",
    ("ars-bench", "generator"): "--rounds 3 --n 100",
}
# Data that not every machine has, and networks that take long, by what stands for them.
STAND_INS = {"fashion-mnist": "small", "fashion-mnist:test": "images.npz", "resnet20": "cnn", "resnet110": "cnn"}
# Files that the README makes up, by what they are here.
MADE_UP = {"YOUR.onnx": "model.onnx", "YOUR-IMAGES/": "folder/"}


def shown_commands(text):
    """The commands of indented and fenced blocks, each on one line and without its comment."""
    blocks = re.sub(r"^```.*?^```", lambda block: re.sub(r"^", "    ", block[0], flags=re.M), text, flags=re.M | re.S)
    code = "\n".join(line.strip() for line in blocks.splitlines() if line.startswith("    "))
    lines = code.replace("\\\n", " ").splitlines()
    return [" ".join(shlex.split(line, comments=True)) for line in lines if re.match(r"(\$ )?(ars-|python )", line)]


PAGES = ("README.md", "docs/deciding.md", "docs/attack.md")
SHOWN = [command.removeprefix("$ ") for page in PAGES for command in shown_commands((REPOSITORY / page).read_text())]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with files of the README's names: a model with all its files, images, and a run store."""
    folder = tmp_path_factory.mktemp("readme")
    export_random("cnn", (1, 28, 28), folder)
    for path in folder.iterdir():
        renamed = path.rename(folder / path.name.replace("cnn", "model"))
        if renamed.suffix == ".json":
            renamed.write_text(renamed.read_text().replace('"cnn.', '"model.'))
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
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        with ars.load("model.onnx", batch=16) as classifier:
            ars.certify_run(classifier, ars.Inputs("images.npz", limit=4), ars.Plan(n=50), store="made.sqlite")
    return folder


def short_form(command):
    words = [STAND_INS.get(word, MADE_UP.get(word, word)) for word in shlex.split(command.partition(" | ")[0])]
    less = next((added for start, added in LESS.items() if tuple(words[: len(start)]) == start), "")
    return [*words, *less.split()]


def test_the_readme_shows_commands():
    assert {command.split()[0] for command in SHOWN} >= {"ars-train", "ars-export", "ars-engine"}


@pytest.mark.parametrize("command", dict.fromkeys(SHOWN))
def test_a_command_of_the_readme_runs(command, files, tmp_path, monkeypatch):
    here = shutil.copytree(files, tmp_path / "here", symlinks=True)  # what one writes is no other's
    monkeypatch.chdir(here)
    name, *words = short_form(command)
    if name == "python":
        run = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300)
        assert run.returncode == 0, run.stderr
        return
    if "--out" not in words:  # it reads stores that an earlier command of the README has written
        for store in re.findall(r"\S+\.sqlite", command):
            shutil.copy("made.sqlite", store)
    Path("runs").mkdir()
    shutil.copy("made.sqlite", "runs")
    result = CliRunner().invoke(COMMANDS[name], words)
    if ".trt" in command or "cuda" in command:  # they need a GPU, and say so where there is none
        assert result.exit_code in (0, 2), result.output
        assert "Traceback" not in result.output
    elif words[0] == "check":  # whether this random model meets the requirements does not matter here
        assert result.exit_code in (0, 1), result.output
    else:
        assert result.exit_code == 0, f"{words}\n{result.output}"
