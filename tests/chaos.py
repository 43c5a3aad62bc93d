"""Kill every long command at random moments, let it go on, and compare with a run that was never killed (`make chaos`).

    python tests/chaos.py --kills 300 --seed 1 FOLDER

Each round starts a command in a fresh folder, kills it with SIGKILL up to four times, and then lets it end. The result
must be that of the reference, and nothing else may be left: not in the folder, and not in the folder for temporary
files. Results are compared without times. FOLDER keeps the rounds that failed.
"""

import argparse
import getpass
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import onnxruntime  # noqa: F401  # loaded once, for all forks
import torch

from ars.bench.cli import main as bench
from ars.engine.cli import main as engine
from ars.engine.records.store import read_records
from ars.export.cli import main as export_command
from ars.export.onnx_files import write_onnx  # noqa: F401
from ars.manifest import manifest_beside
from ars.train.cli import main as train_command
from ars.train.loop import train as train_loop  # noqa: F401
from ars.train.model_file import read_model_file

MAINS = {"ars-engine": engine, "ars-train": train_command, "ars-export": export_command, "ars-bench": bench}
EXAMPLES = Path(__file__).parents[1] / "examples" / "fashion-mnist"
MODEL, DATA = EXAMPLES / "classifier.onnx", EXAMPLES / "images.npz"
MOST_KILLS = 4
# What libraries leave in the folder for temporary files, whether they are killed or not: ONNX Runtime and PyTorch.
OTHERS = (".ses", f"torchinductor_{getpass.getuser()}")


@dataclass(frozen=True)
class Command:
    """A command that is killed. It runs in a folder of its own, with `given` beside it."""

    name: str
    arguments: Callable[[Path, Path], list[str]]
    """The command, for a folder and the folder of what is given."""
    result: Callable[[Path], object]
    """What is compared, in the folder where it ran."""
    files: tuple[str, ...]
    """All that may be in the folder at the end."""


def certify(*more: str) -> Callable[[Path, Path], list[str]]:
    given = ["--sigma", "0.25", "--batch", "64", "--seed", "1", "--limit", "30", "--quiet", "--out", "run.sqlite"]
    return lambda folder, prepared: [
        "ars-engine",
        "certify",
        "--engine",
        str(MODEL),
        "--data",
        str(DATA),
        *given,
        *more,
    ]


def certify_shard(number: int) -> Callable[[Path, Path], list[str]]:
    """A shard, which is only certified to be merged."""
    return certify("--n", "300", "--shard", f"{number}/2", "--out", f"{number}.sqlite")


def merge(folder: Path, prepared: Path) -> list[str]:
    """A killed merge leaves either no store or the whole one, which is then read."""
    if (folder / "run.sqlite").exists():
        return ["ars-engine", "summary", "run.sqlite"]
    return ["ars-engine", "merge", str(prepared / "1.sqlite"), str(prepared / "2.sqlite"), "-o", "run.sqlite"]


def train(folder: Path, prepared: Path) -> list[str]:
    resume = ["--resume"] if (folder / "model.pt").exists() else []
    small = ["--limit", "60", "--epochs", "3", "--draws", "1", "--batch", "50", "--noise", "isotropic"]
    return ["ars-train", "--dataset", str(EXAMPLES), *small, *resume, "-o", "model.pt"]


def export(folder: Path, prepared: Path) -> list[str]:
    return ["ars-export", str(prepared / "model.pt"), "--tensorrt", "off", "-o", ".", "--quiet"]


def report(folder: Path, prepared: Path) -> list[str]:
    return ["ars-bench", "report", str(prepared / "run.sqlite"), "-o", "report.html"]


def certificates(folder: Path) -> object:
    """Read in a copy, so that the folder stays as the run left it."""
    with tempfile.TemporaryDirectory() as place:
        for file in folder.glob("run.sqlite*"):
            shutil.copy(file, place)
        found = list(read_records(Path(place) / "run.sqlite"))
    return [(one.idx, one.label, one.certificate, one.draws, one.input_sha256) for one in found]


def nothing(folder: Path) -> object:
    return None


def weights(folder: Path) -> object:
    found = read_model_file(folder / "model.pt")[1]["weights"]
    return {name: tensor.numpy().tobytes() for name, tensor in found.items()}


def model_files(folder: Path) -> object:
    manifest = manifest_beside(folder / "model.onnx")
    return [(file.path, file.sha256) for file in manifest.files]


def page(folder: Path) -> object:
    """Without the date."""
    return re.sub(r"\d{4}-\d\d-\d\d[T ]?[\d:+.Z]*", "", (folder / "report.html").read_text(encoding="utf-8"))


SHARDS = tuple(Command(f"shard {one}", certify_shard(one), nothing, (f"{one}.sqlite",)) for one in (1, 2))
COMMANDS = (
    Command("certify, fixed n", certify("--n", "300"), certificates, ("run.sqlite",)),
    Command("certify, adaptive", certify("--n", "1000", "--stopping", "adaptive"), certificates, ("run.sqlite",)),
    Command("train", train, weights, ("model.pt", "model.metrics.jsonl")),
    Command("export", export, model_files, ("model.onnx", "model.noise.onnx", "model.json")),
    Command("merge", merge, certificates, ("run.sqlite",)),
    Command("report", report, page, ("report.html",)),
)


def run(command: Command, folder: Path, prepared: Path, temporary: Path, after: float | None = None) -> bool:
    """Run a command in a folder, and kill it after so many seconds. Returns whether it was killed.

    It runs in a fork of this process, which has loaded everything, so that the kills fall into its work.
    """
    temporary.mkdir(exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    child = os.fork()
    if child == 0:
        _become(command, folder, prepared, temporary, log)
    end = None if after is None else time.monotonic() + after
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            break
        if end is not None and time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return True
        time.sleep(0.001 if end is not None else 0.02)
    if status:
        raise RuntimeError(f"{command.name}: exit status {os.waitstatus_to_exitcode(status)}; see {log}")
    return False


def _become(command: Command, folder: Path, prepared: Path, temporary: Path, log: Path) -> NoReturn:
    """Turn this fork into the command."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.chdir(folder)
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    name, *arguments = command.arguments(folder, prepared)
    status = 0
    try:
        MAINS[name](arguments, prog_name=name)
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.stdout.flush()
        os._exit(status)


def left_behind(folder: Path, files: tuple[str, ...]) -> list[str]:
    return sorted({str(path.relative_to(folder)) for path in folder.rglob("*")} - set(files))


@dataclass
class Target:
    """A command, what a run of it gives that is never killed, and what was seen so far."""

    command: Command
    seconds: float
    expected: object
    kills: int = 0
    rounds: int = 0
    wrong: int = 0
    littered: int = 0


def run_whole(command: Command, home: Path) -> Target:
    """What it makes is given to the commands after it."""
    prepared, folder = home / "prepared", home / f"{command.name.replace(', ', '-')}-reference"
    prepared.mkdir(parents=True, exist_ok=True)
    folder.mkdir()
    start = time.monotonic()
    run(command, folder, prepared, home / "tmp")
    target = Target(command, time.monotonic() - start, command.result(folder))
    for file in command.files:
        shutil.copy(folder / file, prepared)
    return target


def attack(target: Target, home: Path, rng: random.Random) -> None:
    """One round: a few kills, then a run to the end."""
    command, temporary = target.command, home / "tmp"
    folder = home / f"{command.name.replace(', ', '-')}-{target.rounds}"
    folder.mkdir()
    given = folder, home / "prepared", temporary
    for kills in range(MOST_KILLS + 1):  # the reference ran first, and so took longer
        if not run(command, *given, rng.uniform(0, target.seconds / 2) if kills < MOST_KILLS else None):
            break
        target.kills += 1
    same = command.result(folder) == target.expected
    found = left_behind(folder, command.files) + left_behind(temporary, OTHERS)
    target.rounds, target.wrong, target.littered = (
        target.rounds + 1,
        target.wrong + (not same),
        target.littered + bool(found),
    )
    if same and not found:
        shutil.rmtree(folder)
        (home / f"{folder.name}.log").unlink()
    else:
        print(f"{folder}: {'the same result' if same else 'ANOTHER RESULT'}, left behind: {found}", flush=True)
    shutil.rmtree(temporary)


def campaign(home: Path, kills: int, seed: int) -> list[Target]:
    """The commands take turns until there were so many kills of each."""
    rng = random.Random(seed)
    for command in SHARDS:
        run_whole(command, home)
    targets = [run_whole(command, home) for command in COMMANDS]
    while left := [target for target in targets if target.kills < kills / len(COMMANDS)]:
        for target in left:
            attack(target, home, rng)
        print(", ".join(f"{target.command.name}: {target.kills}" for target in targets), flush=True)
    return targets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    targets = campaign(given.folder.absolute(), given.kills, given.seed)
    print(f"{'command':<20} {'kills':>5} {'rounds':>6} {'other results':>13} {'left files':>10}")
    for one in targets:
        print(f"{one.command.name:<20} {one.kills:>5} {one.rounds:>6} {one.wrong:>13} {one.littered:>10}")
    sys.exit(any(one.wrong or one.littered for one in targets))


if __name__ == "__main__":
    main()
