"""`ars-train` as a user meets it: a model.pt, a resume to the same weights, several processes, and bad input."""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

from ars.train.cli import main
from ars.train.model_file import build, load_weights, read_model_file

TRAIN = Path(sys.executable).parent / "ars-train"


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    """Two classes that are easy to tell apart: bright on the left, bright on the right."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = rng.random((400, 1, 12, 12), dtype=np.float32) * 0.3
    for image, label in zip(x, y, strict=True):
        image[..., 6 * label : 6 * label + 6] += 0.7
    np.savez("data.npz", x=x, y=y)


def train(*arguments, epochs=2, kind="input", out="model.pt"):
    given = ["--dataset", "data.npz", "--noise", kind, "--epochs", str(epochs), "--batch", "40", "--draws", "2"]
    return CliRunner().invoke(main, [*given, "-o", out, *arguments])


def weights(path="model.pt"):
    return read_model_file(Path(path))[1]["weights"]


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def refused(result, *parts, status=2):
    assert result.exit_code == status, result.output
    assert "Traceback" not in result.output
    for part in parts:
        assert part in result.stderr


@pytest.mark.parametrize("kind", ["isotropic", "dataset", "input"])
@pytest.mark.parametrize("family", ["gaussian", "laplace"])
def test_a_model_is_trained_and_its_file_holds_all_that_export_needs(kind, family):
    result = train("--family", family, epochs=4, kind=kind)
    assert result.exit_code == 0, result.output
    settings, content = read_model_file(Path("model.pt"))
    assert (settings.arch, settings.shape, settings.classes) == ("cnn", (1, 12, 12), ("0", "1"))
    assert (settings.kind, settings.family, content["state"]) == (kind, family, None)
    model = build(settings)
    load_weights(model, content["weights"], Path("model.pt"))
    lines = [json.loads(line) for line in Path("model.metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2, 3, 4]
    assert lines[-1]["smoothing"] < lines[0]["smoothing"]
    assert lines[-1]["accuracy"] > 0.9
    assert lines[-1]["sigma_min"] == pytest.approx(0.5, rel=0.2)


def test_the_seed_repeats_a_run_and_another_seed_does_not():
    train(out="a.pt")
    train(out="b.pt")
    train("--seed", "1", out="c.pt")
    assert same(weights("a.pt"), weights("b.pt"))
    assert not same(weights("a.pt"), weights("c.pt"))


def test_augmentation_and_the_other_optimizer_and_schedules_train():
    assert train("--shift", "2", "--flip", "--optimizer", "sgd", "--schedule", "step", "--lr", "0.01").exit_code == 0
    assert train("--schedule", "constant", out="c.pt").exit_code == 0


def test_a_run_killed_in_the_middle_of_an_epoch_ends_with_the_same_weights():
    epochs = 12
    train(epochs=epochs, out="whole.pt")
    arguments = ["--dataset", "data.npz", "--epochs", str(epochs), "--batch", "40", "--draws", "2", "-o", "model.pt"]
    process = subprocess.Popen([TRAIN, *arguments], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not Path("model.pt").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(random.Random(0).uniform(0.05, 0.3))
    process.kill()
    assert process.wait() == -signal.SIGKILL
    state = read_model_file(Path("model.pt"))[1]["state"]
    assert state is not None
    assert 1 <= state["epoch"] < epochs
    assert train("--resume", epochs=epochs).exit_code == 0
    assert same(weights(), weights("whole.pt"))


def test_init_starts_from_the_weights_of_a_model_or_a_state_dict():
    train(kind="isotropic", out="first.pt")
    result = train("--init", "first.pt", "--lr", "1e-9", epochs=1, out="second.pt")
    assert result.exit_code == 0, result.output
    first, second = weights("first.pt"), weights("second.pt")
    name = "classifier.1.0.weight"
    torch.testing.assert_close(first[name], second[name], atol=1e-6, rtol=0)
    plain = {k.removeprefix("classifier."): v for k, v in first.items() if k.startswith("classifier.")}
    torch.save(plain, "state.pt")
    assert train("--init", "state.pt", epochs=1).exit_code == 0


GRADIENTS = """
import os, sys, torch
from ars.noise import GAUSSIAN, NoiseKind
from ars.train.loop import TrainingPlan, _optimizer, _place, _step
from ars.train.model_file import ModelSettings, build
from ars.train.noise_models import NoiseShape
from ars.train.smoothing import standard_noise
torch.set_num_threads(1)
rank, world = _place()
settings = ModelSettings("cnn", (1, 12, 12), ("a", "b"), (0.5,), (0.25,), "gaussian", NoiseKind.INPUT, NoiseShape(0.5))
torch.manual_seed(0)
model = build(settings)
generator = torch.Generator().manual_seed(1)
x, labels = torch.rand(16, 1, 12, 12, generator=generator), torch.randint(0, 2, (16,), generator=generator)
z = standard_noise(GAUSSIAN, x, 3, generator)
wrapped = torch.nn.parallel.DistributedDataParallel(model) if world > 1 else model
plan = TrainingPlan()
part = slice(rank * 16 // world, (rank + 1) * 16 // world)
_step(wrapped, _optimizer(model, plan, 10)[0], plan, x[part], labels[part], z[:, part])
if rank == 0:
    torch.save({name: parameter.grad for name, parameter in model.named_parameters()}, sys.argv[1])
if world > 1:
    torch.distributed.destroy_process_group()
"""


def test_two_processes_average_to_the_gradients_of_one_on_the_joined_batch():
    Path("gradients.py").write_text(GRADIENTS)
    subprocess.run([sys.executable, "gradients.py", "one.pt"], check=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([*torchrun, "gradients.py", "two.pt"], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    one, two = torch.load("one.pt", weights_only=True), torch.load("two.pt", weights_only=True)
    for name, gradient in one.items():
        torch.testing.assert_close(two[name], gradient, atol=1e-6, rtol=1e-4)


def test_torchrun_trains_one_model():
    # SGD, because AdamW makes much of gradients that differ by rounding only.
    sgd = ["--optimizer", "sgd", "--lr", "0.01"]
    given = ["--dataset", "data.npz", "--epochs", "2", "--batch", "40", "--draws", "2", "-o", "two.pt", *sgd]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    run = subprocess.run([*torchrun, TRAIN, *given], capture_output=True, text=True, env=environment)
    assert run.returncode == 0, run.stderr
    train(*sgd, out="one.pt")
    one, two = weights("one.pt"), weights("two.pt")
    for name in one:
        torch.testing.assert_close(two[name], one[name], atol=1e-4, rtol=1e-3)


# Bad input.


def test_names_that_are_not_known():
    refused(train("--arch", "renset20"), "unknown architecture 'renset20'; did you mean 'resnet20'?")
    refused(train(kind="inputs"), "unknown noise kind 'inputs'; did you mean 'input'?")
    refused(train("--family", "gauss"), "unknown noise family 'gauss'")
    refused(train("--dataset", "fashion-mist"), "fashion-mist: there is no such file or folder")
    refused(train("--optimizer", "adam"), "unknown optimizer 'adam'; did you mean 'adamw'?")
    refused(CliRunner().invoke(main, []), "say what to train on")


def test_numbers_that_make_no_sense():
    refused(train("--sigma", "0"), "sigma = 0.0 is not valid")
    refused(train("--sigma", "-1"), "sigma = -1.0 is not valid")
    refused(train("--batch", "5000"), "batch = 5000 is not valid; there are only 360 images")
    refused(train("--lr", "0"), "lr = 0.0 is not valid")
    refused(train(epochs=0), "epochs = 0 is not valid")


def test_data_that_cannot_train():
    np.savez("one.npz", x=np.zeros((20, 1, 12, 12)), y=np.zeros(20, int))
    refused(train("--dataset", "one.npz"), "one.npz: all of its images are of one class")
    np.savez("none.npz", x=np.zeros((20, 1, 12, 12)))
    refused(train("--dataset", "none.npz"), "none.npz: it has no labels")
    for label, side in (("a", 12), ("b", 13)):
        Path("images", label).mkdir(parents=True)
        for number in range(20):
            Image.new("L", (side, side)).save(Path("images", label, f"{number}.png"))
    refused(train("--dataset", "images"), "images: it has images of (1, 12, 12) and of (1, 13, 13)", "--resize")
    assert train("--dataset", "images", "--resize", "12", "--batch", "10", epochs=1).exit_code == 0


class Harmful:
    def __reduce__(self):
        return (os.mkdir, ("it-ran",))


def test_a_pickle_with_code_in_it_is_refused_and_nothing_runs():
    Path("bad.pt").write_bytes(pickle.dumps(Harmful()))
    torch.save(Harmful(), "worse.pt")
    for name in ("bad.pt", "worse.pt"):
        refused(train("--init", name), f"{name}: it holds code or objects, which are not loaded")
    assert not Path("it-ran").exists()


def test_files_that_are_no_models():
    Path("text.pt").write_text("hello")
    refused(train("--init", "text.pt"), "text.pt: ")
    torch.save([1, 2], "list.pt")
    refused(train("--init", "list.pt"), "list.pt: it is neither a model.pt nor a state_dict")
    refused(train("--init", "none.pt"), "none.pt: there is no such file")
    refused(train("--resume", out="none.pt"), "none.pt: there is no such file")


def test_a_checkpoint_of_another_architecture_names_the_first_tensor_that_does_not_fit():
    train(epochs=1, out="cnn.pt")
    message = "cnn.pt: its tensor '1.0.0.weight' is missing, and in the architecture it is (16, 1, 3, 3)"
    refused(train("--arch", "resnet20", "--init", "cnn.pt"), message)


def test_a_resume_with_other_settings_or_of_a_finished_run_is_refused():
    train()
    refused(train("--resume"), "model.pt: its training is done")
    refused(train("--resume", "--lr", "0.5"), "it was begun with learning_rate = 0.001, and this run has 0.5")
    refused(train("--resume", kind="dataset"), "it was begun with kind = input, and this run has dataset")


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_last_good_checkpoint():
    result = train("--optimizer", "sgd", "--schedule", "constant", "--lr", "1e12", epochs=3)
    refused(result, "the loss is not finite in epoch 1", "try a smaller --lr", status=1)
    assert not Path("model.pt").exists()


def test_a_full_disk_keeps_the_earlier_checkpoint(monkeypatch):
    train(epochs=2)
    before = Path("model.pt").read_bytes()

    def full(content, path):
        Path(path).write_bytes(b"half of it")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    refused(train(epochs=3), "No space left on device", "the earlier checkpoint is kept", status=1)
    assert Path("model.pt").read_bytes() == before
    assert not Path("model.pt.partial").exists()


def test_without_torch_the_install_line_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    refused(CliRunner().invoke(main, []), "torch is not installed; run `pip install 'ars[train]'`")
